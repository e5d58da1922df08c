import ControlPlaneAPI
import DRPC
import Logging

extension ControlPlaneLink {
    private enum Event: Sendable {
        case ended(String)
        case routine(Int, (any Error)?)
        /// The task that kept this routine from running has ended.
        case freed(Int)
        case stopping
        case finish
    }

    /// Runs the routines until the first failure, the connection's end or the end of delivery; then
    /// closes the connection and sees that they end.
    func serve(_ connection: any AgentConnection) async -> Disconnect {
        let (events, continuation) = AsyncStream.makeStream(of: Event.self)
        defer { continuation.finish() }
        let bounded = BoundedConnection(connection: connection, runtime: runtime)
        announce(bounded)
        let run: @Sendable (Int) -> Task<Void, Never> = { [self] index in
            start(index, bounded) { continuation.yield(.routine(index, $0)) }
        }
        var tasks: [Int: Task<Void, Never>] = [:]
        let (chosen, stuck) = toRun()
        for index in chosen { tasks[index] = run(index) }
        let (state, executor) = (state, runtime.executor)
        var watchers = [
            Task(executorPreference: executor) { _ = continuation.yield(.ended(await connection.ended())) },
            Task(executorPreference: executor) {
                guard (try? await state.first { $0.phase == .running ? nil : true }) != nil else { return }
                continuation.yield(.stopping)
                guard (try? await state.first { $0.phase == .finished ? true : nil }) != nil else { return }
                continuation.yield(.finish)
            },
        ]
        for index in stuck {
            watchers.append(
                Task(executorPreference: executor) {
                    guard (try? await state.first { $0.alive.contains(index) ? nil : true }) != nil else { return }
                    continuation.yield(.freed(index))
                })
        }

        var end = await withTaskCancellationHandler {
            await firstEnd(events, &tasks, run)
        } onCancel: {
            continuation.yield(.finish)
        }

        state.update { $0.connection = nil }
        for task in tasks.values { task.cancel() }
        await runtime.shielded { await self.close(connection) }
        if case .routine(_, let error) = end, Self.isOrdinary(error) {
            // The routine was only the first to notice; the connection itself knows why it ended.
            let reason = try? await runtime.within(.seconds(1), "the end of the connection") {
                await connection.ended()
            }
            end = .ended(reason ?? "\(error)")
        }
        for watcher in watchers { watcher.cancel() }
        await runtime.shielded { [tasks] in await self.awaitEnd(of: tasks) }
        let left = state.update { state in
            state.stuck = state.alive
            return state.stuck.count
        }
        metrics.stuck.set(Double(left))
        metrics.disconnects.with(end.label).increment()
        return end
    }

    private func announce(_ connection: BoundedConnection) {
        let now = runtime.wall().proto
        let status = LinkStatus.connected(since: now, connection.apiVersion)
        state.update {
            $0.connection = connection
            $0.status = status
            $0.off = []
        }
        metrics.connects.increment()
        metrics.state.set(status.number)
        metrics.lastConnected.set(Double(now.seconds))
        runtime.logger.info("connected to the control plane", metadata: ["api": "\(connection.apiVersion)"])
    }

    /// The routines for this connection, marked as alive, and those that still hang.
    private func toRun() -> (chosen: [Int], stuck: [Int]) {
        let (chosen, stuck) = state.update { state in
            var chosen: [Int] = []
            var stuck: [Int] = []
            for (index, routine) in routines.enumerated()
            where state.phase == .running || routine.atShutdown == .remains {
                if state.alive.insert(index).inserted { chosen.append(index) } else { stuck.append(index) }
            }
            return (chosen, stuck)
        }
        for index in stuck {
            runtime.logger.error(
                "a routine of an earlier connection still hangs", metadata: ["routine": "\(routines[index].name)"])
        }
        return (chosen, stuck)
    }

    /// Whether a routine that hung is to run on this connection after all.
    private func claims(_ index: Int) -> Bool {
        let claimed = state.update { state in
            guard state.phase == .running || routines[index].atShutdown == .remains else { return false }
            return state.alive.insert(index).inserted
        }
        if claimed {
            runtime.logger.info(
                "a routine that hung has ended and is started anew", metadata: ["routine": "\(routines[index].name)"])
        }
        return claimed
    }

    private func start(
        _ index: Int, _ connection: BoundedConnection, _ done: @escaping @Sendable ((any Error)?) -> Void
    ) -> Task<Void, Never> {
        let (routine, state, metrics) = (routines[index], state, metrics)
        return Task(executorPreference: runtime.executor) {
            var failure: (any Error)?
            do { try await routine.run(connection) } catch { failure = error }
            if let failure, (failure as? DRPCError)?.isUnknownRPC == true {
                state.update { _ = $0.off.insert(index) }
            }
            let stuck = state.update { state in
                state.alive.remove(index)
                return state.stuck.remove(index) == nil ? nil : state.stuck.count
            }
            if let stuck { metrics.stuck.set(Double(stuck)) }
            done(failure)
        }
    }

    private func firstEnd(
        _ events: AsyncStream<Event>, _ tasks: inout [Int: Task<Void, Never>],
        _ run: @Sendable (Int) -> Task<Void, Never>
    ) async -> Disconnect {
        for await event in events {
            switch event {
            case .finish: return .shutdown
            case .ended(let reason): return .ended(Self.shortened(reason))
            case .stopping:
                for (index, task) in tasks where routines[index].atShutdown == .stops { task.cancel() }
            case .freed(let index): if claims(index) { tasks[index] = run(index) }
            case .routine(let index, let error):
                guard let error else { continue }
                if let end = judge(index, error, cancelled: tasks[index]?.isCancelled ?? true) { return end }
            }
        }
        return .shutdown
    }

    /// Whether the failure of a routine ends the connection.
    private func judge(_ index: Int, _ error: any Error, cancelled: Bool) -> Disconnect? {
        let name = routines[index].name
        if (error as? DRPCError)?.isUnknownRPC == true {
            let first = state.update { $0.warned.insert(index).inserted }
            runtime.logger.log(
                level: first ? .warning : .debug,
                "the control plane does not implement this; off until the next connect",
                metadata: ["routine": "\(name)", "error": "\(Self.shortened("\(error)"))"])
            return nil
        }
        // A routine that we stopped fails because of that. Reconnecting for it would have a
        // shutting-down agent report its states twice.
        if cancelled { return nil }
        metrics.routineFailures.with(name).increment()
        return .routine(name, error)
    }

    private func close(_ connection: any AgentConnection) async {
        do {
            try await runtime.within(LinkLimits.teardown, "closing the connection") { await connection.close() }
        } catch {
            runtime.logger.debug("the connection was not closed in order", metadata: ["error": "\(error)"])
        }
    }

    private func awaitEnd(of tasks: [Int: Task<Void, Never>]) async {
        let all = Array(tasks.values)
        _ = try? await runtime.within(LinkLimits.teardown, "the end of the routines") {
            for task in all { await task.value }
        }
    }

    func log(_ end: Disconnect) {
        switch end {
        case .shutdown: runtime.logger.info("disconnected from the control plane")
        case .ended(let reason):
            runtime.logger.info("the connection to the control plane ended", metadata: ["reason": "\(reason)"])
        case .routine(let name, let error):
            runtime.logger.warning(
                "a routine failed; connecting anew",
                metadata: ["routine": "\(name)", "error": "\(Self.shortened("\(error)"))"])
        }
    }

    private static func isOrdinary(_ error: any Error) -> Bool {
        error is CancellationError || (error as? DRPCError)?.isDisconnect == true
    }
}
