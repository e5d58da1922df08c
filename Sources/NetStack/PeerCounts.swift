import IPAddresses

/// What each address of a peer holds.
struct PeerCounts: Sendable {
    struct Counts: Sendable, Equatable {
        var connections = 0
        var halfOpen = 0
        var flows = 0
    }

    private var peers: [IPAddress: Counts] = [:]
    private(set) var all = Counts()

    subscript(address: IPAddress) -> Counts { peers[address] ?? Counts() }

    mutating func add(_ amount: Int, _ what: WritableKeyPath<Counts, Int>, of address: IPAddress) {
        all[keyPath: what] += amount
        var counts = self[address]
        counts[keyPath: what] += amount
        peers[address] = counts == Counts() ? nil : counts
    }
}
