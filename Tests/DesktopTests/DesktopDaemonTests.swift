import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The desktop of the built daemon.
@Suite(.timeLimit(.minutes(15)), .blocking) struct DesktopDaemonTests {
    private static func environment(_ directory: TemporaryDirectory) -> [String: String] {
        mkdir("\(directory.path)/tmp", 0o700)
        return [
            "PATH": "\(SessionWorld.fixtures):/usr/local/bin:/usr/bin:/bin",
            "PORTABLEDESKTOP_LOG": "\(directory.path)/calls", "TMPDIR": "\(directory.path)/tmp",
            "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": "\(directory.path)/boundary.sock",
        ]
    }

    private static func daemon(_ directory: TemporaryDirectory) throws -> DaemonProcess {
        try DaemonProcess(
            tcp: true, environment: environment(directory), directory: directory)
    }

    private static func ups(_ directory: TemporaryDirectory) -> Int {
        ProcFS.text("\(directory.path)/calls").split(separator: "\n").count { $0.contains(" up ") }
    }

    private static func isOurs(_ pid: pid_t, _ directory: TemporaryDirectory) -> Bool {
        ProcFS.runs(pid) && ProcFS.text("/proc/\(pid)/environ").contains("TMPDIR=\(directory.path)/tmp")
    }

    private static func processes(_ directory: TemporaryDirectory) throws -> [pid_t] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap { pid_t($0) }
            .filter { isOurs($0, directory) }
    }

    private static func action(_ daemon: DaemonProcess, _ json: String) throws -> RawConnection.Response {
        try daemon.connect().request("POST", "/api/v0/desktop/action", body: json)
    }

    @Test func aKilledDaemonsDesktopIsAdoptedAndEndsWithTheNext() async throws {
        let directory = try TemporaryDirectory()
        let first = try Self.daemon(directory)
        let moved = try Self.action(first, #"{"action":"mouse_move","coordinate":[123,45]}"#)
        #expect(moved.status == 200, "\(moved.text)")
        first.signal(SIGKILL)
        _ = first.waitBlocking()

        let second = try Self.daemon(directory)
        let position = try Self.action(second, #"{"action":"cursor_position"}"#)
        #expect(position.json["output"] as? String == "x=123,y=45", "\(position.text)")
        #expect(Self.ups(directory) == 1)
        _ = try await second.logged("adopted the desktop")
        #expect(try await second.stop() == 0)
        let left = try Self.processes(directory)
        #expect(left.isEmpty, "\(left)")
        let files = try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp")
        #expect(files.isEmpty && access("\(directory.path)/state/desktop", F_OK) != 0, "\(files)")
    }

    /// The daemon's own umask is strict; what is started on the desktop has the one that the daemon was started with.
    @Test func programsOnTheDesktopHaveTheUmaskOfTheStart() async throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(
            environment: Self.environment(directory),
            wrapper: ["/bin/sh", "-c", #"umask 022; exec "$0" "$@""#], directory: directory)
        let file = "\(directory.path)/written"
        let opened = try Self.action(daemon, "{\"action\":\"open\",\"text\":\"echo hello >\(file)\"}")
        #expect(opened.status == 200, "\(opened.text)")
        try await eventually("the file is written") { ProcFS.text(file) == "hello\n" }
        #expect(mode(file) == 0o644)
        // What a person starts from the window manager's menu has that of the window manager.
        for name in ["openbox", "Xtigervnc"] {
            try await eventually("\(name) with umask 022") {
                try Self.processes(directory).contains {
                    ProcFS.text("/proc/\($0)/comm").hasPrefix(name)
                        && ProcFS.text("/proc/\($0)/status").contains("\nUmask:\t0022\n")
                }
            }
        }
        #expect(mode("\(directory.path)/state/desktop") == 0o700)
        #expect(mode("\(directory.path)/state/desktop/session.json") == 0o600)
        #expect(try await daemon.stop() == 0)
    }

    @Test func theCommandsStartShowAndPicture() async throws {
        let directory = try TemporaryDirectory()
        let daemon = try Self.daemon(directory)
        let start = try CommandResult.ofAgent("desktop", "start", "--http-socket", daemon.socket)
        #expect(start.code == 0 && start.output.hasPrefix("desktop 1920x1080, VNC on 127.0.0.1:"), "\(start)")
        let file = "\(directory.path)/shot.png"
        let shot = try CommandResult.ofAgent(
            "desktop", "screenshot", "--http-socket", daemon.socket, "--width", "320", "--height", "180", file)
        let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        #expect(shot.code == 0 && bytes.count > 24 && bytes[1...3].elementsEqual("PNG".utf8), "\(shot)")
        #expect(bytes[16..<24].elementsEqual([0, 0, 1, 64, 0, 0, 0, 180]))
        let view = try CommandResult.ofAgent("desktop", "view", "--no-open", "--http-socket", daemon.socket)
        #expect(
            view.output == "http://127.0.0.1:\(daemon.port)/api/v0/desktop/viewer?token=\(daemon.token)\n", "\(view)")
        let unreachable = try CommandResult.ofAgent("desktop", "start", "--http-socket", "\(directory.path)/none")
        #expect(
            unreachable.code == 1 && unreachable.errors.contains("cannot reach the agent at \(directory.path)/none"))
        let half = try CommandResult.ofAgent("desktop", "screenshot", "--width", "3", file)
        #expect(half.code == 2, "\(half)")
        #expect(try await daemon.stop() == 0)
        #expect(try Self.processes(directory).isEmpty)
    }
}
