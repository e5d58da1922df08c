/// Microseconds since the driver's origin: what all times inside the stack are.
typealias Microseconds = Int64

extension Microseconds {
    /// Later than any time: a timer that doesn't run.
    static var never: Microseconds { .max }

    init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        self = seconds &* 1_000_000 &+ attoseconds / 1_000_000_000_000
    }
}

extension Duration {
    static func stack(_ time: Microseconds) -> Duration { .microseconds(time) }
}
