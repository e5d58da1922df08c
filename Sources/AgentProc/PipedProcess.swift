import AgentCore
import Glibc
import Logging

/// A started program whose outputs come through pipes. The receiver closes their read ends, which do not block.
struct PipedProcess {
    var process: LaunchedProcess
    var stdout: CInt
    /// The same as `stdout` where both outputs share a pipe.
    var stderr: CInt
}

extension Launcher {
    /// Starts a program with pipes as its outputs. Blocks as ``launch(_:)`` does.
    /// - Parameter separatesErrors: stderr gets a pipe of its own.
    func launch(_ command: Command, separatesErrors: Bool, logger: Logger) throws(LaunchError) -> PipedProcess {
        let output = try Self.makeOutputPipe()
        defer { close(output.write) }
        do throws(LaunchError) {
            let errors = separatesErrors ? try Self.makeOutputPipe() : output
            defer { if separatesErrors { close(errors.write) } }
            do throws(LaunchError) {
                let process = try launch(
                    LaunchRequest(
                        arguments: command.arguments, environment: command.environment, workdir: command.workdir,
                        stdout: output.write, stderr: errors.write))
                if let problem = process.priorityProblem {
                    logger.warning("priority not set", metadata: ["pid": "\(process.pid)", "error": "\(problem)"])
                }
                return PipedProcess(process: process, stdout: output.read, stderr: errors.read)
            } catch {
                if separatesErrors { close(errors.read) }
                throw error
            }
        } catch {
            close(output.read)
            throw error
        }
    }

    private static func makeOutputPipe() throws(LaunchError) -> (read: CInt, write: CInt) {
        do {
            return try makePipe()
        } catch {
            var number: Int32 = 0
            if case .system(let code) = error.code { number = code }
            throw LaunchError(stage: .resources, errno: number, description: error.message)
        }
    }
}
