/// What went through the stack in an interval (docs/contracts/tailnet.md#statistics).
package struct FlowStatistics: Sendable, Equatable {
    /// Packets that came for us, and their bytes with the IP header.
    package var receivedPackets = 0
    package var receivedBytes = 0
    package var sentPackets = 0
    package var sentBytes = 0
    /// Distinct flows: protocol, both addresses and ports.
    package var flows: [InnerProtocol: Int] = [:]
}

/// Gathers them.
struct FlowCounter: Sendable {
    private struct Flow: Hashable {
        var kind: UInt8
        var key: FlowKey
    }

    private var statistics = FlowStatistics()
    private var flows: Set<Flow> = []
    /// The number of the interval: connections note it, so that one isn't looked up for each packet.
    private(set) var interval: UInt32 = 0

    mutating func received(_ bytes: Int) {
        statistics.receivedPackets += 1
        statistics.receivedBytes += bytes
    }

    mutating func sent(_ bytes: Int) {
        statistics.sentPackets += 1
        statistics.sentBytes += bytes
    }

    /// - Returns: false when there are too many to tell apart.
    mutating func note(_ kind: InnerProtocol, _ key: FlowKey, most: Int) -> Bool {
        let flow = Flow(kind: kind.rawValue, key: key)
        guard flows.count < most || flows.contains(flow) else { return false }
        if flows.insert(flow).inserted { statistics.flows[kind, default: 0] += 1 }
        return true
    }

    mutating func take() -> FlowStatistics {
        defer {
            statistics = FlowStatistics()
            flows = []
            interval &+= 1
        }
        return statistics
    }
}
