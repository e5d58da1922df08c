import NIOCore
import NIOWebSocket
import Testing

@testable import WebSockets

@Suite struct WebSocketStateTests {
    private let key = WebSocketMaskingKey([1, 2, 3, 4])

    private func frame(
        _ opcode: WebSocketOpcode, _ text: String = "", fin: Bool = true, masked: Bool = true, rsv1: Bool = false
    ) -> WebSocketFrame {
        var data = ByteBuffer(string: text)
        if masked, let key { data.webSocketMask(key) }
        return WebSocketFrame(fin: fin, rsv1: rsv1, opcode: opcode, maskKey: masked ? key : nil, data: data)
    }

    private func frame(_ opcode: WebSocketOpcode, bytes: [UInt8]) -> WebSocketFrame {
        var data = ByteBuffer(bytes: bytes)
        if let key { data.webSocketMask(key) }
        return WebSocketFrame(fin: true, opcode: opcode, maskKey: key, data: data)
    }

    private func server(_ limit: Int? = 10) -> WebSocketState { WebSocketState(role: .server, maximumMessage: limit) }

    @Test func messagesWholeAndInPieces() {
        var state = server()
        #expect(state.received(frame(.text, "hello")) == .deliver(.text("hello")))
        #expect(state.received(frame(.text, "he", fin: false)) == .none)
        #expect(state.received(frame(.ping, "p")) == .sendPong(ByteBuffer(string: "p")))
        #expect(state.received(frame(.continuation, "l", fin: false)) == .none)
        #expect(state.received(frame(.continuation, "lo")) == .deliver(.text("hello")))
        #expect(state.received(frame(.binary, "x")) == .deliver(.binary(ByteBuffer(string: "x"))))
    }

    @Test func sizeLimitAtBelowAndAbove() {
        for (size, fits) in [(9, true), (10, true), (11, false)] {
            var whole = server()
            let text = String(repeating: "a", count: size)
            let action = whole.received(frame(.text, text))
            var pieces = server()
            _ = pieces.received(frame(.text, "a", fin: false))
            let last = pieces.received(frame(.continuation, String(text.dropFirst())))
            if fits {
                #expect(action == .deliver(.text(text)) && last == .deliver(.text(text)))
            } else {
                guard case .sendClose(1009, _) = action, case .sendClose(1009, _) = last else {
                    Issue.record("\(action) \(last)")
                    return
                }
            }
        }
        var unlimited = server(nil)
        let large = String(repeating: "a", count: 1 << 20)
        #expect(unlimited.received(frame(.text, large)) == .deliver(.text(large)))
    }

    @Test func violationsCloseWith1002() {
        let bad: [[WebSocketFrame]] = [
            [frame(.text, "x", masked: false)],
            [frame(.text, "x", rsv1: true)],
            [frame(.continuation, "x")],
            [frame(.text, "x", fin: false), frame(.text, "y")],
            [frame(WebSocketOpcode(encodedWebSocketOpcode: 3)!, "x")],
        ]
        for frames in bad {
            var state = server()
            let last = frames.map { state.received($0) }.last
            guard case .sendClose(1002, _) = last else {
                Issue.record("\(String(describing: last))")
                continue
            }
            #expect(!state.isOpen)
        }
    }

    @Test func textThatIsNotUTF8Closes1007() {
        var state = server()
        guard case .sendClose(1007, _) = state.received(frame(.text, bytes: [0xFF])) else {
            Issue.record("accepted")
            return
        }
    }

    @Test func closeHandshakeBothWays() {
        var theirs = server()
        #expect(theirs.received(frame(.connectionClose, bytes: [0x03, 0xE8])) == .answerCloseAndEnd(.normal))
        #expect(theirs.received(frame(.text, "late")) == .none)
        var empty = server()
        #expect(empty.received(frame(.connectionClose)) == .answerCloseAndEnd(.normal))

        var ours = server()
        #expect(ours.close(.goingAway, "") == .sendClose(.goingAway, ""))
        #expect(ours.close(.normal, "") == .none)
        #expect(ours.received(frame(.text, "x")) == .none)
        #expect(ours.received(frame(.connectionClose, bytes: [0x03, 0xE9])) == .end)

        var silent = server()
        _ = silent.close(.normal, "")
        #expect(silent.closeTimedOut() == .end)
        #expect(silent.closeTimedOut() == .none)
    }

    @Test func closeCodesInAndOutOfRange() {
        func answer(_ payload: [UInt8]) -> WebSocketState.Action {
            var state = server(nil)
            let action = state.received(frame(.connectionClose, bytes: payload))
            #expect(!state.isOpen)
            return action
        }
        func bytes(_ code: UInt16) -> [UInt8] { [UInt8(code >> 8), UInt8(code & 255)] }
        for code: UInt16 in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1014, 3000, 3999, 4000, 4999] {
            #expect(answer(bytes(code)) == .answerCloseAndEnd(.init(code)), "\(code)")
            #expect(answer(bytes(code) + Array("grüß".utf8)) == .answerCloseAndEnd(.init(code)), "\(code)")
        }
        for code: UInt16 in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
            #expect(answer(bytes(code)) == .answerCloseAndEnd(.protocolError), "\(code)")
        }
        for half: UInt8 in [0, 3, 255] { #expect(answer([half]) == .answerCloseAndEnd(.protocolError)) }
        #expect(answer([0x03, 0xE8, 0xFF]) == .answerCloseAndEnd(.invalidPayload))
        #expect(answer([0x03, 0xE8, 0xC3]) == .answerCloseAndEnd(.invalidPayload))
        // What comes in answer to ours ends it whatever it says.
        var ours = server()
        _ = ours.close(.normal, "")
        #expect(ours.received(frame(.connectionClose, bytes: [0])) == .end)
    }

    @Test func noPongMeansGone() {
        var state = server()
        #expect(state.pingDue() == .sendPing)
        #expect(state.pongDue(isSilent: false) == .none)
        #expect(state.received(frame(.pong)) == .none)
        #expect(state.pongDue(isSilent: true) == .none)
        #expect(state.pingDue() == .sendPing)
        #expect(state.pongDue(isSilent: true) == .sendClose(.goingAway, "no pong"))
    }

    @Test func aClientTakesUnmaskedFramesOnly() {
        var client = WebSocketState(role: .client, maximumMessage: nil)
        #expect(client.received(frame(.text, "x", masked: false)) == .deliver(.text("x")))
        guard case .sendClose(1002, _) = client.received(frame(.text, "x")) else {
            Issue.record("accepted")
            return
        }
    }
}
