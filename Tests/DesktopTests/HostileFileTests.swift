import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// What lies in the places of the desktop's files and was put there by another user.
enum Obstacle: String, CaseIterable, Sendable {
    case pipe, link, directory, device, foreign, twice

    /// - Parameter text: of what has any, or what the link leads to has.
    func put(_ path: String, _ text: String = "") throws {
        let other = "\(path).target"
        switch self {
        case .pipe: mkfifo(path, 0o666)
        case .directory: mkdir(path, 0o777)
        case .device: mknod(path, S_IFCHR | 0o666, 5 << 8)
        case .foreign: try text.write(toFile: path, atomically: false, encoding: .utf8)
        case .link:
            try text.write(toFile: other, atomically: false, encoding: .utf8)
            symlink(other, path)
        case .twice:
            try text.write(toFile: other, atomically: false, encoding: .utf8)
            Glibc.link(other, path)
        }
        if self != .twice { lchown(path, 65534, 65534) }
        #expect(isThere(path))
    }

    func isThere(_ path: String) -> Bool {
        var info = stat()
        return lstat(path, &info) == 0
    }

    static func remove(_ path: String) {
        for path in [path, "\(path).target"] where unlink(path) != 0 { rmdir(path) }
    }

    /// What an error says of it.
    var text: String {
        switch self {
        case .pipe: "a named pipe"
        case .link: "a symbolic link"
        case .directory: "a directory"
        case .device: "a device"
        case .foreign: "belongs to uid 65534"
        case .twice: "2 names"
        }
    }
}

@Suite(.timeLimit(.minutes(15)), .enabled(if: geteuid() == 0)) struct HostileFileTests {
    private static func failure(_ world: SessionWorld) async -> DesktopError? {
        do {
            _ = try await world.session.desktop()
            return nil
        } catch {
            return error as? DesktopError
        }
    }

    // MARK: The X server's

    /// Locks and sockets of displays lie where any user may create files with their names: no start and no
    /// shutdown waits for it, and it stays, although it names our own dead server.
    @Test func whatOthersPutInThePlaceOfLocksIsLeftAlone() async throws {
        let world = try SessionWorld()
        let first = 60_000 + Int.random(in: 0..<500) * 10
        let locks = Obstacle.allCases.indices.map { "/tmp/.X\(first + $0)-lock" }
        let sockets = Obstacle.allCases.indices.map { "/tmp/.X11-unix/X\(first + $0)" }
        mkdir("/tmp/.X11-unix", 0o1777)
        defer { for path in locks + sockets { Obstacle.remove(path) } }
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            let old = try world.xvnc()
            for (index, obstacle) in Obstacle.allCases.enumerated() where obstacle != .twice {
                try obstacle.put(locks[index], "\(old)\n")
                try Obstacle.foreign.put(sockets[index])
            }
            kill(old, SIGKILL)
            try await eventually("it is gone") { !ProcFS.runs(old) }
            let isOver = Atomic(false)
            let cycle = Task {
                defer { isOver.store(true, ordering: .relaxed) }
                // Cleans up after the first, and starts a second.
                let display = try await world.session.desktop().display
                await world.session.shutdown()
                return display
            }
            do {
                try await eventually("start and shutdown", within: .seconds(120)) { isOver.load(ordering: .relaxed) }
            } catch {
                // Unblocks a thread that reads the pipe.
                for path in locks { close(open(path, O_WRONLY | O_NONBLOCK)) }
                throw error
            }
            _ = try await cycle.value
        }
        for (index, obstacle) in Obstacle.allCases.enumerated() where obstacle != .twice {
            #expect(obstacle.isThere(locks[index]) && obstacle.isThere(sockets[index]), "\(obstacle)")
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func theLockOfAServerOfOursGoes() throws {
        let dead = try DaemonProcess.spawn(["/bin/true"], [:])
        waitpid(dead, nil, 0)
        let number = 65_000 + Int.random(in: 0..<500)
        let (lock, path) = ("/tmp/.X\(number)-lock", "/tmp/.X11-unix/X\(number)")
        mkdir("/tmp/.X11-unix", 0o1777)
        defer { for path in [lock, path] { unlink(path) } }
        try "\(String(repeating: " ", count: 10 - "\(dead)".count))\(dead)\n"
            .write(toFile: lock, atomically: false, encoding: .utf8)
        try bound(path)
        // The socket is another's.
        chown(path, 65534, 65534)
        SessionFiles.removeDisplay(of: dead)
        #expect(access(lock, F_OK) != 0 && access(path, F_OK) == 0)
        SessionFiles.removeSocket(ofDisplay: ":\(number)")
        #expect(access(path, F_OK) == 0)
        chown(path, 0, 0)
        SessionFiles.removeSocket(ofDisplay: ":\(number)")
        #expect(access(path, F_OK) != 0)
    }

    /// Leaves a socket on which no process listens.
    private func bound(_ path: String) throws {
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(listener) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(rc == 0)
    }

    // MARK: Ours

    @Test(arguments: ["state.json", "session.json", "rfb.sock"], Obstacle.allCases)
    func whatLiesInThePlaceOfAFileIsNamed(name: String, obstacle: Obstacle) async throws {
        let world = try SessionWorld()
        let path = "\(world.state)/\(name)"
        try createDirectories(world.state, mode: 0o700)
        // As good as ours, if it were taken.
        try obstacle.put(path, #"{"boot":"\#(SessionFiles.boot)","began":1,"display":1,"xvncPid":\#(getpid())}"#)
        try await withWorld(world) { world in
            let error = await Self.failure(world)
            let detail = error?.detail ?? ""
            #expect(error?.code == .failed && detail.hasPrefix("\(path) "), "\(detail)")
            let what = name == "rfb.sock" ? "is not a socket of this daemon" : obstacle.text
            #expect(detail.contains(what) && detail.components(separatedBy: path).count == 2, "\(detail)")
            #expect(world.calls("up") == 0)
        }
        #expect(obstacle.isThere(path))
        Obstacle.remove(path)
        // Nothing else is there.
        rmdir(world.state)
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aDirectoryOfAnothersIsNotOurs() async throws {
        let (elsewhere, world) = (try TemporaryDirectory(), try SessionWorld())
        try createDirectories("\(world.directory.path)/state", mode: 0o700)
        for name in ["state.json", "session.json"] {
            try "{}".write(toFile: "\(elsewhere.path)/\(name)", atomically: false, encoding: .utf8)
        }
        mkdir("\(elsewhere.path)/session", 0o700)
        symlink(elsewhere.path, world.state)
        try await withWorld(world) { world in
            let detail = await Self.failure(world)?.detail ?? ""
            #expect(detail == "\(world.state) is not a directory", "\(detail)")
        }
        #expect(Set(directoryEntries(elsewhere.path)) == ["state.json", "session.json", "session"])
        unlink(world.state)
    }

    /// The VNC server's socket is not looked for behind a link when a desktop is adopted.
    @Test func aLinkInThePlaceOfTheSocketIsNotFollowed() async throws {
        let first = try SessionWorld()
        _ = try await first.session.desktop()
        let old = try first.xvnc()
        await first.abandon()
        let (path, moved) = ("\(first.state)/rfb.sock", "\(first.directory.path)/moved")
        rename(path, moved)
        symlink(moved, path)
        let second = try SessionWorld(directory: first.directory)
        try await withWorld(second) { world in
            // The old server is ended, and takes the link for its socket when it goes.
            _ = try await world.session.desktop()
            #expect(!ProcFS.runs(old) && world.calls("up") == 2)
            #expect(world.log.text.contains("\(path) is not a socket of this daemon"), "\(world.log.text)")
        }
        unlink(moved)
        try await eventuallyNothingLeft(of: second)
    }

    // MARK: Recordings

    @Test(arguments: ["video.mp4", "thumbnail.jpg"], Obstacle.allCases)
    func whatLiesInThePlaceOfARecordingIsNamed(name: String, obstacle: Obstacle) throws {
        let directory = try TemporaryDirectory()
        let files = RecordingFiles(directory: "\(directory.path)/recordings/one")
        try files.create()
        try files.createEmpty()
        try Data([0, 0, 0, 8] + "moov".utf8 + [0, 0, 0, 8] + "mdat".utf8).write(to: URL(fileURLWithPath: files.video))
        #expect(try files.open().videoBytes == 16)
        let path = "\(files.directory)/\(name)"
        unlink(path)
        try obstacle.put(path, "secret")
        let error = #expect(throws: CoreError.self) { try files.open() }
        #expect(error?.code == .pathOccupied && error?.message.hasPrefix("\(path) ") ?? false)
        #expect(error?.message.contains(obstacle.text) ?? false, "\(error?.message ?? "nil")")
        #expect(throws: CoreError.self) { try files.createEmpty() }
        if obstacle == .link {
            var info = stat()
            stat("\(path).target", &info)
            #expect(info.st_mode & 0o777 == 0o644)
        }
    }

    @Test func recordingsAreNotKeptBehindALink() async throws {
        let elsewhere = try TemporaryDirectory()
        let precious = "\(elsewhere.path)/thesis"
        close(creat(precious, 0o600))
        let world = try RecordingWorld(nil)
        try createDirectories(parentDirectory(of: world.recordings), mode: 0o700)
        symlink(elsewhere.path, world.recordings)
        try world.script("ffmpeg", "exit 1")
        await world.manager.removeLeftovers()
        #expect(access(precious, F_OK) == 0)
        let error = await #expect(throws: DesktopError(.failed, "")) { try await world.manager.start(UUID()) }
        #expect(error?.detail == "\(world.recordings) is not a directory", "\(error?.detail ?? "nil")")
        await world.end()
        #expect(directoryEntries(elsewhere.path) == ["thesis"])
    }
}
