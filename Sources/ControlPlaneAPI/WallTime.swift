import Glibc
import SwiftProtobuf

/// A moment of the wall clock.
package struct WallTime: Sendable, Comparable, Hashable {
    /// Since 1970.
    package var seconds: Int64
    /// 0..<1,000,000,000
    package var nanoseconds: Int32

    package init(seconds: Int64, nanoseconds: Int32 = 0) {
        self.seconds = seconds
        self.nanoseconds = nanoseconds
    }

    /// Read from the system.
    package static func now() -> WallTime {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return WallTime(seconds: Int64(time.tv_sec), nanoseconds: Int32(truncatingIfNeeded: time.tv_nsec))
    }

    package static func < (a: WallTime, b: WallTime) -> Bool {
        (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds)
    }

    package var proto: Google_Protobuf_Timestamp {
        var timestamp = Google_Protobuf_Timestamp()
        timestamp.seconds = seconds
        timestamp.nanos = nanoseconds
        return timestamp
    }
}

extension Google_Protobuf_Duration {
    /// The same, with parts that break protobuf's rules cut to them.
    package var duration: Duration {
        let limit: Int64 = 315_576_000_000
        return .seconds(min(max(seconds, -limit), limit)) + .nanoseconds(Int64(nanos))
    }
}

extension Duration {
    package var inSeconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) / 1e18
    }
}
