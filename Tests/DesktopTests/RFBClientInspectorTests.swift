import Testing

@testable import Desktop

@Suite struct RFBClientInspectorTests {
    static let hello = Array("RFB 003.008\n".utf8) + [1, 1]
    static func pointer(_ mask: UInt8, _ x: UInt16, _ y: UInt16) -> [UInt8] {
        [5, mask, UInt8(x >> 8), UInt8(x & 255), UInt8(y >> 8), UInt8(y & 255)]
    }

    private func inspect(_ bytes: [UInt8], step: Int = .max) -> RFBClientInspector {
        var inspector = RFBClientInspector()
        var rest = bytes[...]
        while !rest.isEmpty {
            Array(rest.prefix(step)).withUnsafeBytes { inspector.consume($0) }
            rest = rest.dropFirst(step)
        }
        return inspector
    }

    /// Each message that a viewer may send, with a payload that looks like pointer events.
    static let messages: [[UInt8]] = {
        let noise = pointer(7, 1, 2)
        return [
            [0] + Array(repeating: 5, count: 19),
            [2, 0, 0, 2] + [0, 0, 0, 5] + [0xFF, 0xFF, 0xFF, 0x11],
            [2, 0, 0, 0],
            [3, 1] + Array(repeating: 5, count: 8),
            [4, 1, 0, 0, 0, 0, 0, 5],
            [6, 0, 0, 0, 0, 0, 0, 6] + noise,
            [6, 0, 0, 0, 0, 0, 0, 0],
            // -6: an extended clipboard message.
            [6, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFA] + noise,
            [150, 1] + Array(repeating: 5, count: 8),
            [248, 0, 0, 0, 0, 0, 0, 5, 6] + noise,
            [248, 0, 0, 0, 0, 0, 0, 5, 0],
            [250, 0, 1, 2],
            [251, 0, 4, 0, 3, 0, 1, 0] + Array(repeating: 5, count: 16),
            [255, 0, 0, 1] + Array(repeating: 5, count: 8),
            [255, 1, 0, 0],
            [255, 1, 0, 2] + noise,
        ]
    }()

    @Test(arguments: [1, 2, 3, 7, .max])
    func followsEveryMessage(step: Int) {
        for message in Self.messages {
            let inspector = inspect(
                Self.hello + message + Self.pointer(1, 300, 200) + message, step: step)
            #expect(inspector.isInspecting && inspector.isAtBoundary, "\(message)")
            #expect(inspector.mask == 1 && inspector.x == 300 && inspector.y == 200, "\(message)")
            // A key event, QEMU's, too, is one, and comes twice.
            let isKey = message.first == 4 || message.starts(with: [255, 0])
            #expect(inspector.events == (isKey ? 3 : 1) && inspector.presses == 1, "\(message)")
            #expect(inspector.releasingEvent == Self.pointer(0, 300, 200))
        }
    }

    @Test func knowsTheHandshakesOfAllVersions() {
        for version in ["RFB 003.003\n", "RFB 003.007\n", "RFB 003.008\n"] {
            let security: [UInt8] = version == "RFB 003.003\n" ? [] : [1]
            let inspector = inspect(Array(version.utf8) + security + [1] + Self.pointer(4, 1, 2))
            #expect(inspector.mask == 4, "\(version)")
        }
    }

    @Test func aReleasedButtonNeedsNothing() {
        let inspector = inspect(Self.hello + Self.pointer(1, 5, 5) + Self.pointer(0, 6, 6))
        #expect(inspector.releasingEvent == nil && !inspector.mayHoldButtons && inspector.events == 2)
    }

    @Test func nothingIsPutInsideAMessage() {
        let inspector = inspect(Self.hello + Self.pointer(1, 5, 5) + [6, 0, 0, 0, 0, 0, 0, 9, 1])
        #expect(inspector.releasingEvent == nil && inspector.mayHoldButtons)
    }

    @Test func whatItDoesNotKnowEndsTheInspection() {
        for message: [UInt8] in [[99], [255, 9, 0, 0]] {
            let inspector = inspect(Self.hello + message + Self.pointer(1, 5, 5))
            #expect(!inspector.isInspecting && inspector.mayHoldButtons && inspector.releasingEvent == nil)
        }
        // Security types with a conversation of their own, and other protocols.
        #expect(!inspect(Array("RFB 003.008\n".utf8) + [2] + Array(repeating: 0, count: 16)).isInspecting)
        #expect(!inspect(Array("GET / HTTP/1.1\r\n".utf8)).isInspecting)
    }

    @Test func extendedButtonsAreAmbiguous() {
        let offer: [UInt8] = [2, 0, 0, 1, 0xFF, 0xFF, 0xFE, 0xC4]
        #expect(inspect(Self.hello + offer + Self.pointer(1, 5, 5)).mask == 1)
        let extended = inspect(Self.hello + offer + Self.pointer(0x81, 5, 5))
        #expect(!extended.isInspecting && extended.mayHoldButtons)
        #expect(inspect(Self.hello + Self.pointer(0x81, 5, 5)).mask == 0x81)
    }
}
