import CPlatform
import NIOCore
import Synchronization

/// Gives memory back once a daemon that did something is at rest: what a burst needed, and what was mapped of the
/// program for it. One that is at rest is not woken: the timer runs only after something was done.
public final class MemoryTrimmer: Sendable {
    /// After starting up and connecting, most of what is mapped was for that alone.
    public static let afterStart = TimeAmount.seconds(20)
    /// Memory is given back when nothing was done for so long, and at the latest after twice as long.
    public static let rest = TimeAmount.seconds(60)

    private enum Phase: UInt8, AtomicRepresentable {
        case resting
        case armed
        /// Something was done since it was armed.
        case active
    }

    private let loop: any EventLoop
    private let release: @Sendable () -> Void
    private let phase = Atomic(Phase.resting)

    /// - Parameters:
    ///   - loop: where it is done, which takes a millisecond.
    ///   - release: what is done.
    public init(_ loop: any EventLoop, release: @escaping @Sendable () -> Void = { wa_release_memory() }) {
        self.loop = loop
        self.release = release
    }

    /// To be called once everything runs.
    public func started() {
        if phase.exchange(.armed, ordering: .relaxed) == .resting { arm(Self.afterStart) }
    }

    /// Something was done. Any thread; a read of a word mostly.
    public func noteActivity() {
        guard phase.load(ordering: .relaxed) != .active else { return }
        if phase.exchange(.active, ordering: .relaxed) == .resting { arm(Self.rest) }
    }

    private func arm(_ delay: TimeAmount) {
        loop.scheduleTask(in: delay) { [self] in
            if phase.compareExchange(expected: .active, desired: .armed, ordering: .relaxed).exchanged {
                return arm(Self.rest)
            }
            // From here on the next activity arms it anew.
            if phase.compareExchange(expected: .armed, desired: .resting, ordering: .relaxed).exchanged {
                release()
            } else {
                arm(Self.rest)
            }
        }
    }
}
