/// Chooses the region that is our home relay (docs/contracts/derp.md#home).
///
/// The driver takes a ``Round`` from ``advance(now:)``, measures each of its regions at once (only the request
/// `GET /derp/latency-check` is timed, not the connection), and reports with ``measured(_:_:round:now:)``.
package struct HomeChooser: Sendable {
    package struct Round: Hashable, Sendable {
        package var number: UInt64
        package var regions: [Int]
        /// A region that has not answered by then doesn't count.
        package var until: Duration
    }

    private struct Sample {
        var at: Duration
        var latency: Duration
    }

    private var map = DERPMap()
    /// Regions with a relay.
    private var usable: [Int] = []
    private var samples: [Int: [Sample]] = [:]
    private var round: Round?
    private var waiting: Set<Int> = []
    private var answered: Set<Int> = []
    private var rounds: UInt64 = 0
    private var nextRound: Duration?
    private var lastRound: Duration?
    /// nil until one is chosen, and while no region of the map has a relay.
    package private(set) var home: Int?

    package init() {}

    // MARK: Events

    /// Another map came, with embedded relays rewritten. A region with another definition is measured anew.
    /// - Returns: the regions that are gone or different; their connections are to be closed.
    @discardableResult
    package mutating func update(_ map: DERPMap, now: Duration) -> Set<Int> {
        guard map != self.map else { return [] }
        let changed = Set(self.map.regions.filter { map.regions[$0.key] != $0.value }.keys)
        self.map = map
        usable = map.regions.values.filter { $0.relay != nil }.map(\.id).sorted()
        for region in changed { samples[region] = nil }
        if let home, !usable.contains(home) { self.home = nil }
        (round, waiting, answered) = (nil, [], [])
        switch usable.count {
        case 0: nextRound = nil
        case 1:
            home = usable.first
            // Once, for those who look at the latency: nothing depends on it.
            nextRound = now
        default: nextRound = now
        }
        return changed
    }

    /// The connection to a relay failed or ended.
    package mutating func relayFailed(now: Duration) {
        guard usable.count > 1, round == nil, let planned = nextRound else { return }
        nextRound = min(planned, max(now, (lastRound ?? now - DERPLimits.measureGap) + DERPLimits.measureGap))
    }

    /// A region answered after `latency`, or didn't (nil). Ignored when the round is over.
    package mutating func measured(_ region: Int, _ latency: Duration?, round number: UInt64, now: Duration) {
        guard round?.number == number, waiting.remove(region) != nil else { return }
        if let latency, latency >= .zero, latency <= DERPLimits.measureFor {
            answered.insert(region)
            samples[region, default: []].append(Sample(at: now, latency: latency))
            if samples[region, default: []].count > DERPLimits.samples { samples[region]?.removeFirst() }
        }
        if waiting.isEmpty { choose(now: now) }
    }

    // MARK: Time

    package var nextDeadline: Duration? { round?.until ?? nextRound }

    /// Begins a round when one is due. Regions of an earlier one that are still measured need not be waited for.
    package mutating func advance(now: Duration) -> Round? {
        if let round, round.until <= now { choose(now: now) }
        guard round == nil, let due = nextRound, due <= now else { return nil }
        rounds &+= 1
        let next = Round(number: rounds, regions: usable, until: now + DERPLimits.measureFor)
        (round, waiting, answered) = (next, Set(usable), [])
        return next
    }

    // MARK: Choice

    /// The best latency of each region in the last 5 minutes; of a single region the one at the beginning.
    package func latencies(now: Duration) -> [Int: Duration] {
        if usable.count == 1 { return samples.compactMapValues { $0.last?.latency } }
        return samples.compactMapValues { samples in
            samples.lazy.filter { now - $0.at <= DERPLimits.measureEvery }.map { $0.latency }.min()
        }
    }

    private mutating func choose(now: Duration) {
        (round, waiting) = (nil, [])
        lastRound = now
        nextRound = usable.count > 1 ? now + DERPLimits.measureEvery : nil
        let answering = usable.filter(answered.contains)
        let wanted = preferred(answering)
        guard !wanted.isEmpty else {
            // None answered: stay, or take any.
            if home == nil { home = preferred(usable).first }
            return
        }
        let best = latencies(now: now)
        let scores: [(region: Int, score: Double)] = wanted.compactMap { region in
            best[region].map { (region, $0.inSeconds * (map.regionScore[region] ?? 1)) }
        }
        guard let winner = scores.min(by: { ($0.score, $0.region) < ($1.score, $1.region) }) else { return }
        // A home that is to be avoided has no such right.
        if let old = scores.first(where: { $0.region == home }) {
            let isLittle = old.score - winner.score < DERPLimits.leastGain.inSeconds
            if isLittle || winner.score * 3 > old.score * 2 { return }
        }
        home = winner.region
    }

    /// Without those to be avoided, unless there is nothing else.
    private func preferred(_ regions: [Int]) -> [Int] {
        let good = regions.filter { map.regions[$0]?.avoid == false }
        return good.isEmpty ? regions : good
    }
}
