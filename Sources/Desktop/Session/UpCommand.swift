import AgentCore
import Glibc

/// One run of `portabledesktop up`, which starts the desktop and exits.
struct UpCommand: Sendable {
    let configuration: DesktopSession.Configuration
    let files: SessionFiles
    let runner: any CommandRunner
    let pool: BlockingPool
    let limiter: TimeLimiter
    private var limits: SessionLimits { configuration.limits }

    /// The result of a run that succeeded.
    struct Success: Sendable {
        var report: UpReport
        /// Its stderr.
        var warnings: String?
        /// Its outputs are still read: the desktop may hold them, and must neither block nor fail in a write.
        var command: any RunningCommand
    }

    /// Finds the program as a shell would. Blocks.
    func locate(_ environment: [String: String]) -> String? {
        let path = environment["PATH"] ?? EnvironmentBuilder.defaultPath
        // The script directory last, even when it is on PATH, too.
        let last = configuration.scriptBinDirectory
        let directories = path.split(separator: ":").map(String.init).filter { $0 != last } + [last].compactMap { $0 }
        return findExecutable("portabledesktop", in: directories)
    }

    /// Runs the program until it exits; at the deadline, or when the calling task is cancelled, it is killed. The
    /// caller has to clean up servers that it started by then.
    /// - Parameter failed: called with the error before the program is killed, which may take seconds.
    /// - Throws: ``DesktopError``.
    func run(
        _ program: String, _ environment: [String: String], _ deadline: Duration, _ failed: (any Error) -> Void
    ) async throws -> Success {
        let workdir = await workdir()
        // An older build has one mode, and says that it does not know the flag before it starts anything.
        for mode in [[Self.sizeMode, "dynamic"], []] {
            let run: ProgramRun
            do {
                run = try await ProgramRun.start(
                    Command(arguments: arguments(program) + mode, environment: environment, workdir: workdir),
                    by: runner, limiter, outputLimit: SessionLimits.upOutputBytes)
            } catch {
                throw DesktopError.start("portabledesktop cannot be run: \(error)", cause: error)
            }
            if let success = try await result(of: run, deadline, isLast: mode.isEmpty, failed) { return success }
        }
        throw DesktopError.start("portabledesktop up does not know its own flags")
    }

    /// - Returns: nil when it does not know the flag of the size mode.
    private func result(
        of run: ProgramRun, _ deadline: Duration, isLast: Bool, _ failed: (any Error) -> Void
    ) async throws -> Success? {
        let how = await run.end(by: deadline)
        do {
            // The exit may be reported before the last bytes are read.
            if case .exited(let exit) = how, exit != .exited(0) || (try? UpReport.find(in: run.output.output)) == nil {
                await run.drain()
            }
            if !isLast, how == .exited(.exited(1)), run.output.errors?.contains("flag: \(Self.sizeMode)") ?? false {
                run.command.abandonOutput()
                return nil
            }
            guard how == .exited(.exited(0)) else { throw UpReport.Problem(how.text(limits.start)) }
            let report = try UpReport.find(in: run.output.output)
            run.output.close()
            return Success(report: report, warnings: run.output.errors, command: run.command)
        } catch {
            let what = (error as? UpReport.Problem)?.text ?? "\(error)"
            let failure =
                how == .cancelled
                ? DesktopSession.shuttingDown
                : .start("portabledesktop up \(what)\(run.output.errors.map { ": \($0)" } ?? "")")
            failed(failure)
            await run.kill(after: limits.upGrace, limits.killGrace)
            throw failure
        }
    }

    /// Lets clients change the desktop's size.
    private static let sizeMode = "--desktop-size-mode"

    private func arguments(_ program: String) -> [String] {
        // By default Xvnc listens on all interfaces without a password, and resets when its last X client (such as
        // openbox) disconnects, which ends every VNC connection and makes TigerVNC 1.12 spin on a stale one. It takes
        // 256 KiB from a client's clipboard; line ends take two bytes there.
        let xvnc = [
            "-localhost=1", "-AlwaysShared=1", "-UseBlacklist=0", "-rfbunixpath=\(files.socket)", "-rfbunixmode=0600",
            "-MaxCutText=\(2 * DesktopLimits.clipboardBytes + 64)", "-noreset",
        ]
        return [
            program, "up", "--json", "--geometry", configuration.geometry, "--state-file", files.state,
            "--session-dir", files.session, "--xvnc-arg=\(xvnc.joined(separator: ","))",
        ]
    }

    private func workdir() async -> String {
        let wanted = configuration.workdir()
        let exists = (try? await pool.run { access(wanted, X_OK) == 0 }) ?? false
        return exists ? wanted : "/"
    }
}

extension DesktopError {
    private static let startMessage = "Failed to start desktop session."

    /// A start that failed.
    static func start(_ detail: String, cause: (any Error)? = nil) -> DesktopError {
        DesktopError(.failed, startMessage, detail: detail, cause: cause)
    }

    /// A start that failed with any error.
    static func start(from error: any Error) -> DesktopError {
        if let error = error as? DesktopError { return error }
        return start("\(error)", cause: error)
    }

    var isAboutStart: Bool { message == Self.startMessage || code == .shuttingDown }
}
