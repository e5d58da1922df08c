import FoundationEssentials
import Logging

/// Which AI chat a request belongs to, from the headers `Coder-Chat-Id` and
/// `Coder-Ancestor-Chat-Ids` (spec: HTTP API, chat identity).
public struct ChatIdentity: Sendable, Equatable {
    /// Header with the chat's UUID.
    public static let chatHeader = "Coder-Chat-Id"
    /// Header with a JSON array of the UUIDs of the chats that led to it.
    public static let ancestorsHeader = "Coder-Ancestor-Chat-Ids"
    /// Ancestors kept of one request; a longer array is cut.
    public static let maximumAncestors = 100

    public var id: UUID
    /// Outermost first, as the caller sent them.
    public var ancestors: [UUID]

    public init(id: UUID, ancestors: [UUID] = []) {
        self.id = id
        self.ancestors = ancestors
    }

    /// Reads the two header values. A missing or malformed chat id is no chat; malformed entries
    /// of the ancestor array are skipped, and a malformed array counts as empty.
    public init?(chatHeader: String?, ancestorsHeader: String?) {
        guard let chatHeader, let id = UUID(uuidString: chatHeader) else { return nil }
        self.init(id: id, ancestors: Self.parseAncestors(ancestorsHeader))
    }

    /// The chat itself and then its ancestors.
    public var lineage: [UUID] { [id] + ancestors }

    /// What every log line about the chat carries.
    public var logMetadata: Logger.Metadata {
        var metadata: Logger.Metadata = ["chat_id": "\(id.lowercased)"]
        if !ancestors.isEmpty {
            metadata["ancestor_chat_ids"] = "\(ancestors.map(\.lowercased).joined(separator: ","))"
        }
        return metadata
    }

    private static func parseAncestors(_ header: String?) -> [UUID] {
        guard let header,
            let entries = try? JSONDecoder().decode([LenientString].self, from: Data(header.utf8))
        else { return [] }
        return Array(entries.lazy.compactMap { $0.value.flatMap(UUID.init(uuidString:)) }.prefix(maximumAncestors))
    }

    /// An array entry that may be of any JSON type.
    private struct LenientString: Decodable {
        let value: String?
        init(from decoder: any Decoder) throws {
            value = try? decoder.singleValueContainer().decode(String.self)
        }
    }
}

extension UUID {
    /// The lower-case form that the HTTP API uses.
    public var lowercased: String { uuidString.lowercased() }
}
