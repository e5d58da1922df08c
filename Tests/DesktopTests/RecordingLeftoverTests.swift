import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Recorders that an earlier run of the agent left.
@Suite(.timeLimit(.minutes(15)), .blocking) struct RecordingLeftoverTests {
    /// A recording's directory of an earlier run, and a program in its recorder's place.
    private final class Leftover: Sendable {
        let world: RecordingWorld
        let files: RecordingFiles
        let pid: pid_t

        /// - Parameter script: what the program does, in a session of its own and in the directory; `$0.children` is
        ///   for the numbers of its children.
        init(_ script: String) throws {
            world = try RecordingWorld(nil)
            files = RecordingFiles(directory: "\(world.recordings)/0c5d1f2e-8a67-4b21-9f3d-5b8e7a1c2d3f-1")
            try files.create()
            try files.createEmpty()
            pid = try DaemonProcess.spawn(
                ["setsid", "/bin/sh", "-c", "cd \(files.directory); \(script)", "\(world.directory.path)/sh"],
                ["PATH": "/usr/bin:/bin"])
        }

        /// Waits for the children of the script.
        func children(_ count: Int) async throws -> [pid_t] {
            let path = "\(world.directory.path)/sh.children"
            try await eventually("its children") { ProcFS.text(path).split(separator: "\n").count == count }
            return ProcFS.text(path).split(separator: "\n").compactMap { pid_t($0) }
        }

        /// Rewrites the record.
        func change(_ change: (inout RecorderRecord) -> Void) throws {
            var record = try #require(try RecorderRecord.read(of: files))
            change(&record)
            try OwnFile.replace(files.record, with: Array(try JSONEncoder().encode(record)))
        }

        func end(_ others: [pid_t] = []) async {
            for pid in [pid] + others { kill(pid, SIGKILL) }
            waitpid(pid, nil, 0)
            await world.end()
        }
    }

    private static let idle = "exec sleep 1000"
    private static let parent = "sleep 1000 & echo $! >>$0.children; sleep 1000 & echo $! >>$0.children; "

    @Test func itAndItsChildrenAreEnded() async throws {
        let left = try Leftover("\(Self.parent) wait")
        let children = try await left.children(2)
        try RecorderRecord.write(left.pid, to: left.files)
        await left.world.manager.removeLeftovers()
        #expect(!([left.pid] + children).contains { ProcFS.runs($0) })
        #expect(access(left.world.recordings, F_OK) != 0)
        #expect(left.world.log.text.contains("ending recorders of an earlier run of the agent"))
        await left.end(children)
    }

    /// In the recording's directory they are certainly its own; elsewhere the session may be a later one.
    @Test func ofOneThatHasEndedTheChildrenInItsDirectoryAreEnded() async throws {
        let left = try Leftover("\(Self.parent) cd /; sleep 1000 & echo $! >>$0.children; read never </dev/zero")
        let children = try await left.children(3)
        try RecorderRecord.write(left.pid, to: left.files)
        kill(left.pid, SIGKILL)
        waitpid(left.pid, nil, 0)
        await left.world.manager.removeLeftovers()
        #expect(children.map { ProcFS.runs($0) } == [false, false, true])
        await left.end(children)
    }

    /// The number now belongs to a later process, of this boot or of another.
    @Test(arguments: [false, true]) func aNumberThatWasReusedIsLeftAlone(isOfAnotherBoot: Bool) async throws {
        let left = try Leftover("cd /; \(Self.parent) wait")
        let children = try await left.children(2)
        try RecorderRecord.write(left.pid, to: left.files)
        try left.change { record in
            if isOfAnotherBoot { record.boot = "another" } else { record.recorder.startTime -= 1 }
        }
        await left.world.manager.removeLeftovers()
        #expect(([left.pid] + children).allSatisfy { ProcFS.runs($0) })
        #expect(access(left.world.recordings, F_OK) != 0)
        await left.end(children)
    }

    @Test(arguments: ["", "{\"boot\":", "[]", "{\"boot\":\"x\",\"recorder\":{\"pid\":-1}}"])
    func aDamagedRecordIsLoggedAndTheRecorderLeftAlone(text: String) async throws {
        let left = try Leftover(Self.idle)
        try text.write(toFile: left.files.record, atomically: false, encoding: .utf8)
        chmod(left.files.record, 0o600)
        await left.world.manager.removeLeftovers()
        #expect(ProcFS.runs(left.pid))
        #expect(left.world.log.text.contains("\(left.files.record) is damaged"), "\(left.world.log.text)")
        #expect(access(left.world.recordings, F_OK) != 0)
        await left.end()
    }

    @Test(.enabled(if: geteuid() == 0), arguments: Obstacle.allCases)
    func whatLiesInTheRecordsPlaceIsLoggedAndNotFollowed(_ obstacle: Obstacle) async throws {
        let left = try Leftover(Self.idle)
        try RecorderRecord.write(left.pid, to: left.files)
        let text = ProcFS.text(left.files.record)
        unlink(left.files.record)
        try obstacle.put(left.files.record, text)
        await left.world.manager.removeLeftovers()
        #expect(ProcFS.runs(left.pid))
        #expect(left.world.log.text.contains(obstacle.text), "\(left.world.log.text)")
        await left.end()
    }

    /// The records in another user's directory would be his.
    @Test(.enabled(if: geteuid() == 0)) func recordsInAForeignDirectoryAreNotRead() async throws {
        let left = try Leftover(Self.idle)
        try RecorderRecord.write(left.pid, to: left.files)
        chown(left.world.recordings, 65534, 65534)
        await left.world.manager.removeLeftovers()
        #expect(ProcFS.runs(left.pid))
        await left.end()
    }

    @Test func aRecorderHasARecord() async throws {
        try await withWorld { world, _ in
            try await world.manager.start(UUID())
            let kept = try #require(world.kept.first)
            let record = try RecorderRecord.read(of: RecordingFiles(directory: "\(world.recordings)/\(kept)"))
            #expect(record?.boot == SessionFiles.boot)
            #expect(record.map { [$0.recorder.pid] } == world.recorders)
            #expect(mode("\(world.recordings)/\(kept)/recorder.json") == 0o600)
        }
    }

    // MARK: The built daemon

    /// - Parameter byItself: ffmpeg; else the desktop program, which records through a child.
    @Test(arguments: [true, false]) func whatAKilledDaemonLeftIsEndedByTheNext(byItself: Bool) async throws {
        let directory = try TemporaryDirectory()
        let environment = try Self.environment(directory, byItself)
        let first = try DaemonProcess(environment: environment, directory: directory)
        let body = "{\"recording_id\":\"\(UUID().uuidString)\"}"
        let started = try first.connect().request("POST", "/api/v0/desktop/recording/start", body: body)
        #expect(started.status == 200, "\(started.text)")
        let recorders = try Self.recorders(directory)
        #expect(recorders.count == (byItself ? 1 : 3), "\(recorders)")
        first.signal(SIGKILL)
        _ = first.waitBlocking()
        #expect(recorders.allSatisfy { ProcFS.runs($0) })

        let second = try DaemonProcess(environment: environment, directory: directory)
        _ = try await second.logged("ending recorders of an earlier run of the agent")
        try await eventually("they are gone") { !recorders.contains { ProcFS.runs($0) } }
        try await eventually("their files are gone") {
            access("\(directory.path)/state/desktop/recordings", F_OK) != 0
        }
        // The desktop itself is adopted.
        let action = try second.connect()
            .request("POST", "/api/v0/desktop/action", body: #"{"action":"cursor_position"}"#)
        #expect(action.status == 200, "\(action.text)")
        #expect(try await second.stop() == 0)
        #expect(try Self.recorders(directory).isEmpty)
    }

    private static func environment(_ directory: TemporaryDirectory, _ byItself: Bool) throws -> [String: String] {
        let bin = "\(directory.path)/bin"
        for path in [bin, "\(directory.path)/tmp"] { mkdir(path, 0o700) }
        if !byItself {
            for (name, script) in [
                // Cannot do what the agent asks of it.
                ("ffmpeg", #"case "$*" in *-progress*) exit 1 ;; esac; exec /usr/bin/ffmpeg "$@""#),
                (
                    "portabledesktop",
                    "case $1 in record) (\(SessionWorld.fixtures)/portabledesktop \"$@\"; exit) & wait ;; esac; "
                        + "exec \(SessionWorld.fixtures)/portabledesktop \"$@\""
                ),
            ] {
                try "#!/bin/sh\n\(script)\n".write(toFile: "\(bin)/\(name)", atomically: false, encoding: .utf8)
                chmod("\(bin)/\(name)", 0o755)
            }
        }
        return [
            "PATH": "\(bin):\(SessionWorld.fixtures):/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": "\(directory.path)/tmp",
            "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": "\(directory.path)/boundary.sock",
        ]
    }

    /// The processes that record into the directory, with their parents.
    private static func recorders(_ directory: TemporaryDirectory) throws -> [pid_t] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { pid_t($0) }
            .filter { pid in
                let link = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/cwd")) ?? ""
                return ProcFS.runs(pid) && link.hasPrefix("\(directory.path)/state/desktop/recordings/")
            }
    }
}
