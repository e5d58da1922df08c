import AgentCore
import Glibc
import Logging

/// Ends desktops and removes what they leave. What is begun here is done even in a cancelled task.
struct SessionCleaner: Sendable {
    let files: SessionFiles
    let pool: BlockingPool
    let limiter: TimeLimiter
    let limits: SessionLimits
    let logger: Logger

    /// Ends a desktop in order and removes what it left.
    func stop(_ live: LiveDesktop) async {
        let driver = live.running.driver
        _ = await limiter.runIgnoringCancellation(atMost: limits.release) { await driver.releaseAll() }
        await remove(live, gently: true)
        logger.info("desktop stopped", metadata: ["display": "\(live.running.display)"])
    }

    /// Ends what is left of a desktop that died or hangs.
    func clean(_ live: LiveDesktop) async { await remove(live, gently: false) }

    private func remove(_ live: LiveDesktop, gently: Bool) async {
        let driver = live.running.driver
        // Its end may wait for a thread that waits for the server, which dies meanwhile.
        let closing = Task(executorPreference: limiter.executor) { await driver.close() }
        await end([live.openbox, live.xvnc].compactMap { $0 }, gently: gently)
        _ = await limiter.runIgnoringCancellation(atMost: limits.stopGrace) { await closing.value }
        _ = try? await pool.runToEnd { [files] in
            SessionFiles.removeDisplay(of: live.xvnc.pid)
            SessionFiles.removeSocket(ofDisplay: live.running.display)
            if let directory = live.sessionDirectory { SessionFiles.remove(directory) }
            files.removeAll()
        }
    }

    /// SIGTERM, the grace, SIGKILL; not gently: SIGKILL at once. What has ended is skipped.
    private func end(_ processes: [ProcessHandle], gently: Bool = true) async {
        for (signal, grace) in [(SIGTERM, limits.stopGrace), (SIGKILL, limits.killGrace)] {
            if signal == SIGTERM && !gently { continue }
            let alive = processes.filter(\.isAlive)
            guard !alive.isEmpty else { return }
            for process in alive { process.signal(signal) }
            let deadline = limiter.clock.now() + grace
            // Nothing tells of the end of a process that is not our child, so it is looked for.
            while alive.contains(where: \.isAlive), limiter.clock.now() < deadline {
                await limiter.pauseIgnoringCancellation(.milliseconds(10))
            }
        }
        let left = processes.filter(\.isAlive)
        if !left.isEmpty {
            logger.error("cannot end processes of the desktop", metadata: ["pids": "\(left.map { "\($0.pid)" })"])
        }
    }

    /// Whether an earlier life may have left something; a look at a path.
    var mayHaveRemains: Bool { access(files.record, F_OK) == 0 }

    private struct Remains {
        var processes: [ProcessHandle] = []
        var directories: [SessionFiles.SessionDirectory] = []
        var pids: Set<Int32> = []
        var displays: Set<String> = []
    }

    /// Ends and removes what there is of a desktop that nobody holds: one of an earlier life of the agent,
    /// or of an `up` that failed or was killed half-way.
    func cleanEarlierLife() async {
        let remains = (try? await pool.runToEnd { [self] in find() }) ?? Remains()
        if !remains.processes.isEmpty {
            logger.notice(
                "ending what an earlier desktop left",
                metadata: ["pids": "\(remains.processes.map { "\($0.pid)" }.joined(separator: " "))"])
        }
        await end(remains.processes)
        _ = try? await pool.runToEnd { [files] in
            for pid in remains.pids { SessionFiles.removeDisplay(of: pid) }
            for display in remains.displays { SessionFiles.removeSocket(ofDisplay: display) }
            for directory in remains.directories { SessionFiles.remove(directory) }
            files.removeAll()
        }
    }

    /// What is certainly ours: servers with our socket among their arguments, what we wrote down of this
    /// boot, and what the program wrote into the state file that is private to us. Blocks.
    private func find() -> Remains {
        var remains = Remains()
        let socket = files.socket
        remains.processes = ProcessHandle.all { arguments in
            arguments.contains { $0.hasSuffix("rfbunixpath=\(socket)") || $0 == socket }
        }.filter { $0.name.lowercased().contains("vnc") }
        if let record = files.readRecord(), record.boot == SessionFiles.boot {
            if let desktop = record.desktop {
                remains.processes += [desktop.openbox, desktop.xvnc].compactMap { $0 }.compactMap { ProcessHandle($0) }
                remains.directories += [desktop.sessionDirectory].compactMap { $0 }
                remains.pids.insert(desktop.xvnc.pid)
                remains.displays.insert(desktop.display)
            } else if let told = files.readState() {
                let (xvnc, openbox) = ProcessHandle.ofDesktop(xvnc: told.xvncPid, openbox: told.openboxPid)
                remains.processes += [openbox, xvnc].compactMap { $0 }
                // One that has died may have left its display.
                remains.pids.formUnion([told.xvncPid].compactMap { $0 })
                remains.displays.formUnion([told.display].compactMap { $0 })
                remains.directories += [files.sessionDirectory(told.sessionDir, started: record.began)].compactMap {
                    $0
                }
            }
        }
        remains.pids.formUnion(remains.processes.map(\.pid))
        remains.displays.formUnion(remains.processes.compactMap { SessionFiles.display(of: $0.pid) })
        return remains
    }
}
