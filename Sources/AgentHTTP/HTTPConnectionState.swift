import HTTPTypes

/// The states of one HTTP/1.1 server connection, without I/O: events in, actions out.
///
/// Requests are handled strictly one after the other, so pipelined ones are answered in order. An
/// event that a phase does not expect is dropped (late parts of a refused upload, timers that lost
/// a race); none traps, because all of them can be provoked from outside.
struct HTTPConnectionState {
    enum Timer: Equatable {
        case idle, header, body, linger
    }

    enum Phase: Equatable {
        /// Between requests, nothing received.
        case idle
        /// The first bytes of a request have arrived, its header is not complete.
        case header
        /// The header is accepted, the body is being collected.
        case body
        /// The request is with its route, which takes the body as it comes.
        case streaming
        /// The request is with its route, or its refusal is being written.
        case responding
        /// The last answer is written; what the peer still sends is discarded.
        case lingering
        /// The connection speaks another protocol now.
        case upgraded
        case closed
    }

    /// The body that follows a head: bytes that the route accepts, and `Content-Length` where it is given.
    enum Body: Equatable {
        case none
        case collected(limit: Int, declared: Int?)
        /// The route reads it as it comes.
        case streamed(limit: Int, declared: Int?)
    }

    /// What the handler does next, in this order: timers, then the rest.
    enum Action: Equatable {
        case none
        /// Start (replacing any other) this timer.
        case start(Timer)
        /// Accept the header: start the body timer and, when asked, send 100 Continue.
        case collect(sendContinue: Bool)
        /// Keep these body bytes.
        case append
        /// The request is complete: run its route.
        case dispatch
        /// Run the route, which takes the body as it comes; the first time that it asks for bytes, send 100 Continue
        /// where that is expected.
        case stream(sendContinue: Bool)
        /// The body that a route takes as it comes is complete.
        case endBody
        /// It will not be complete.
        case failBody(HTTPProblem)
        /// Answer with this problem and close afterwards.
        case refuse(HTTPProblem)
        /// The answer is written: handle the next pipelined request or read more.
        case next
        /// Send the end of the stream, discard what arrives, close when the peer does.
        case linger
        /// Notify the running route that its client has disconnected.
        case cancel
        case close
    }

    private(set) var phase = Phase.idle
    /// The answer must be the connection's last.
    private(set) var mustClose = false
    /// Whether the peer may send more.
    private(set) var inputOpen = true
    /// What is wrong with the bytes after the requests that arrived completely.
    private var trailingProblem: HTTPProblem?
    private var bodyLimit = 0
    private var bodyCount = 0

    mutating func connected() -> Action { .start(.idle) }

    mutating func bytesArrived() -> Action {
        guard phase == .idle else { return .none }
        phase = .header
        return .start(.header)
    }

    /// - Parameters:
    ///   - keepAlive: whether the peer wants to go on after this request.
    ///   - refusal: why the request is refused whatever its body is.
    mutating func headArrived(
        keepAlive: Bool, expectsContinue: Bool, body: Body, refusal: HTTPProblem?
    ) -> Action {
        guard phase == .idle || phase == .header else { return .none }
        if !keepAlive { mustClose = true }
        if let refusal {
            phase = .responding
            // Without a body the connection is in step and may go on.
            if body != .none { mustClose = true }
            return .refuse(refusal)
        }
        bodyCount = 0
        switch body {
        case .none:
            bodyLimit = 0
            phase = .body
            return .collect(sendContinue: expectsContinue)
        case .collected(let limit, let declared), .streamed(let limit, let declared):
            if let declared, declared > limit { return refuse(.tooLarge(limit: limit)) }
            bodyLimit = limit
            guard case .streamed = body else {
                phase = .body
                return .collect(sendContinue: expectsContinue)
            }
            phase = .streaming
            return .stream(sendContinue: expectsContinue)
        }
    }

    mutating func bodyArrived(count: Int) -> Action {
        guard phase == .body || phase == .streaming else { return .none }
        bodyCount += count
        guard bodyCount <= bodyLimit else { return refuse(.tooLarge(limit: bodyLimit)) }
        return .append
    }

    mutating func endArrived() -> Action {
        guard phase == .body || phase == .streaming else { return .none }
        defer { phase = .responding }
        return phase == .body ? .dispatch : .endBody
    }

    /// The route answers. A body that has not arrived by now is not waited for.
    mutating func responseBegins() {
        if phase == .streaming { mustClose = true }
    }

    /// The bytes are not HTTP, or end in the middle of a request.
    mutating func parserFailed(_ problem: HTTPProblem) -> Action {
        switch phase {
        case .idle, .header, .body, .streaming: return refuse(problem)
        case .responding:
            // After complete requests, which are answered first.
            trailingProblem = problem
            return .none
        case .lingering, .upgraded, .closed: return .none
        }
    }

    mutating func responseFinished() -> Action {
        guard phase == .responding || phase == .streaming else { return .none }
        if mustClose {
            guard inputOpen else {
                phase = .closed
                return .close
            }
            phase = .lingering
            return .linger
        }
        phase = .idle
        return .next
    }

    /// All that had arrived is handled.
    mutating func drained() -> Action {
        if let trailingProblem, phase != .responding, phase != .lingering, phase != .upgraded, phase != .closed {
            self.trailingProblem = nil
            return refuse(trailingProblem)
        }
        guard !inputOpen else { return .none }
        switch phase {
        case .idle:
            phase = .closed
            return .close
        case .header, .body, .streaming: return refuse(.truncated)
        case .responding, .lingering, .upgraded, .closed: return .none
        }
    }

    mutating func upgradeFinished() {
        if phase == .responding { phase = .upgraded }
    }

    /// The peer sends nothing more; it may still read (half-closed).
    mutating func inputClosed() -> Action {
        inputOpen = false
        switch phase {
        case .idle, .lingering:
            phase = .closed
            return .close
        case .header, .body, .streaming:
            return refuse(.truncated)
        case .responding:
            // Complete requests may wait after this one; they are answered, too.
            return .cancel
        case .upgraded, .closed:
            return .none
        }
    }

    mutating func timerFired(_ timer: Timer) -> Action {
        switch (timer, phase) {
        case (.idle, .idle), (.linger, .lingering):
            phase = .closed
            return .close
        case (.header, .header): return refuse(.timeout("header"))
        case (.body, .body), (.body, .streaming): return refuse(.timeout("body"))
        default: return .none
        }
    }

    /// No further request is taken; the one that runs is finished.
    mutating func shutdown() -> Action {
        mustClose = true
        switch phase {
        case .idle, .header, .body, .lingering:
            phase = .closed
            return .close
        case .streaming, .responding, .upgraded, .closed: return .none
        }
    }

    mutating func closed() -> Action {
        defer { phase = .closed }
        return switch phase {
        case .responding: .cancel
        case .streaming: .failBody(.truncated)
        default: .none
        }
    }

    /// Answers with the problem; where a route runs already, through that.
    private mutating func refuse(_ problem: HTTPProblem) -> Action {
        let isRunning = phase == .streaming
        phase = .responding
        mustClose = true
        return isRunning ? .failBody(problem) : .refuse(problem)
    }
}

extension HTTPProblem {
    static func tooLarge(limit: Int) -> HTTPProblem {
        HTTPProblem(.contentTooLarge, "Request body is too large.", detail: "The limit is \(limit) bytes.")
    }

    static func timeout(_ part: String) -> HTTPProblem {
        HTTPProblem(.requestTimeout, "The request \(part) did not arrive in time.")
    }

    static let truncated = HTTPProblem(.badRequest, "The request ended before it was complete.")
    static let malformed = HTTPProblem(.badRequest, "The request is not valid HTTP/1.1.")
    static let headersTooLarge = HTTPProblem(
        .requestHeaderFieldsTooLarge, "The request header is too large.",
        detail: "The limit is \(HTTPLimits.headerFields) fields and \(HTTPLimits.headerBytes) bytes.")
    static let uriTooLong = HTTPProblem(
        .uriTooLong, "The request URI is too long.", detail: "The limit is \(HTTPLimits.uriBytes) bytes.")
}
