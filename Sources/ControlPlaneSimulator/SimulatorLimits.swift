/// Every bound of the simulator, and what happens at it.
package enum SimulatorLimits {
    /// Calls kept of each rpc. The oldest goes when one more comes; counts go on.
    package static let callsKept = 1_000
    /// Encoded bytes of the calls kept of each rpc. The oldest go; the newest stays whatever its size.
    package static let callBytesKept = 16 << 20
    /// Openings, ends and refusals of connections kept. The oldest goes.
    package static let connectionEventsKept = 1_000
    /// Violations of the protocol kept. The oldest goes.
    package static let violationsKept = 1_000
    /// Encoded bytes of one BatchCreateLogs. A larger one is refused (docs/contracts/control-plane.md#logs).
    package static let logBatchBytes = 1 << 20
    /// UTF-8 bytes of a metadata value. A longer one is refused (docs/contracts/control-plane.md#metadata).
    package static let metadataValueBytes = 10_240
    /// Sub-agents of one agent. Creating more is refused.
    package static let subAgents = 256
    /// Faults waiting for each rpc. Planning more drops the newest.
    package static let faultsPerRPC = 1_000
    /// Bytes of a manifest file. A larger one is refused before it is read into memory.
    package static let manifestFileBytes = 4 << 20
    /// Nesting of a manifest's JSON. More is refused.
    package static let manifestDepth = 16
    /// Body of a REST request. A longer one is answered 413.
    package static let requestBodyBytes = 65_536
    /// Bytes that the proxy holds for one direction of a connection. It stops reading at more.
    package static let proxyBufferBytes = 1 << 20
    /// Requests that wait for a claim, and as many that wait for a login. One more is answered 503.
    package static let waiters = 1_024
    /// Encoded bytes that padding may add to a manifest. More is cut to it: a packet holds 4 MiB, so
    /// a larger answer could not be sent.
    package static let manifestPaddingBytes = 8 << 20
    /// Agents and clients that the coordinator serves. A further one gets an error, and its stream ends.
    package static let coordinatedPeers = 2_048
    /// Tunnels between them. The stream that adds one more ends with an error.
    package static let tunnels = 4_096
    /// Encoded bytes of a node. The stream that tells a larger one ends with an error.
    package static let nodeBytes = 65_536
    /// What waits to be sent on an agent's coordination stream. At one more its connection is cut.
    package static let waitingResponses = 1_024
    /// Bytes written to a relay's client at once; more waits until its socket takes them.
    package static let relayWriteBytes = 65_536
    /// Longest STUN request that is looked at; a longer one is cut, and so gets no answer.
    package static let stunBytes = 1_500
}
