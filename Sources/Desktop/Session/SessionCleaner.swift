import AgentCore
import Glibc
import Logging

/// Ends desktops and removes what they leave, also in a cancelled task.
struct SessionCleaner: Sendable {
    let files: SessionFiles
    let pool: BlockingPool
    let limiter: TimeLimiter
    let limits: SessionLimits
    let logger: Logger

    /// Ends a desktop gracefully and removes what it left.
    func stop(_ live: LiveDesktop) async {
        let driver = live.running.driver
        _ = await limiter.runIgnoringCancellation(atMost: limits.release) { await driver.releaseAll() }
        await remove(live, gently: true)
        logger.info("desktop stopped", metadata: ["display": "\(live.running.display)"])
    }

    /// Kills what is left of a desktop that died or hangs, and removes its files.
    func clean(_ live: LiveDesktop) async { await remove(live, gently: false) }

    private func remove(_ live: LiveDesktop, gently: Bool) async {
        let driver = live.running.driver
        // Closing may wait for a thread that waits for the server, which is ended meanwhile.
        let closing = Task(executorPreference: limiter.executor) { await driver.close() }
        await end([live.windowManager?.process, live.xvnc].compactMap { $0 }, gently: gently)
        _ = await limiter.runIgnoringCancellation(atMost: limits.stopGrace) { await closing.value }
        _ = try? await pool.runToEnd { [files] in
            SessionFiles.removeDisplay(of: live.xvnc.pid)
            SessionFiles.removeSocket(ofDisplay: live.running.display)
            if let directory = live.sessionDirectory { SessionFiles.remove(directory) }
            files.removeAll()
        }
    }

    /// Sends SIGTERM, waits, and sends SIGKILL to what still runs; not gently: SIGKILL at once.
    private func end(_ processes: [ProcessHandle], gently: Bool = true) async {
        for (signal, grace) in [(SIGTERM, limits.stopGrace), (SIGKILL, limits.killGrace)] {
            if signal == SIGTERM && !gently { continue }
            let alive = processes.filter(\.isAlive)
            guard !alive.isEmpty else { return }
            for process in alive { process.signal(signal) }
            let deadline = limiter.clock.now() + grace
            // The processes are not our children, so their end has to be polled for.
            while alive.contains(where: \.isAlive), limiter.clock.now() < deadline {
                await limiter.pauseIgnoringCancellation(.milliseconds(10))
            }
        }
        let left = processes.filter(\.isAlive)
        if !left.isEmpty {
            logger.error("cannot end processes of the desktop", metadata: ["pids": "\(left.map { "\($0.pid)" })"])
        }
    }

    /// Whether an earlier run may have left something.
    var mayHaveLeftovers: Bool { access(files.record, F_OK) == 0 }

    private struct Leftovers {
        var processes: [ProcessHandle] = []
        var directories: [SessionFiles.SessionDirectory] = []
        var pids: Set<Int32> = []
        var displays: Set<String> = []
    }

    /// Ends and removes a desktop that no ``LiveDesktop`` stands for: of an earlier run of the agent, or of an
    /// `up` that failed or was killed half-way.
    func cleanLeftovers() async {
        let leftovers = (try? await pool.runToEnd { [self] in find() }) ?? Leftovers()
        if !leftovers.processes.isEmpty {
            logger.notice(
                "ending what an earlier desktop left",
                metadata: ["pids": "\(leftovers.processes.map { "\($0.pid)" }.joined(separator: " "))"])
        }
        await end(leftovers.processes)
        _ = try? await pool.runToEnd { [files] in
            for pid in leftovers.pids { SessionFiles.removeDisplay(of: pid) }
            for display in leftovers.displays { SessionFiles.removeSocket(ofDisplay: display) }
            for directory in leftovers.directories { SessionFiles.remove(directory) }
            files.removeAll()
        }
    }

    /// What is certainly ours: servers with our socket among their arguments, our record of this boot, and the
    /// program's report in our private state file. Blocks.
    private func find() -> Leftovers {
        var leftovers = Leftovers()
        let socket = files.socket
        leftovers.processes = ProcessHandle.all { arguments in
            arguments.contains { $0.hasSuffix("rfbunixpath=\(socket)") || $0 == socket }
        }.filter { $0.name.lowercased().contains("vnc") }
        if let record = files.readRecord(), record.boot == SessionFiles.boot {
            if let desktop = record.desktop {
                leftovers.processes += [desktop.openbox, desktop.xvnc].compactMap { $0 }.compactMap {
                    ProcessHandle($0)
                }
                leftovers.directories += [desktop.sessionDirectory].compactMap { $0 }
                leftovers.pids.insert(desktop.xvnc.pid)
                leftovers.displays.insert(desktop.display)
            } else if let state = files.readState() {
                let (xvnc, openbox) = ProcessHandle.ofDesktop(xvnc: state.xvncPid, openbox: state.openboxPid)
                leftovers.processes += [openbox, xvnc].compactMap { $0 }
                // Also of dead ones: they may have left the files of their display.
                leftovers.pids.formUnion([state.xvncPid].compactMap { $0 })
                leftovers.displays.formUnion([state.display].compactMap { $0 })
                leftovers.directories += [files.sessionDirectory(state.sessionDir, started: record.began)].compactMap {
                    $0
                }
            }
        }
        leftovers.pids.formUnion(leftovers.processes.map(\.pid))
        leftovers.displays.formUnion(leftovers.processes.compactMap { SessionFiles.display(of: $0.pid) })
        return leftovers
    }
}
