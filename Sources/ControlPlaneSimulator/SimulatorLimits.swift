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
    /// Encoded bytes of one BatchCreateLogs. A larger one is refused (spec: control plane, Logs).
    package static let logBatchBytes = 1 << 20
    /// UTF-8 bytes of a metadata value. A longer one is refused (spec: control plane, Metadata).
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
}
