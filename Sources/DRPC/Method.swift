import SwiftProtobuf

/// How many messages go each way in a call.
public enum MethodKind: Sendable, Equatable {
    /// One request, one response.
    case unary
    /// Many requests, one response.
    case clientStreaming
    /// One request, many responses.
    case serverStreaming
    /// Many requests, many responses, in any order.
    case bidirectional

    var hasSingleRequest: Bool { self == .unary || self == .serverStreaming }
    var hasSingleResponse: Bool { self == .unary || self == .clientStreaming }
}

/// The description of one rpc that client and server share.
public struct Method<Request: Message, Response: Message>: Sendable {
    /// The name on the wire: `/package.Service/Method`.
    public let name: String
    public let kind: MethodKind

    public init(_ name: String, _ kind: MethodKind = .unary) {
        self.name = name
        self.kind = kind
    }
}
