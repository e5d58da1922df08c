import FoundationEssentials

/// JSON that a client sends over a WebSocket. Text that is not JSON ends the connection; a message of a kind that we do
/// not know does not, for a newer client may send it.
public enum ClientMessage {
    /// The message as the type; nil when it is other JSON.
    /// - Throws: when it is not JSON.
    public static func decode<T: Decodable & Sendable>(_ type: T.Type, from text: String) async throws -> T? {
        try await JSONWork.run(bytes: text.utf8.count) {
            let data = Data(text.utf8)
            try JSONShape.check(data, mustBeObject: false)
            _ = try JSONDecoder().decode(AnyJSON.self, from: data)
            return try? JSONDecoder().decode(T.self, from: data)
        }
    }
}

/// Any JSON. All of it is decoded, since the decoder finds a malformed number or escape only then.
private struct AnyJSON: Decodable {
    private struct Name: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    init(from decoder: any Decoder) throws {
        if let object = try? decoder.container(keyedBy: Name.self) {
            for name in object.allKeys { _ = try object.decode(AnyJSON.self, forKey: name) }
        } else if var array = try? decoder.unkeyedContainer() {
            while !array.isAtEnd { _ = try array.decode(AnyJSON.self) }
        } else {
            let value = try decoder.singleValueContainer()
            if value.decodeNil() || (try? value.decode(Bool.self)) != nil { return }
            if (try? value.decode(String.self)) == nil { _ = try value.decode(Double.self) }
        }
    }
}
