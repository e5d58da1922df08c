import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// What `workspace-agent doctor` printed as JSON.
struct DoctorRun {
    struct Check: Decodable, Equatable {
        var name: String
        var status: String
        var detail: String
        var fix: String?
    }
    private struct Body: Decodable { var checks: [Check] }

    let code: Int32
    let text: String
    let checks: [Check]

    /// Runs it in a directory of the test's own, without what the tests themselves run in.
    init(
        _ arguments: [String] = [], in directory: TemporaryDirectory, environment: [String: String] = [:],
        wrapper: [String] = []
    ) throws {
        let path = directory.path
        let variables = [
            "WORKSPACE_AGENT_HTTP_SOCKET": "\(path)/http.sock", "CODER_AGENT_SOCKET_PATH": "\(path)/agent.sock",
            "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": "\(path)/boundary.sock",
            "WORKSPACE_AGENT_STATE_DIR": "\(path)/state", "CODER_AGENT_LOG_DIR": "\(path)/log", "CODER_AGENT_URL": "",
            "CODER_AGENT_TOKEN": "", "CODER_AGENT_TOKEN_FILE": "", "CODER_PROC_NICE_SCORE": "",
            "WORKSPACE_AGENT_DOCTOR_OUTPUT": "json",
        ]
        let result = try CommandResult.of(
            wrapper + [DaemonProcess.binary, "doctor"] + arguments,
            environment: variables.merging(environment) { _, new in new })
        (code, text) = (result.code, result.output + result.errors)
        checks = try JSONDecoder().decode(Body.self, from: Data(result.output.utf8)).checks
        for check in checks {
            #expect((check.status == "ok") == (check.fix == nil), "\(check)")
            #expect(!check.detail.isEmpty && check.fix != "")
        }
        #expect(code == (checks.contains { $0.status == "error" } ? 1 : 0))
        #expect(Set(checks.map(\.name)).count == checks.count)
    }

    subscript(name: String) -> Check {
        checks.first { $0.name == name } ?? Check(name: name, status: "missing", detail: text)
    }
}

/// `workspace-agent doctor` as it is built, against real daemons, control planes and file systems.
@Suite("Doctor", .blocking, .timeLimit(.minutes(5))) struct DoctorTests {
    @Test func aDaemonThatRunsIsFoundByEachSocket() async throws {
        let daemon = try DaemonProcess()
        let report = try DoctorRun(in: daemon.directory)
        #expect(report["http-socket"].detail.contains("\(daemon.socket): the daemon is ok; control plane: standalone"))
        #expect(report["agent-socket"].status == "ok")
        #expect(report["boundary-socket"].status == "ok")
        #expect(report["control-plane-url"].detail.hasPrefix("standalone"))
        #expect(report["state-directory"].status == "ok")
        for name in ["git", "git-ssh", "libgit2", "sqlite", "shell", "inotify", "open-files", "cgroup"] {
            #expect(["ok", "warning"].contains(report[name].status), "\(report[name])")
        }
        #expect(try await daemon.stop() == 0)
        let after = try DoctorRun(in: daemon.directory)
        for name in ["http-socket", "agent-socket", "boundary-socket"] {
            #expect(after[name].status == "warning" && after[name].fix?.contains("workspace-agent agent") == true)
        }
    }

    @Test func theTableIsForPeople() throws {
        let directory = try TemporaryDirectory()
        let result = try CommandResult.ofAgent(
            "doctor", "--http-socket", "\(directory.path)/http.sock", environment: ["CODER_AGENT_URL": ""])
        let lines = result.output.split(separator: "\n")
        let index = try #require(lines.firstIndex { $0.hasPrefix("warning  http-socket  ") })
        #expect(lines[index].contains("\(directory.path)/http.sock is not there"))
        #expect(lines[lines.index(after: index)].hasPrefix("    fix: start the daemon"))
        #expect(!result.output.contains("\u{1B}"))
    }

    @Test func badUsage() throws {
        #expect(try CommandResult.ofAgent("doctor", "--output", "xml").code == 2)
        #expect(try CommandResult.ofAgent("doctor", "--state-dir", "relative").code == 2)
    }

    /// Something other than the daemon in the place of its sockets.
    @Test func whatIsInTheWayIsAnError() throws {
        let directory = try TemporaryDirectory()
        try Data().write(to: URL(fileURLWithPath: "\(directory.path)/http.sock"))
        let report = try DoctorRun(in: directory)
        #expect(report["http-socket"].status == "error")
        #expect(report["http-socket"].detail.contains("is not a socket"))
        unlink("\(directory.path)/http.sock")
        // It takes connections and never answers.
        let silent = try UnixListener.bind(path: "\(directory.path)/http.sock")
        let other = try UnixListener.bind(path: "\(directory.path)/agent.sock")
        let hanging = try DoctorRun(in: directory)
        #expect(hanging["http-socket"].status == "error" && hanging["http-socket"].detail.contains("no answer in time"))
        #expect(hanging["agent-socket"].status == "error" && hanging["agent-socket"].detail.contains("did not answer"))
        silent.remove()
        other.remove()
    }

    @Test(.enabled(if: Privileges.isRoot, "needs root, to become another user"))
    func aSocketOfAnotherUserIsAnError() async throws {
        let directory = try Privileges.directoryOfNobody()
        let daemon = try DaemonProcess(wrapper: Privileges.asNobody, directory: directory)
        let report = try DoctorRun(in: directory)
        #expect(report["http-socket"].status == "error")
        #expect(report["http-socket"].detail.contains("is served by uid \(Privileges.nobody)"))
        #expect(report["http-socket"].fix?.contains("as the daemon's user") == true)
        #expect(report["state-directory"].detail.contains("belongs to uid \(Privileges.nobody)"))
        let own = try DoctorRun(in: directory, wrapper: Privileges.asNobody)
        #expect(own["http-socket"].status == "ok" && own["state-directory"].status == "ok")
        #expect(try await daemon.stop() == 0)
    }

    @Test func aPathWithoutGitAndSSH() throws {
        let directory = try TemporaryDirectory()
        let report = try DoctorRun(in: directory, environment: ["PATH": directory.path])
        #expect(report["git"].status == "warning" && report["git"].detail.contains("no git on PATH"))
        #expect(!report["git-ssh"].detail.contains("OpenSSH's client"))
        #expect(report["git-ssh"].detail.contains("libssh2"))
        #expect(report["portabledesktop"].status == "warning")
    }

    // MARK: The disk

    private func mount(_ options: String, _ path: String) throws {
        try #require(
            CommandResult.of(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path]).code == 0, "cannot mount \(path)")
    }

    @Test(.enabled(if: Privileges.isRoot, "mounting needs root")) func aFullDiskIsFoundAndMended() async throws {
        let directory = try TemporaryDirectory()
        let state = "\(directory.path)/state"
        mkdir(state, 0o700)
        try mount("size=50m,mode=0700", state)
        defer { umount2(state, CInt(MNT_DETACH)) }
        let daemon = try DaemonProcess(directory: directory)
        let full = try DoctorRun(in: directory)
        #expect(full["disk"].status == "error" && full.code == 1)
        #expect(full["disk"].detail.contains("state directory \(state): "), "\(full["disk"])")
        #expect(full["disk"].fix?.contains("make room on the file system of \(state)") == true)
        // The daemon says the same.
        try await eventually("/healthz names it") {
            let health = try daemon.connect().request("GET", "/healthz").json
            let reasons = health["reasons"] as? [String] ?? []
            return health["status"] as? String == "degraded"
                && reasons.contains { $0.hasPrefix("disk: state directory \(state): ") && $0.contains("make room") }
        }
        #expect(try DoctorRun(in: directory)["http-socket"].status == "warning")
        try mount("remount,size=20g,nr_inodes=20", state)
        let crowded = try DoctorRun(in: directory)
        #expect(crowded["disk"].detail.contains("of 20 inodes free") && crowded["disk"].status != "ok")
        try mount("remount,size=20g,nr_inodes=1000000", state)
        #expect(!(try DoctorRun(in: directory)["disk"].fix ?? "").contains(state))
        #expect(try await daemon.stop() == 0)
    }

    @Test(.enabled(if: HangingFileSystem.isAllowed, "needs FUSE")) func aMountThatHangsIsNotWaitedFor() throws {
        let directory = try TemporaryDirectory()
        mkdir("\(directory.path)/log", 0o700)
        // It hangs until it is unmounted: that there is a report says that it was not waited for.
        let hanging = try HangingFileSystem(over: "\(directory.path)/log")
        defer { hanging.unmount() }
        let report = try DoctorRun(in: directory)
        #expect(report["disk"].status == "error")
        #expect(report["disk"].detail.contains("log directory \(directory.path)/log: the file system does not answer"))
        hanging.unmount()
        #expect(!(try DoctorRun(in: directory)["disk"].detail).contains("does not answer"))
    }

    @Test(.enabled(if: HangingFileSystem.isAllowed, "needs FUSE")) func aStateDirectoryThatHangsIsNotWaitedFor() throws
    {
        let directory = try TemporaryDirectory()
        mkdir("\(directory.path)/state", 0o700)
        let hanging = try HangingFileSystem(over: "\(directory.path)/state")
        defer { hanging.unmount() }
        // It hangs until it is unmounted: that there is a report says that it was not waited for.
        let report = try DoctorRun(in: directory)
        let state = report["state-directory"]
        #expect(state.status == "error" && state.detail.contains("no result within 7 s"), "\(report.text)")
        for name in ["git", "shell", "inotify", "open-files"] {
            let check = report[name]
            #expect(check.status != "missing" && !check.detail.contains("no result"), "\(name) is not held up")
        }
    }
}
