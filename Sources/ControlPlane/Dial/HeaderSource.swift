import AgentCore
import NIOHTTP1
import Synchronization

/// The extra headers of every request to the control plane: those of the flags, and what the header
/// command prints, which is run anew each time.
package struct HeaderSource: Sendable {
    private let fixed: HTTPHeaders
    private let command: String?
    private let runner: any CommandRunner
    private let environment: [String: String]
    private let clock: AgentClock
    private let limit: Duration

    package init(
        _ configuration: LinkConfiguration, runner: any CommandRunner, environment: [String: String], clock: AgentClock
    ) {
        fixed = configuration.headers
        command = configuration.headerCommand
        self.runner = runner
        self.environment = environment
        self.clock = clock
        limit = configuration.times.headerCommand
    }

    /// - Throws: ``ControlPlaneError`` `.configuration` or `.timeout`; its message has nothing that
    ///   the command printed to stdout.
    package func headers() async throws -> HTTPHeaders {
        guard let command else { return fixed }
        var headers = fixed
        let text = try await run(command)
        for line in text.split(whereSeparator: \.isNewline) where !line.allSatisfy(\.isWhitespace) {
            let field = try ExtraHeader.parse(line, what: "--agent-header-command")
            headers.add(name: field.name, value: field.value)
        }
        guard headers.count <= DialLimits.extraHeaders else {
            throw problem("more than \(DialLimits.extraHeaders) headers in all")
        }
        return headers
    }

    private struct Output {
        var text: [UInt8] = []
        var isTooLong = false
    }

    /// Shared with the runner's thread.
    private final class Collector: Sendable {
        let output = Mutex(Output())
    }

    private func run(_ command: String) async throws -> String {
        let collector = Collector()
        let running: any RunningCommand
        do {
            running = try await runner.start(
                Command(arguments: ["/bin/sh", "-c", command], environment: environment, workdir: "/")
            ) { stream, bytes in
                collector.output.withLock { output in
                    switch stream {
                    case .stdout where output.text.count + bytes.count > DialLimits.headerCommandBytes:
                        output.isTooLong = true
                    case .stdout: output.text.append(contentsOf: bytes)
                    // With `set -x` it would be the headers themselves, and errors are shown by /healthz.
                    case .stderr: break
                    }
                }
            }
        } catch {
            throw ControlPlaneError(.configuration, "--agent-header-command could not be started", cause: error)
        }
        let exit = try await wait(for: running)
        let output = collector.output.withLock { $0 }
        switch exit {
        case .exited(0): break
        case .exited(let code): throw problem("exited with \(code); run it by hand to see why")
        case .signalled(let signal): throw problem("was ended by signal \(signal)")
        }
        guard !output.isTooLong else { throw problem("printed more than \(DialLimits.headerCommandBytes) bytes") }
        guard let text = String(validating: output.text, as: UTF8.self) else { throw problem("printed no UTF-8") }
        return text
    }

    private func wait(for running: any RunningCommand) async throws -> CommandExit {
        let timeout = ControlPlaneError(.timeout, "--agent-header-command took longer than \(limit)")
        return try await withTimeLimit(limit, clock, timeout) {
            // Cancellation must end the wait, so it ends the command.
            await withTaskCancellationHandler {
                let exit = await running.exit()
                await running.outputEnd()
                return exit
            } onCancel: {
                running.signal(9)
                running.abandonOutput()
            }
        }
    }

    private func problem(_ message: String) -> ControlPlaneError {
        ControlPlaneError(.configuration, "--agent-header-command \(message)")
    }
}
