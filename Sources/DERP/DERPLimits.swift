/// Every bound and time of the relay protocol, and what happens at each (docs/contracts/derp.md#bounds).
package enum DERPLimits {
    /// Payload of a frame. A longer one ends the connection.
    package static let frameBytes = 1_048_576
    /// A packet in a frame. A longer one is dropped.
    package static let packetBytes = 65_536
    /// Packets that wait to be sent: to a relay the newest is dropped, by a relay to its client the oldest.
    package static let queuedPackets = 512
    /// Answers to pings and the like that wait to be sent. At it a ping stays unanswered, and a relay's client does not
    /// hear of keys that are not here or have gone.
    package static let controlBytes = 4_096
    /// Box in server info and client info. A longer one ends the connection.
    package static let infoBytes = 16_384
    /// Bytes of a relay's health text that are kept.
    package static let healthBytes = 1_024
    /// The smallest burst that a relay's limit gives us: a full disco or WireGuard packet in its frame fits.
    package static let leastBurst = 2_048

    /// From the dial until the relay has answered our client info.
    package static let greeting: Duration = .seconds(10)
    /// Without any byte from the relay for so long, the connection is dead.
    package static let silence: Duration = .seconds(120)
    /// Between two keep-alives of a relay.
    package static let keepAlive: Duration = .seconds(60)
    /// The first delay before dialling again; it doubles up to ``longestRedial``.
    package static let firstRedial: Duration = .milliseconds(250)
    package static let longestRedial: Duration = .seconds(5)
    /// The longest that a restarting relay can make us wait before we dial.
    package static let longestReconnectIn: Duration = .seconds(60)
    /// The longest during which a restarting relay's failed dials count as expected.
    package static let longestTryFor: Duration = .seconds(300)
    /// A connection to another relay than home's closes so long after its last write.
    package static let idle: Duration = .seconds(60)

    /// Regions of a map; those with the highest ids are left out.
    package static let regions = 256
    /// Nodes of a region; the last are left out.
    package static let nodesPerRegion = 16
    /// Peers whose relay is remembered; the one heard longest ago is forgotten.
    package static let routes = 1_024

    /// Between two measurements of the regions, and the age at which a measured latency is forgotten.
    package static let measureEvery: Duration = .seconds(300)
    /// How long a region may take to answer.
    package static let measureFor: Duration = .seconds(5)
    /// From the end of a measurement to one that a relay's error causes.
    package static let measureGap: Duration = .seconds(10)
    /// Samples kept for a region; the oldest is forgotten.
    package static let samples = 16
    /// Home changes only when that is gained.
    package static let leastGain: Duration = .milliseconds(10)

    /// Connections that the relay of the simulator serves; a further one is refused.
    package static let relayClients = 4_096
}

/// Why a connection to a relay is over.
package enum DERPError: Error, Hashable, CustomStringConvertible {
    case frameTooLong(type: UInt8, bytes: Int)
    case noServerKey(type: UInt8)
    case badServerKey
    case badServerInfo(String)
    case badClientInfo(String)
    case greetingTimeout
    case silence
    case tooManyClients

    package var description: String {
        switch self {
        case .frameTooLong(let type, let bytes): "a frame of type \(type) and \(bytes) bytes, over 1 MiB, came"
        case .noServerKey(let type): "the relay's first frame has type \(type) and is not its key"
        case .badServerKey: "the relay's key is of low order"
        case .badServerInfo(let why): "the relay's server info \(why)"
        case .badClientInfo(let why): "the client's info \(why)"
        case .greetingTimeout: "the relay did not finish the greeting in \(DERPLimits.greeting)"
        case .silence: "nothing came from the relay for \(DERPLimits.silence)"
        case .tooManyClients: "the relay serves \(DERPLimits.relayClients) connections already"
        }
    }
}
