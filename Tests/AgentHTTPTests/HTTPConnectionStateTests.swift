import Testing

@testable import AgentHTTP

@Suite struct HTTPConnectionStateTests {
    private func head(
        _ state: inout HTTPConnectionState, keepAlive: Bool = true, length: Int? = nil, limit: Int = 10,
        isChunked: Bool = false, refusal: HTTPProblem? = nil, expects: Bool = false
    ) -> HTTPConnectionState.Action {
        state.headArrived(
            keepAlive: keepAlive, expectsContinue: expects,
            body: isChunked || length != nil ? .collected(limit: limit, declared: length) : .none, refusal: refusal)
    }

    @Test func oneRequestAfterAnother() {
        var state = HTTPConnectionState()
        #expect(state.connected() == .start(.idle))
        for _ in 0..<2 {
            #expect(state.bytesArrived() == .start(.header))
            #expect(state.bytesArrived() == .none)
            #expect(head(&state, length: 4) == .collect(sendContinue: false))
            #expect(state.bodyArrived(count: 4) == .append)
            #expect(state.endArrived() == .dispatch)
            #expect(state.responseFinished() == .next)
        }
        #expect(state.phase == .idle)
    }

    @Test func bodyLimitAtBelowAndAbove() {
        for (length, declared) in [(9, true), (10, true), (9, false), (10, false)] {
            var state = HTTPConnectionState()
            #expect(
                head(&state, length: declared ? length : nil, isChunked: !declared, expects: true)
                    == .collect(sendContinue: true))
            #expect(state.bodyArrived(count: length) == .append)
            #expect(state.endArrived() == .dispatch)
        }
        var declared = HTTPConnectionState()
        #expect(head(&declared, length: 11) == .refuse(.tooLarge(limit: 10)))
        var chunked = HTTPConnectionState()
        _ = head(&chunked, isChunked: true)
        #expect(chunked.bodyArrived(count: 10) == .append)
        #expect(chunked.bodyArrived(count: 1) == .refuse(.tooLarge(limit: 10)))
        #expect(chunked.bodyArrived(count: 1) == .none)
        #expect(chunked.endArrived() == .none)
        #expect(chunked.responseFinished() == .linger)
        #expect(chunked.timerFired(.linger) == .close)
    }

    private func streaming(keepAlive: Bool = true, limit: Int = 10) -> HTTPConnectionState {
        var state = HTTPConnectionState()
        let action = state.headArrived(
            keepAlive: keepAlive, expectsContinue: true, body: .streamed(limit: limit, declared: nil), refusal: nil)
        #expect(action == .stream(sendContinue: true))
        return state
    }

    @Test func aStreamedBodyEndsBeforeOrAfterTheAnswer() {
        var whole = streaming()
        #expect(whole.bodyArrived(count: 10) == .append)
        #expect(whole.endArrived() == .endBody)
        whole.responseBegins()
        #expect(whole.responseFinished() == .next)
        var early = streaming()
        early.responseBegins()
        #expect(early.mustClose)
        #expect(early.responseFinished() == .linger)
        #expect(early.endArrived() == .none)
    }

    @Test func aStreamedBodyThatFailsDoesSoThroughItsRoute() {
        var large = streaming()
        #expect(large.bodyArrived(count: 11) == .failBody(.tooLarge(limit: 10)))
        #expect(large.bodyArrived(count: 1) == .none)
        #expect(large.responseFinished() == .linger)
        var slow = streaming()
        #expect(slow.timerFired(.header) == .none)
        #expect(slow.timerFired(.body) == .failBody(.timeout("body")))
        var cut = streaming()
        #expect(cut.inputClosed() == .failBody(.truncated))
        #expect(cut.responseFinished() == .close)
        var broken = streaming()
        #expect(broken.parserFailed(.malformed) == .failBody(.malformed))
        var gone = streaming()
        #expect(gone.closed() == .failBody(.truncated))
        var stopping = streaming()
        #expect(stopping.shutdown() == .none)
        #expect(stopping.endArrived() == .endBody)
        #expect(stopping.responseFinished() == .linger)
        var bare = HTTPConnectionState()
        #expect(head(&bare) == .collect(sendContinue: false))
    }

    @Test func timersCountOnlyInTheirPhase() {
        var state = HTTPConnectionState()
        #expect(state.timerFired(.header) == .none)
        _ = state.bytesArrived()
        #expect(state.timerFired(.idle) == .none)
        #expect(state.timerFired(.header) == .refuse(.timeout("header")))
        #expect(state.timerFired(.header) == .none)

        var body = HTTPConnectionState()
        _ = head(&body, length: 4)
        #expect(body.timerFired(.header) == .none)
        #expect(body.timerFired(.body) == .refuse(.timeout("body")))

        var idle = HTTPConnectionState()
        #expect(idle.timerFired(.idle) == .close)
        #expect(idle.phase == .closed)
    }

    @Test func aRefusalWithoutABodyKeepsTheConnection() {
        var state = HTTPConnectionState()
        let problem = HTTPProblem(.unauthorized, "no")
        #expect(head(&state, refusal: problem) == .refuse(problem))
        #expect(state.endArrived() == .none)
        #expect(state.responseFinished() == .next)

        var withBody = HTTPConnectionState()
        #expect(head(&withBody, length: 4, refusal: problem) == .refuse(problem))
        #expect(withBody.responseFinished() == .linger)
    }

    @Test func halfClosedInEachPhase() {
        var idle = HTTPConnectionState()
        #expect(idle.inputClosed() == .close)

        var header = HTTPConnectionState()
        _ = header.bytesArrived()
        #expect(header.inputClosed() == .refuse(.truncated))
        #expect(header.responseFinished() == .close)

        var body = HTTPConnectionState()
        _ = head(&body, length: 4)
        #expect(body.inputClosed() == .refuse(.truncated))

        var responding = HTTPConnectionState()
        _ = head(&responding)
        _ = responding.endArrived()
        #expect(responding.inputClosed() == .cancel)
        #expect(responding.responseFinished() == .next)
        #expect(responding.drained() == .close)

        var pipelined = HTTPConnectionState()
        _ = head(&pipelined)
        _ = pipelined.endArrived()
        _ = pipelined.inputClosed()
        #expect(pipelined.responseFinished() == .next)
        _ = head(&pipelined, length: 4)
        #expect(pipelined.drained() == .refuse(.truncated))
    }

    @Test func shutdownFinishesWhatRuns() {
        var idle = HTTPConnectionState()
        #expect(idle.shutdown() == .close)
        var responding = HTTPConnectionState()
        _ = head(&responding)
        _ = responding.endArrived()
        #expect(responding.shutdown() == .none)
        #expect(responding.mustClose)
        #expect(responding.responseFinished() == .linger)
    }

    @Test func garbageBehindARequestIsSeenAfterItsAnswer() {
        var state = HTTPConnectionState()
        _ = head(&state)
        _ = state.endArrived()
        #expect(state.parserFailed(.malformed) == .none)
        #expect(state.responseFinished() == .next)
        #expect(state.drained() == .refuse(.malformed))
        #expect(state.responseFinished() == .linger)
        var early = HTTPConnectionState()
        #expect(early.parserFailed(.malformed) == .refuse(.malformed))
    }

    @Test func theLastRequestCloses() {
        var state = HTTPConnectionState()
        _ = head(&state, keepAlive: false)
        _ = state.endArrived()
        #expect(state.responseFinished() == .linger)
        #expect(state.inputClosed() == .close)
        #expect(state.closed() == .none)
    }
}
