import AgentTestSupport
import CDesktop
import Foundation
import Glibc
import Testing

@testable import Desktop

/// The clipboard of a real Xtigervnc, with xclip as the other program.
@Suite(.timeLimit(.minutes(15))) struct ClipboardTests {
    private static func get(_ driver: RFBDriver) async throws -> String? {
        try await driver.perform(action("clipboard_get", text: nil)).output
    }

    /// Puts a text on a selection, and returns when the X server says so.
    private static func own(_ xvnc: Xvnc, _ text: String, _ selection: String = "clipboard") async throws {
        let file = "\(xvnc.directory.path)/\(selection)"
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        try xvnc.start(["xclip", "-in", "-quiet", "-selection", selection, file])
        try await eventually("xclip owns the \(selection)") { (try? read(xvnc, selection)) == text }
    }

    private static func read(_ xvnc: Xvnc, _ selection: String = "clipboard") throws -> String {
        try xvnc.run("timeout", "20", "xclip", "-out", "-selection", selection, "-target", "UTF8_STRING")
    }

    @Test func isEmptyAtFirst() async throws {
        try await withDesktop { _, driver in
            let text = try await Self.get(driver)
            #expect(text == "")
        }
    }

    @Test func whatIsSetCanBePasted() async throws {
        // As the session starts it: the default is 256 KiB, and it drops more in silence.
        try await withDesktop(arguments: ["-MaxCutText=2097216"]) { xvnc, driver in
            for text in [
                "plain", "two\nlines\n", "\r\n", "old\rmac\r\r\nand\n\rmore", "", "he said \"hé\" €🙂",
                String(repeating: "0123456789\n", count: 50_000),
            ] {
                let result = try await driver.perform(action("clipboard_set", text: text))
                #expect(result.output == "clipboard_set action performed")
                // LF, for us and for programs.
                let expected = text.replacingOccurrences(of: "\r\n", with: "\n").replacingOccurrences(
                    of: "\r", with: "\n")
                #expect(try await Self.get(driver) == expected)
                for selection in ["clipboard", "primary"] where !text.isEmpty {
                    #expect(try Self.read(xvnc, selection) == expected)
                }
            }
        }
    }

    @Test func whatAProgramCopiedIsRead() async throws {
        try await withDesktop { xvnc, driver in
            for text in ["one", "zwei\n€ 🙂\n", String(repeating: "é", count: 100_000)] {
                try await Self.own(xvnc, text)
                try await eventually("the text") { try await Self.get(driver) == text }
            }
            try await driver.perform(action("clipboard_set", text: "mine"))
            #expect(try await Self.get(driver) == "mine")
            try await Self.own(xvnc, "theirs", "primary")
            try await eventually("what is selected") { try await Self.get(driver) == "theirs" }
        }
    }

    /// The clipboard that a client set survives a text that has to be pasted.
    @Test func pastingBringsTheTextBack() async throws {
        try await withDesktop(isFresh: false) { xvnc, driver in
            let terminal = try await xvnc.terminal()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[200,200]}"#)
            try await driver.perform(action("clipboard_set", text: "kept"))
            try await driver.type("龍é")
            try await terminal.receives("龍é")
            #expect(try await Self.get(driver) == "kept")
            #expect(try Self.read(xvnc) == "kept")
        }
    }

    /// Whichever way the text goes and comes: over messages, over xclip, and from a program.
    @Test(arguments: [true, false]) func lineEndsAreTheSameBothWays(hasClipboard: Bool) async throws {
        try await withDesktop(commands: true, hasClipboard: hasClipboard) { xvnc, driver in
            let text = "a\r\nb\rc\nd\r\n"
            try await driver.perform(action("clipboard_set", text: text))
            #expect(try await Self.get(driver) == "a\nb\nc\nd\n")
            #expect(try Self.read(xvnc) == "a\nb\nc\nd\n")
            try await Self.own(xvnc, text)
            try await Self.own(xvnc, text, "primary")
            try await eventually("the program's") { try await Self.get(driver) == "a\nb\nc\nd\n" }
        }
    }

    @Test func isReadFromTheXServerAfterAViewer() async throws {
        try await withDesktop(commands: true) { xvnc, driver in
            try await driver.perform(action("clipboard_set", text: "old"))
            driver.viewerCame()
            driver.viewerSentInput()
            // Of a viewer's text the server tells no other client.
            let viewer = try await xvnc.driver()
            try await viewer.perform(action("clipboard_set", text: "of the viewer"))
            #expect(try await Self.get(driver) == "of the viewer")
            await viewer.close()
        }
    }

    @Test func xclipStandsIn() async throws {
        try await withDesktop(commands: true, hasClipboard: false) { xvnc, driver in
            #expect(try await Self.get(driver) == "")
            let text = String(repeating: "0123456789abcdé\n", count: 20_000)
            try await driver.perform(action("clipboard_set", text: text))
            #expect(try Self.read(xvnc) == text)
            #expect(try await Self.get(driver) == text)
            try await Self.own(xvnc, "selected", "primary")
            #expect(try await Self.get(driver) == text)
        }
    }

    @Test func saysWhatIsMissing() async throws {
        try await withDesktop(hasClipboard: false) { _, driver in
            for action in [try action("clipboard_get", text: nil), try action("clipboard_set", text: "x")] {
                do {
                    try await driver.perform(action)
                    Issue.record("\(action.name) worked")
                } catch let error as DesktopError {
                    #expect(error.code == .failed && error.message.hasSuffix("install the Debian package xclip."))
                }
            }
        }
    }

    /// Over xclip: such a text is sent in pieces, which do not get through the VNC server.
    @Test(arguments: [0, 1])
    func refusesWhatIsTooLong(more: Int) async throws {
        try await withDesktop(commands: true, hasClipboard: false) { xvnc, driver in
            let text = String(repeating: "x", count: DesktopLimits.clipboardBytes + more)
            try await Self.own(xvnc, text)
            if more == 0 {
                #expect(try await Self.get(driver) == text)
            } else {
                await #expect(throws: DesktopError(.tooLarge, "")) { try await Self.get(driver) }
            }
        }
    }

    // MARK: The message

    private func decode(_ bytes: [UInt8], limit: Int) throws -> [UInt8]? {
        try DesktopLibrary.zlib.load()
        var text = wd_bytes()
        guard wd_clipboard_decode(bytes, bytes.count, limit, &text) else {
            #expect(text.bytes == nil && text.count == 0)
            return nil
        }
        defer { free(text.bytes) }
        return Array(UnsafeBufferPointer(start: text.bytes, count: text.count))
    }

    private func message(_ text: [UInt8], length: Int? = nil) -> [UInt8] {
        let count = UInt32(length ?? text.count)
        return RFBMessage.zlibStored([24, 16, 8, 0].map { UInt8(truncatingIfNeeded: count >> $0) } + text)
    }

    @Test func decodesMessages() throws {
        #expect(try decode(message(Array("a\r\nb\rc\n\0".utf8)), limit: 100) == Array("a\nb\rc\n".utf8))
        #expect(try decode(message([]), limit: 0) == [])
        #expect(try decode(message([0]), limit: 0) == [])
        let most = [UInt8](repeating: 65, count: 10)
        #expect(try decode(message(most + [0]), limit: 10) == most)
        #expect(try decode(message(most + [0]), limit: 9) == nil)
        // Each line end has two bytes on the wire.
        let lines = Array(String(repeating: "\r\n", count: 10).utf8) + [0]
        #expect(try decode(message(lines), limit: 10) == [UInt8](repeating: 10, count: 10))
        #expect(try decode(message(lines), limit: 9) == nil)
    }

    @Test func refusesDamagedMessages() throws {
        let good = message(Array("hello\0".utf8))
        #expect(try decode([], limit: 100) == nil)
        for count in 1..<good.count - 4 { #expect(try decode(Array(good.prefix(count)), limit: 100) == nil) }
        #expect(try decode(message(Array("hello".utf8), length: 6), limit: 100) == nil)
        #expect(try decode(message([], length: 1 << 31), limit: 100) == nil)
        #expect(try decode([1, 2, 3, 4, 5, 6, 7, 8], limit: 100) == nil)
    }
}
