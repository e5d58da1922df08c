import AgentCore
import CPlatform
import Glibc
import Synchronization

/// xclip, for a clipboard that the VNC server does not serve. It is optional.
package struct DesktopHelpers: Sendable {
    private let runner: any CommandRunner
    private let environment: [String: String]
    private let limiter: TimeLimiter

    /// - Parameters:
    ///   - display: the X display, such as `:3`.
    ///   - environment: of the programs, which are looked up in its PATH.
    ///   - executor: waits for them; nil is the runtime's pool.
    package init(
        _ runner: any CommandRunner, display: String, environment: [String: String], clock: AgentClock,
        executor: (any TaskExecutor)?
    ) {
        self.runner = runner
        self.environment = environment.merging(["DISPLAY": display]) { _, new in new }
        limiter = TimeLimiter(clock: clock, executor: executor)
    }

    static func missing(_ what: String) -> DesktopError {
        DesktopError(.failed, "\(what): install the Debian package xclip.")
    }

    /// Puts a text on the X selections.
    /// - Throws: ``DesktopError``.
    func setSelections(_ text: String) async throws {
        // Programs have /dev/null as stdin, so xclip reads the text from a file, and has read it when it returns.
        var path = Array("\(environment["TMPDIR"] ?? "/tmp")/wa-paste-XXXXXX".utf8CString)
        let descriptor = mkstemp(&path)
        guard descriptor >= 0 else {
            let why = errnoText(errno)
            throw DesktopError(
                .failed, "No temporary file for the clipboard's text in \(environment["TMPDIR"] ?? "/tmp"): \(why)")
        }
        wa_set_cloexec(descriptor)
        defer { unlink(path) }
        let bytes = Array(text.utf8)
        let written = write(descriptor, bytes, bytes.count)
        close(descriptor)
        guard written == bytes.count else {
            throw DesktopError(.failed, "The clipboard's text could not be written to a file.")
        }
        for selection in Selection.allCases {
            guard try await run(["xclip", "-in", "-selection", selection.rawValue, path.text]) != nil else {
                throw Self.missing("The text cannot be put on the clipboard")
            }
            // xclip returns before it owns the selection.
            let deadline = limiter.clock.now() + DesktopLimits.helperBudget
            while try await self.text(of: selection) != text {
                guard limiter.clock.now() < deadline else {
                    throw DesktopError(.failed, "The text could not be copied to the clipboard.")
                }
                try await limiter.clock.sleep(.milliseconds(20))
            }
        }
    }

    /// The text of the clipboard, else of what is selected; empty when no program has one.
    /// - Throws: ``DesktopError``: `.tooLarge`, and `.failed` without xclip.
    func selectedText() async throws -> String {
        guard try await run(["xclip", "-version"]) != nil else { throw Self.missing("The clipboard cannot be read") }
        if let text = try await text(of: .clipboard) { return text }
        return try await text(of: .primary) ?? ""
    }

    private enum Selection: String, CaseIterable { case primary, clipboard }

    /// nil when no program has it.
    private func text(of selection: Selection) async throws -> String? {
        try await run(
            ["xclip", "-out", "-selection", selection.rawValue, "-target", "UTF8_STRING"], readsOutput: true)
    }

    /// - Returns: its stdout, where it is read; nil when it cannot be started or fails.
    private func run(_ arguments: [String], readsOutput: Bool = false) async throws -> String? {
        let command = Command(arguments: arguments, environment: environment, workdir: "/")
        let output = Output()
        let end = try await limiter.runUnlessCancelled(atMost: DesktopLimits.helperBudget) { [runner] in
            await Self.end(of: command, runner, output, readsOutput)
        }
        guard let end else {
            throw DesktopError(
                .failed, "The program that owns the clipboard does not send its text.",
                detail: "xclip waited \(DesktopLimits.helperBudget.components.seconds) s for it.")
        }
        guard end == .exited(0) else { return nil }
        let bytes = output.bytes.withLock { $0 }
        guard bytes.count <= DesktopLimits.clipboardBytes else { throw DesktopError.clipboardTooLarge }
        return String(decoding: bytes, as: UTF8.self)
    }

    private final class Output: Sendable {
        let bytes = Mutex<[UInt8]>([])
    }

    /// Status 127, as of a shell, when it cannot be started.
    private static func end(
        of command: Command, _ runner: any CommandRunner, _ output: Output, _ readsOutput: Bool
    ) async -> CommandExit {
        let started = try? await runner.start(command) { stream, bytes in
            guard stream == .stdout else { return }
            // One byte more than the limit shows that it was exceeded.
            output.bytes.withLock { if $0.count <= DesktopLimits.clipboardBytes { $0 += bytes } }
        }
        guard let started else { return .exited(127) }
        return await withTaskCancellationHandler {
            let exit = await started.exit()
            // xclip keeps a child running, with the outputs open, for as long as it owns the selection.
            if readsOutput { await started.outputEnd() } else { started.abandonOutput() }
            return exit
        } onCancel: {
            started.signal(SIGKILL)
            started.abandonOutput()
        }
    }
}

extension DesktopError {
    static let clipboardTooLarge = DesktopError(
        .tooLarge, "The clipboard has more than \(DesktopLimits.clipboardBytes) bytes of text.")
}
