/// When to leave slow start before anything is lost: HyStart++ (RFC 9406).
struct SlowStart: Sendable {
    private static let leastThreshold: Microseconds = 4_000
    private static let mostThreshold: Microseconds = 16_000
    private static let samplesPerRound = 8
    private static let conservativeRounds = 5
    private static let conservativeDivisor = 4

    private var roundEnd: SequenceNumber?
    private var last: Microseconds = .never
    private var current: Microseconds = .never
    private var samples = 0
    /// Rounds of conservative slow start that are left; nil in slow start.
    private var roundsLeft: Int?
    private var baseline: Microseconds = .never

    /// - Returns: by how much the window grows; nil when slow start is over.
    mutating func growth(
        acknowledged: Int, upTo number: SequenceNumber, next: SequenceNumber, sample: Microseconds?
    ) -> Int? {
        if roundEnd.map({ number >= $0 }) ?? true {
            roundEnd = next
            (last, current, samples) = (current, .never, 0)
            if let left = roundsLeft {
                guard left > 1 else { return nil }
                roundsLeft = left - 1
            }
        }
        if let sample {
            current = min(current, sample)
            samples += 1
        }
        if samples >= Self.samplesPerRound, current != .never, last != .never {
            if roundsLeft != nil {
                if current < baseline { (roundsLeft, baseline) = (nil, .never) }
            } else if current >= last + min(max(Self.leastThreshold, last / 8), Self.mostThreshold) {
                (roundsLeft, baseline) = (Self.conservativeRounds, current)
            }
        }
        return roundsLeft == nil ? acknowledged : acknowledged / Self.conservativeDivisor
    }
}
