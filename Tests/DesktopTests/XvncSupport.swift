import AgentCore
import AgentProc
import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Logging
import NIOPosix
import Synchronization

@testable import Desktop

/// A real Xtigervnc on a free display, with whatever programs a test runs on it. All end with the
/// value.
final class Xvnc: Sendable {
    let display: String
    let pid: pid_t
    let directory: TemporaryDirectory
    var socket: String { "\(directory.path)/rfb" }
    var endpoint: RFBEndpoint { .unix(socket) }
    private let programs = Mutex<[pid_t]>([])
    // Apart from the threads on which test bodies block.
    private static let helpers = BlockingExecutor(threads: 2)

    init(_ geometry: String = "1280x800", arguments: [String] = []) throws {
        directory = try TemporaryDirectory()
        var fds: [CInt] = [0, 0]
        guard wa_pipe(&fds) == 0 else { throw DeadlineExceeded(what: "pipe") }
        defer { close(fds[0]) }
        let words =
            ["Xtigervnc", "-displayfd", "3", "-geometry", geometry, "-depth", "24", "-SecurityTypes", "None"]
            + ["-localhost=1", "-AlwaysShared=1", "-UseBlacklist=0", "-rfbport=-1", "-noreset"]
            + ["-rfbunixpath=\(directory.path)/rfb"] + arguments
        pid = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>&1", "\(directory.path)/log"] + words,
            ProcessInfo.processInfo.environment, descriptors: [fds[1]])
        close(fds[1])
        var number: [UInt8] = []
        var byte: UInt8 = 0
        // The read end does not block.
        var item = pollfd(fd: fds[0], events: Int16(POLLIN), revents: 0)
        while poll(&item, 1, 60_000) == 1, read(fds[0], &byte, 1) == 1, byte != UInt8(ascii: "\n") {
            number.append(byte)
        }
        display = ":\(String(decoding: number, as: UTF8.self))"
        guard !number.isEmpty else {
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
            throw DeadlineExceeded(what: "Xtigervnc: \(ProcFS.text("\(directory.path)/log"))")
        }
    }

    /// A display of another server, for programs on it.
    init(on display: String) throws {
        directory = try TemporaryDirectory()
        self.display = display
        pid = 0
    }

    deinit {
        for program in programs.withLock({ $0 }) {
            kill(program, SIGKILL)
            waitpid(program, nil, 0)
        }
        guard pid > 0 else { return }
        kill(pid, SIGCONT)
        kill(pid, SIGTERM)
        var patience = 1_000
        var status: CInt = 0
        while waitpid(pid, &status, WNOHANG) == 0, patience > 0 {
            poll(nil, 0, 10)
            patience -= 1
            if patience == 0 {
                kill(pid, SIGKILL)
                waitpid(pid, &status, 0)
            }
        }
        // Left behind by one that was killed. Another may have the display of one that ended by itself.
        if status & 0x7f == SIGKILL { SessionFiles.removeSocket(ofDisplay: display) }
    }

    func driver(
        isFresh: Bool = true, commands: (any CommandRunner)? = nil, hasClipboard: Bool = true,
        knowsDisplay: Bool = true
    ) async throws -> RFBDriver {
        var options = RFBDriver.Options()
        options.display = knowsDisplay ? display : nil
        options.helpers = commands.map {
            DesktopHelpers(
                $0, display: display, environment: ["PATH": "/usr/bin:/bin"], clock: AgentClock(ContinuousClock()),
                executor: Self.helpers)
        }
        (options.isFresh, options.executor) = (isFresh, Self.helpers)
        (options.budget, options.usesClipboardMessages) = (.seconds(30), hasClipboard)
        return try await RFBDriver.connect(to: endpoint, options)
    }

    /// Runs a program on the display to its end; its stdout.
    @discardableResult
    func run(_ arguments: String...) throws -> String {
        let result = try CommandResult.of(arguments, environment: ["DISPLAY": display])
        guard result.code == 0 else { throw DeadlineExceeded(what: "\(arguments): \(result.errors)") }
        return result.output
    }

    /// Starts a program on the display. Its output goes to a file.
    @discardableResult
    func start(_ arguments: [String], output: String? = nil) throws -> pid_t {
        var environment = ProcessInfo.processInfo.environment
        environment["DISPLAY"] = display
        environment["LC_ALL"] = "C.UTF-8"
        let pid = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec \"$@\" >\"$0\" 2>/dev/null", output ?? "/dev/null"] + arguments, environment)
        programs.withLock { $0.append(pid) }
        return pid
    }

    /// Waits until the window manager handles what it is asked: openbox loses a window that is mapped while it starts.
    func windowManager() async throws {
        for desktop in ["1", "0"] {
            try await eventually("desktop \(desktop)") {
                _ = try? run("xdotool", "set_desktop", desktop)
                return try run("xprop", "-root", "_NET_CURRENT_DESKTOP").hasSuffix("= \(desktop)\n")
            }
        }
    }

    /// Where the X server has the pointer.
    func pointer() throws -> DesktopPoint {
        let words = try run("xdotool", "getmouselocation").split(separator: " ")
        func number(_ name: String) -> Int? {
            words.first { $0.hasPrefix("\(name):") }.flatMap { Int($0.dropFirst(name.count + 1)) }
        }
        guard let x = number("x"), let y = number("y") else { throw DeadlineExceeded(what: "\(words)") }
        return DesktopPoint(x: x, y: y)
    }

    /// A terminal under the pointer that writes what it gets to a file.
    func terminal() async throws -> Terminal {
        let terminal = Terminal(file: "\(directory.path)/typed", ready: "\(directory.path)/ready")
        let script = "stty raw -echo; touch '\(terminal.ready)'; exec cat >'\(terminal.file)'"
        try start(["xterm", "-u8", "-fn", "fixed", "-geometry", "100x30+0+0", "-e", "/bin/sh", "-c", script])
        try await eventually("a terminal") { access(terminal.ready, F_OK) == 0 }
        try run("xdotool", "search", "--sync", "--onlyvisible", "--class", "xterm")
        return terminal
    }

    /// A window of 600 by 400 pixels at the upper left that writes the events it gets.
    func events() async throws -> EventWindow {
        let window = EventWindow(file: "\(directory.path)/events")
        try start(["stdbuf", "-oL", "xev", "-geometry", "600x400+0+0"], output: window.file)
        try run("xdotool", "search", "--sync", "--onlyvisible", "--name", "Event Tester")
        try await eventually("an exposed window") { window.text.contains("Expose event") }
        return window
    }
}

struct Terminal: Sendable {
    var file: String
    var ready: String

    /// What has arrived, line ends as \n.
    var text: String { ProcFS.text(file).replacingOccurrences(of: "\r", with: "\n") }

    /// Returns once the text is exactly this, and fails with what it is at the deadline.
    func receives(_ expected: String) async throws {
        do {
            // More would be wrong, too.
            try await eventually("the text", within: .seconds(120)) { text.utf8.count >= expected.utf8.count }
        } catch {}
        let found = text
        guard !found.utf8.elementsEqual(expected.utf8) else { return }
        let same = zip(found.unicodeScalars, expected.unicodeScalars).prefix { $0 == $1 }.count
        throw DeadlineExceeded(
            what:
                "\(expected.unicodeScalars.count) characters; got \(found.unicodeScalars.count), alike up to \(same): "
                + "\(String(found.unicodeScalars.dropFirst(same).prefix(20)).debugDescription) for "
                + "\(String(expected.unicodeScalars.dropFirst(same).prefix(20)).debugDescription)")
    }
}

struct EventWindow: Sendable {
    var file: String
    var text: String { ProcFS.text(file) }

    /// The numbers of the buttons that were pressed.
    var presses: [Int] { numbers("ButtonPress", field: "button ") }
    var releases: [Int] { numbers("ButtonRelease", field: "button ") }

    /// Keysym names, in order.
    func keys(_ kind: String) -> [String] {
        blocks(kind).compactMap { block in
            guard let range = block.range(of: "(keysym "), let comma = block[range.upperBound...].firstIndex(of: ",")
            else { return nil }
            let rest = block[block.index(comma, offsetBy: 2)...]
            return String(rest.prefix { $0 != ")" })
        }
    }

    private func numbers(_ kind: String, field: String) -> [Int] {
        blocks(kind).compactMap { block in
            block.range(of: field).flatMap { Int(block[$0.upperBound...].prefix { $0.isNumber }) }
        }
    }

    /// What xev wrote of the events of a kind. It writes line by line: an event without its last common
    /// field is one that is being written.
    func blocks(_ kind: String) -> [String] {
        text.components(separatedBy: "\n\n").filter { $0.contains("\(kind) event") && $0.contains("same_screen ") }
    }
}

/// The real launcher of programs.
final class TestLauncher: Sendable {
    let launcher: CommandLauncher
    private let reactor: Reactor
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let pool = BlockingPool(threads: 2)

    init() throws {
        reactor = try Reactor()
        _ = reactor.start()
        launcher = CommandLauncher(
            launcher: try Launcher(), reactor: reactor, pool: pool, executor: EventLoopTaskExecutor(group.next()),
            clock: AgentClock(ContinuousClock()), metrics: MetricsRegistry(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    func stop() async {
        await launcher.shutdown()
        await reactor.stop()
        await pool.shutdown()
        try? await group.shutdownGracefully()
    }
}

/// Runs a test on threads that may block, with a server and a driver that are ended afterwards.
func withDesktop(
    _ geometry: String = "1280x800", isFresh: Bool = true, commands: Bool = false, hasClipboard: Bool = true,
    knowsDisplay: Bool = true, arguments: [String] = [],
    _ body: @escaping @Sendable (Xvnc, RFBDriver) async throws -> Void
) async throws {
    try await withTaskExecutorPreference(BlockingExecutor.shared) {
        let xvnc = try Xvnc(geometry, arguments: arguments)
        let launcher = commands ? try TestLauncher() : nil
        let driver = try await xvnc.driver(
            isFresh: isFresh, commands: launcher?.launcher, hasClipboard: hasClipboard, knowsDisplay: knowsDisplay)
        let result = await Result { try await body(xvnc, driver) }
        await driver.close()
        await launcher?.stop()
        try result.get()
    }
}

extension Result where Failure == any Error {
    init(_ body: () async throws -> Success) async {
        do { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

/// An action that is decoded from JSON, as requests are.
func action(_ json: String) throws -> DesktopAction { try DesktopAction.decode(.init(string: json)) }

func action(_ name: String, text: String?) throws -> DesktopAction {
    let body = try JSONSerialization.data(withJSONObject: ["action": name, "text": text as Any])
    return try DesktopAction.decode(.init(bytes: body))
}

extension DesktopDriver {
    @discardableResult
    func perform(_ action: DesktopAction) async throws -> ActionResult {
        guard case .driver(let work) = action.work else { throw DeadlineExceeded(what: "a driver for \(action.name)") }
        var result = try await perform(work, in: action.space)
        result.output = result.output ?? "\(action.name) action performed"
        return result
    }

    @discardableResult
    func perform(_ json: String) async throws -> ActionResult { try await perform(try action(json)) }

    func type(_ text: String) async throws { try await perform(try action("type", text: text)) }
}

extension DesktopSession {
    func perform(_ action: DesktopAction) async throws -> ActionResult {
        var result: ActionResult
        switch action.work {
        case .driver(let work): result = try await perform(work, in: action.space)
        case .screen(let work): result = try await perform(work, in: action.space)
        case .wait, .open: throw DeadlineExceeded(what: "a session for \(action.name)")
        }
        result.output = result.output ?? "\(action.name) action performed"
        return result
    }
}
