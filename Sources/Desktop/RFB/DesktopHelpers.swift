import AgentCore
import CPlatform
import Glibc
import Synchronization

/// Helper programs for what RFB cannot do: xdotool finds the pointer, xclip sets selections. Both are optional.
struct DesktopHelpers: Sendable {
    private let runner: (any CommandRunner)?
    private let environment: [String: String]
    private let executor: (any TaskExecutor)?

    /// - Parameters:
    ///   - display: the X display, such as `:3`.
    ///   - environment: of the programs, which are looked up in its PATH.
    ///   - executor: waits for them; nil is the runtime's pool.
    init(
        _ runner: (any CommandRunner)?, display: String, environment: [String: String], executor: (any TaskExecutor)?
    ) {
        self.runner = runner
        self.executor = executor
        self.environment = environment.merging(["DISPLAY": display]) { _, new in new }
    }

    /// nil without a working xdotool.
    func pointerPosition(_ link: RFBLink) throws -> DesktopPoint? {
        guard let text = try run(["xdotool", "getmouselocation", "--shell"], link, readsOutput: true) else {
            return nil
        }
        var values: [Substring: Int] = [:]
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=", maxSplits: 1)
            if parts.count == 2 { values[parts[0]] = Int(parts[1]) }
        }
        guard let x = values["X"], let y = values["Y"] else { return nil }
        return DesktopPoint(x: x, y: y)
    }

    /// Puts a text on the X selections, for servers without the extended clipboard.
    func setSelections(_ text: String, _ link: RFBLink) throws {
        // Helpers have /dev/null as stdin, so xclip reads the text from a file, and has read it when it returns.
        var path = Array("\(environment["TMPDIR"] ?? "/tmp")/wa-paste-XXXXXX".utf8CString)
        let descriptor = mkstemp(&path)
        guard descriptor >= 0 else {
            let why = errnoText(errno)
            throw DesktopError(
                .failed, "No temporary file for what is pasted in \(environment["TMPDIR"] ?? "/tmp"): \(why)")
        }
        wa_set_cloexec(descriptor)
        defer { unlink(path) }
        let bytes = Array(text.utf8)
        let written = write(descriptor, bytes, bytes.count)
        close(descriptor)
        guard written == bytes.count else { throw DesktopError(.failed, "What is pasted could not be written.") }
        for selection in ["primary", "clipboard"] {
            let set = ["xclip", "-in", "-selection", selection, path.text]
            guard try run(set, link, readsOutput: false) != nil else {
                throw DesktopError(
                    .failed, "The text has characters that the keyboard lacks: install the Debian package xclip.")
            }
            // xclip returns before it owns the selection.
            let get = ["xclip", "-out", "-selection", selection, "-target", "UTF8_STRING"]
            let deadline = ContinuousClock.now + DesktopLimits.helperBudget
            while try run(get, link, readsOutput: true) != text {
                guard ContinuousClock.now < deadline else {
                    throw DesktopError(.failed, "What is to be pasted does not get onto the clipboard.")
                }
                try link.pause(.milliseconds(20))
            }
        }
    }

    private final class Outcome: Sendable {
        /// nil until the program ended; a nil inside is a failure.
        let value = Mutex<String??>(nil)
        let output = Mutex<[UInt8]>([])
    }

    /// Runs a program while the connection goes on being served.
    /// - Returns: its stdout; nil when it cannot be started or fails.
    private func run(_ arguments: [String], _ link: RFBLink, readsOutput: Bool) throws -> String? {
        guard let runner else { return nil }
        let command = Command(arguments: arguments, environment: environment, workdir: "/")
        let outcome = Outcome()
        let inbox = link.inbox
        let task = Task(executorPreference: executor) {
            let text = await Self.text(of: command, runner, outcome, readsOutput)
            outcome.value.withLock { $0 = .some(text) }
            inbox.wake()
        }
        defer { task.cancel() }
        try link.wait(
            until: .now + DesktopLimits.helperBudget,
            late: { DesktopError(.failed, "\(arguments.first ?? "") does not finish.") }
        ) { outcome.value.withLock { $0 != nil } }
        return outcome.value.withLock { $0 ?? nil }
    }

    private static func text(
        of command: Command, _ runner: any CommandRunner, _ outcome: Outcome, _ readsOutput: Bool
    ) async -> String? {
        let started = try? await runner.start(command) { stream, bytes in
            guard stream == .stdout else { return }
            outcome.output.withLock { if $0.count <= DesktopLimits.pasteBytes { $0 += bytes } }
        }
        guard let started else { return nil }
        let exit = await withTaskCancellationHandler {
            let exit = await started.exit()
            // xclip keeps a child running, with the outputs open, for as long as it owns the selection.
            if readsOutput { await started.outputEnd() } else { started.abandonOutput() }
            return exit
        } onCancel: {
            started.signal(SIGKILL)
            started.abandonOutput()
        }
        guard exit == .exited(0) else { return nil }
        return String(decoding: outcome.output.withLock { $0 }, as: UTF8.self)
    }
}
