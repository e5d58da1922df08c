/// A time as an initiation carries it: seconds and nanoseconds, 12 bytes big-endian (whitepaper, 5.1).
package struct TAI64N: Hashable, Comparable, Sendable {
    package static let count = 12
    /// What the hidden part of the nanoseconds counts: so much of the clock is not shown to others.
    package static let step: UInt32 = 1 << 24

    /// With TAI64's offset of 2^62 and the 10 seconds that the recorded program adds (`tailnet_wireguard.json`).
    package let seconds: UInt64
    /// Below 10^9 in times of ours.
    package let nanoseconds: UInt32

    private init(seconds: UInt64, nanoseconds: UInt32) { (self.seconds, self.nanoseconds) = (seconds, nanoseconds) }

    /// - Parameter unixSeconds: since 1970, UTC.
    package init(unixSeconds: Int64, nanoseconds: UInt32) {
        self.init(
            seconds: 0x4000_0000_0000_000a &+ UInt64(bitPattern: unixSeconds),
            nanoseconds: min(nanoseconds, 999_999_999))
    }

    /// nil unless these are 12 bytes.
    package init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count == Self.count else { return nil }
        self.init(
            seconds: bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) },
            nanoseconds: bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt32($1) })
    }

    package var bytes: [UInt8] {
        stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: seconds >> UInt64($0)) }
            + stride(from: 24, through: 0, by: -8).map { UInt8(truncatingIfNeeded: nanoseconds >> UInt32($0)) }
    }

    /// Without what is finer than a ``step``.
    package var coarse: TAI64N { TAI64N(seconds: seconds, nanoseconds: nanoseconds & ~(Self.step - 1)) }

    /// The coarse time after this one.
    package var following: TAI64N {
        let next = (nanoseconds & ~(Self.step - 1)).addingReportingOverflow(Self.step)
        return next.overflow || next.partialValue > 999_999_999
            ? TAI64N(seconds: seconds &+ 1, nanoseconds: 0)
            : TAI64N(seconds: seconds, nanoseconds: next.partialValue)
    }

    package static func < (a: Self, b: Self) -> Bool { (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds) }
}
