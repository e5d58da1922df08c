import AgentCore

/// Server-sent events of an answer.
package struct LocalEvents {
    /// Of one event.
    private static let eventBytes = 64 << 20

    private let response: LocalResponse
    private var reader = ServerSentEventReader(limit: eventBytes)
    private var events: ArraySlice<ServerSentEventReader.Event> = []

    package init(_ response: LocalResponse) { self.response = response }

    /// The next event with data; nil at the end of the stream.
    /// - Throws: ``CommandFailure``.
    package mutating func next() throws -> ServerSentEventReader.Event? {
        while events.isEmpty {
            guard let bytes = try response.next() else { return nil }
            do { events = try reader.read(bytes)[...] } catch {
                throw CommandFailure(message: "the agent's answer cannot be read: \(error)")
            }
        }
        return events.popFirst()
    }
}
