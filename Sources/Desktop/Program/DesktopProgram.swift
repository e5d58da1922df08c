import AgentCore
import FoundationEssentials

/// The subcommands of `portabledesktop` that drive the running desktop (docs/contracts/desktop.md#driving-it). Each
/// call is a process.
struct DesktopProgram: Sendable {
    let path: String
    let stateFile: String
    let environment: [String: String]
    let runner: any CommandRunner
    let limiter: TimeLimiter

    /// A PNG and its size.
    struct Picture: Sendable, Equatable {
        var png: [UInt8]
        var size: DesktopSize
    }

    /// Runs a subcommand until it exits, also when the calling task is cancelled, so that it releases what it
    /// presses.
    /// - Parameters:
    ///   - subcommand: its words.
    ///   - flags: precede `--`.
    ///   - arguments: follow `--`; any text.
    /// - Returns: its stdout.
    /// - Throws: ``DesktopError``: `.failed` when it fails, with its stderr; `.connectionLost` when it does not
    ///   finish in time.
    @discardableResult
    func run(
        _ subcommand: String..., flags: [String] = [], arguments: [String] = [],
        within budget: Duration = DesktopLimits.programBudget
    ) async throws -> [UInt8] {
        let name = "portabledesktop \(subcommand.joined(separator: " "))"
        let line = [path] + subcommand + ["--state-file", stateFile] + flags + (arguments.isEmpty ? [] : ["--"])
        let command = Command(arguments: line + arguments, environment: environment, workdir: "/")
        // An unstructured task is not cancelled with the caller.
        return try await Task(executorPreference: limiter.executor) {
            let run: ProgramRun
            do {
                run = try await ProgramRun.start(
                    command, by: runner, limiter, outputLimit: DesktopLimits.programOutputBytes)
            } catch {
                throw DesktopError(.failed, "\(name) cannot be run.", detail: "\(error)", cause: error)
            }
            let end = await run.end(by: limiter.clock.now() + budget)
            if case .exited = end {
                await run.drain()
                run.command.abandonOutput()
            } else {
                await run.kill(after: .zero, .seconds(1))
            }
            guard end == .exited(.exited(0)) else {
                throw DesktopError(
                    end == .overTime ? .connectionLost : .failed, "\(name) \(end.text(budget)).",
                    detail: run.output.errors)
            }
            return run.output.output
        }.value
    }

    /// - Parameter wanted: the size it is scaled to; nil is the desktop's own size.
    func picture(_ wanted: DesktopSize?) async throws -> Picture {
        struct Answer: Decodable { var data: String }
        var flags = ["--json"]
        if let wanted { flags += ["--target-width", "\(wanted.width)", "--target-height", "\(wanted.height)"] }
        let answer = try Self.decode(Answer.self, try await run("screenshot", flags: flags), of: "screenshot")
        guard let data = Data(base64Encoded: answer.data), let size = Self.size(ofPNG: data) else {
            throw DesktopError(.failed, "portabledesktop screenshot printed no PNG in \"data\".")
        }
        return Picture(png: [UInt8](data), size: size)
    }

    /// Where the pointer is.
    func pointer(within budget: Duration = DesktopLimits.programBudget) async throws -> DesktopPoint {
        struct Answer: Decodable {
            var x: Int
            var y: Int
        }
        let answer = try Self.decode(
            Answer.self, try await run("cursor", flags: ["--json"], within: budget), of: "cursor")
        return DesktopPoint(x: answer.x, y: answer.y)
    }

    private static func decode<T: Decodable>(_ type: T.Type, _ output: [UInt8], of name: String) throws -> T {
        var problem: (any Error)?
        // The whole output, else the last line that decodes, as with `up`.
        for line in [output[...]] + output.split(separator: UInt8(ascii: "\n")).reversed()
        where line.contains(UInt8(ascii: "{")) {
            do {
                return try JSONDecoder().decode(T.self, from: Data(line))
            } catch {
                problem = problem ?? error
            }
        }
        throw DesktopError(
            .failed, "portabledesktop \(name) printed no valid JSON.",
            detail: problem.map { "\($0)" }, cause: problem)
    }

    /// Read from the image's header (PNG, 11.2.2).
    static func size(ofPNG data: Data) -> DesktopSize? {
        let head = [UInt8](data.prefix(24))
        guard head.count == 24, head.starts(with: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
            head[12..<16].elementsEqual("IHDR".utf8)
        else { return nil }
        func side(_ bytes: ArraySlice<UInt8>) -> Int { bytes.reduce(0) { $0 << 8 | Int($1) } }
        let size = DesktopSize(width: side(head[16..<20]), height: side(head[20..<24]))
        return size.width > 0 && size.height > 0 ? size : nil
    }
}
