import AgentProc
import NIOCore

/// Signs of life for systemd. Each goes through the threads on which everything depends, one after the other, before
/// it is given: one that hangs keeps it back, and systemd restarts the daemon. They end with the watchdog.
final class Watchdog: Sendable {
    /// Shorter ones would keep a core busy.
    private static let shortest = TimeAmount.milliseconds(1)

    private let interval: TimeAmount
    private let loops: [any EventLoop]
    private let reactor: Reactor
    private let ping: @Sendable () -> Void

    /// - Parameters:
    ///   - interval: between one ping and the beginning of the next.
    ///   - ping: gives the sign of life; called on the reactor's thread, and must not block.
    init(every interval: TimeAmount, group: any EventLoopGroup, reactor: Reactor, ping: @escaping @Sendable () -> Void)
    {
        self.interval = max(interval, Self.shortest)
        loops = Array(group.makeIterator())
        self.reactor = reactor
        self.ping = ping
    }

    func start() { pass(loops[...]) }

    private func pass(_ rest: ArraySlice<any EventLoop>) {
        guard let loop = rest.first else { return reactor.perform { [weak self] in self?.finish() } }
        loop.execute { [weak self] in self?.pass(rest.dropFirst()) }
    }

    /// The next one begins only now, so that a thread that hangs finds one waiting for it and no more.
    private func finish() {
        ping()
        loops.first?.scheduleTask(in: interval) { [weak self] in self?.start() }
    }
}
