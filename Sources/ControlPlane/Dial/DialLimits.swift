import NIOCore

/// Every bound of the way to the control plane, and what happens at it.
package enum DialLimits {
    /// Bytes of an answer's body that is read for its error message; the rest is cut off.
    package static let errorBodyBytes = 64 << 10
    /// Bytes of a body that we use; a longer one is an error.
    package static let bodyBytes = 1 << 20
    /// Nesting of a JSON value that is passed on; a deeper one is left out.
    package static let jsonDepth = 32
    /// Bytes of all header fields of an answer; more is an error.
    package static let headerBytes = 64 << 10
    /// Bytes of a proxy's answer to CONNECT; more is an error.
    package static let proxyHeadBytes = 16 << 10
    /// Characters of a peer's text in an error message; longer ones are cut.
    package static let messageCharacters = 500
    /// Bytes of a token file; more is an error.
    package static let tokenFileBytes = 64 << 10
    /// Bytes of a file of certificates; more is an error.
    package static let caFileBytes = 4 << 20
    /// Bytes that the header command may print; more is an error.
    package static let headerCommandBytes = 64 << 10
    /// Extra header fields, from flags and command together; more is an error.
    package static let extraHeaders = 64
    /// Bytes of the link that wait in the kernel to be sent. At it the link is not writable.
    package static let unsentBytes = 128 << 10
    /// Bytes of one line of an event stream, and of one event's data; more is an error.
    package static let eventBytes = 64 << 10
}

/// How long each step to the control plane may take.
package struct DialTimes: Sendable {
    /// TCP, name look-up included.
    package var connect: TimeAmount = .seconds(10)
    /// The whole way to an open WebSocket.
    package var dial: TimeAmount = .seconds(30)
    /// The header command.
    package var headerCommand: Duration = .seconds(10)
    /// A REST request, to the end of its answer.
    package var request: TimeAmount = .seconds(30)
    /// A request to the cloud's metadata service.
    package var metadata: TimeAmount = .seconds(5)
    /// A request that waits for something to happen, to the end of its answer.
    package var longPoll: TimeAmount = .minutes(10)

    package init() {}
}
