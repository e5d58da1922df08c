import FoundationEssentials
import Glibc
import Logging

/// Which AI chat a request belongs to, from the headers `Coder-Chat-Id` and
/// `Coder-Ancestor-Chat-Ids` (docs/contracts/http-api.md#chat-identity).
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

    /// Reads the two header values. A missing, malformed or all-zero chat id is not a chat; such entries
    /// of the ancestor array are skipped, and a malformed array counts as empty.
    public init?(chatHeader: String?, ancestorsHeader: String?) {
        guard let chatHeader, let id = Self.chatID(chatHeader) else { return nil }
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

    /// The chat that a text names: a UUID that is not all zero.
    public static func chatID(_ text: String) -> UUID? {
        UUID(uuidString: text).flatMap { $0.isAllZero ? nil : $0 }
    }

    private static func parseAncestors(_ header: String?) -> [UUID] {
        guard let header,
            let entries = try? JSONDecoder().decode([LenientString].self, from: Data(header.utf8))
        else { return [] }
        return Array(entries.lazy.compactMap { $0.value.flatMap(chatID) }.prefix(maximumAncestors))
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
    /// What other programs send for "none".
    public var isAllZero: Bool { withUnsafeBytes(of: uuid) { $0.allSatisfy { $0 == 0 } } }

    /// The lower-case form that the HTTP API uses. Written here: `uuidString` goes through a format string.
    public var lowercased: String {
        withUnsafeBytes(of: uuid) { bytes in
            String(unsafeUninitializedCapacity: 36) { text in
                var end = 0
                for (index, byte) in bytes.enumerated() {
                    if index == 4 || index == 6 || index == 8 || index == 10 {
                        text[end] = UInt8(ascii: "-")
                        end += 1
                    }
                    for digit in [byte >> 4, byte & 0xf] {
                        text[end] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
                        end += 1
                    }
                }
                return end
            }
        }
    }

    /// As `UUID()`, which opens and reads /dev/urandom each time.
    public static func random() -> UUID {
        var id: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        let isFilled = withUnsafeMutableBytes(of: &id) { getentropy($0.baseAddress, $0.count) == 0 }
        guard isFilled else { return UUID() }
        // Version 4, variant 1 (RFC 9562).
        id.6 = id.6 & 0x0f | 0x40
        id.8 = id.8 & 0x3f | 0x80
        return UUID(uuid: id)
    }
}
