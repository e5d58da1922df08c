import AgentCore
import Glibc
import Logging

/// What a program reads as its stdin.
public enum ProgramInput: Sendable, Hashable {
    /// /dev/null.
    case nothing
    case pipe
    /// A terminal, which its outputs go to, too.
    case terminal(TerminalSize)
}

/// Rows and columns of a terminal.
public struct TerminalSize: Sendable, Hashable, Codable {
    public var rows: UInt16
    public var cols: UInt16

    public init(rows: UInt16, cols: UInt16) {
        self.rows = rows
        self.cols = cols
    }
}

/// A started program whose outputs come through pipes, or through a terminal. The receiver closes the descriptors, none
/// of which blocks.
struct PipedProcess {
    var process: LaunchedProcess
    var stdout: CInt
    /// The same as `stdout` where both outputs share a pipe.
    var stderr: CInt
    /// Where its stdin is written; nil when that is /dev/null.
    var stdin: CInt?
}

extension Launcher {
    /// Starts a program with pipes, or a terminal, as its outputs. Blocks as ``launch(_:)`` does.
    /// - Parameter separatesErrors: stderr gets a pipe of its own; not on a terminal.
    func launch(
        _ command: Command, separatesErrors: Bool, input: ProgramInput = .nothing, logger: Logger
    ) throws(LaunchError) -> PipedProcess {
        if case .terminal(let size) = input { return try launch(command, on: size, logger) }
        let stdout = try Ends { () throws(CoreError) in try makePipe() }
        if separatesErrors {
            let stderr = try Ends { () throws(CoreError) in try makePipe() }
            let process = try start(command, nil, stdout.write.number, stderr.write.number, logger)
            return PipedProcess(process: process, stdout: stdout.read.take(), stderr: stderr.read.take())
        }
        guard input == .pipe else {
            let process = try start(command, nil, stdout.write.number, stdout.write.number, logger)
            let output = stdout.read.take()
            return PipedProcess(process: process, stdout: output, stderr: output)
        }
        let stdin = try Ends { () throws(CoreError) in try makeInputPipe() }
        let process = try start(command, stdin.read.number, stdout.write.number, stdout.write.number, logger)
        let output = stdout.read.take()
        return PipedProcess(process: process, stdout: output, stderr: output, stdin: stdin.write.take())
    }

    private func launch(
        _ command: Command, on size: TerminalSize, _ logger: Logger
    ) throws(LaunchError) -> PipedProcess {
        let ends = try Ends { () throws(CoreError) in try makeTerminal(rows: size.rows, columns: size.cols) }
        // A descriptor of its own for writing, since the reactor knows each once.
        let stdin = OwnedDescriptor(fcntl(ends.read.number, F_DUPFD_CLOEXEC, 3))
        guard stdin.number >= 0 else {
            throw LaunchError(
                stage: .resources, errno: errno, description: "cannot open a terminal: \(errnoText(errno))")
        }
        let theirs = ends.write.number
        let process = try start(command, theirs, theirs, theirs, onTerminal: true, logger)
        let output = ends.read.take()
        return PipedProcess(process: process, stdout: output, stderr: output, stdin: stdin.take())
    }

    private func start(
        _ command: Command, _ stdin: CInt?, _ stdout: CInt, _ stderr: CInt, onTerminal: Bool = false, _ logger: Logger
    ) throws(LaunchError) -> LaunchedProcess {
        var request = LaunchRequest(
            arguments: command.arguments, environment: command.environment, workdir: command.workdir, stdin: stdin,
            stdout: stdout, stderr: stderr)
        request.onTerminal = onTerminal
        let process = try launch(request)
        if let problem = process.priorityProblem {
            logger.warning("priority not set", metadata: ["pid": "\(process.pid)", "error": "\(problem)"])
        }
        return process
    }
}

/// Both ends of a pipe, or ours and the program's of a terminal.
private struct Ends: ~Copyable {
    let read: OwnedDescriptor
    let write: OwnedDescriptor

    init(_ make: () throws(CoreError) -> (CInt, CInt)) throws(LaunchError) {
        do {
            let ends = try make()
            read = OwnedDescriptor(ends.0)
            write = OwnedDescriptor(ends.1)
        } catch {
            var number: Int32 = 0
            if case .system(let code) = error.code { number = code }
            throw LaunchError(stage: .resources, errno: number, description: error.message)
        }
    }
}
