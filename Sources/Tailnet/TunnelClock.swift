import Glibc
import NIOCore
import SwiftProtobuf
import WireGuard

/// The clocks of a tunnel.
package enum TunnelClock {
    /// Since the machine started, its sleep included: sessions grow old while it sleeps.
    package static func now() -> Duration {
        let time = read(CLOCK_BOOTTIME)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    /// The time of day.
    package static func wall() -> TAI64N {
        let time = read(CLOCK_REALTIME)
        return TAI64N(unixSeconds: Int64(time.tv_sec), nanoseconds: UInt32(clamping: time.tv_nsec))
    }

    /// The time of day, as messages carry it.
    static func timestamp() -> Google_Protobuf_Timestamp {
        let time = read(CLOCK_REALTIME)
        var stamp = Google_Protobuf_Timestamp()
        (stamp.seconds, stamp.nanos) = (Int64(time.tv_sec), Int32(truncatingIfNeeded: time.tv_nsec))
        return stamp
    }

    private static func read(_ clock: clockid_t) -> timespec {
        var time = timespec()
        clock_gettime(clock, &time)
        return time
    }
}

extension TimeAmount {
    /// From now to then, at most an hour: a clock that goes on while the machine sleeps is not the event loop's.
    static func until(_ due: Duration, now: Duration) -> TimeAmount {
        let (seconds, attoseconds) = max(due - now, .microseconds(100)).components
        return .nanoseconds(min(seconds, 3_600) * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
}
