import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Programs that say nonsense about their windows, window managers that list it, and X servers that hang or end.
@Suite(.timeLimit(.minutes(15)), .blocking) struct HostileWindowTests {
    /// A server with a window manager that does nothing by itself.
    static func desktop() throws -> (xvnc: Xvnc, x: RawX, server: XServer, clock: ManualClock) {
        let xvnc = try Xvnc("320x200")
        let x = try RawX(on: xvnc.display)
        try x.announce()
        let clock = ManualClock()
        return (xvnc, x, XServer(display: xvnc.display, clock: AgentClock(clock)), clock)
    }

    private func failure(_ body: () async throws -> Void) async throws -> DesktopError {
        do {
            try await body()
        } catch let error as DesktopError {
            return error
        }
        throw DeadlineExceeded(what: "an error")
    }

    @Test func nonsenseInPropertiesIsLeftOut() async throws {
        let (xvnc, x, server, _) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let window = try x.window(titled: "Title")
        try x.list([window])
        var plain = DesktopWindow(
            id: window, title: "Title", className: "", pid: nil, x: 30, y: 40, width: 20, height: 10, isFocused: false)
        #expect(try await server.windows() == [plain])

        // Types and formats that are not theirs.
        try x.set(window, "_NET_WM_PID", "STRING", Array("77".utf8))
        try x.set(window, "WM_CLASS", "CARDINAL", format: 32, RawX.bytes(1, 2))
        try x.set(x.root, "_NET_ACTIVE_WINDOW", "STRING", [1])
        try x.set(window, "_NET_WM_NAME", "UTF8_STRING", format: 32, RawX.bytes(0x4142_4344))
        try x.set(window, "WM_NAME", "ATOM", format: 32, RawX.bytes(1))
        plain.title = ""
        #expect(try await server.windows() == [plain])

        for (pid, expected) in [(0, nil), (UInt32.max, nil), (1 << 31, nil), (77, 77)] as [(UInt32, Int32?)] {
            try x.set(window, "_NET_WM_PID", "CARDINAL", format: 32, RawX.bytes(pid, 5))
            #expect(try await server.windows().first?.pid == expected)
        }
        let classes = [
            ("a\0b\0", "b"), ("a\0b\0c", "b"), ("a\0b", "b"), ("a\0", ""), ("a", ""), ("", ""), ("\0\0", ""),
        ]
        for (value, expected) in classes {
            try x.set(window, "WM_CLASS", "STRING", Array(value.utf8))
            #expect(try await server.windows().first?.className == expected)
        }
    }

    @Test func titlesAreRepairedAndCut() async throws {
        let (xvnc, x, server, _) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let window = try x.window()
        try x.list([window])
        func title() async throws -> String? { try await server.windows().first?.title }
        try x.set(window, "WM_NAME", "STRING", [0x47, 0xF6, 0xDF, 0xE9, 0])
        #expect(try await title() == "Gößé")
        try x.set(window, "WM_NAME", "UTF8_STRING", Array("Gö\0".utf8))
        #expect(try await title() == "Gö")
        try x.set(window, "WM_NAME", "COMPOUND_TEXT", Array("\u{1B}%G日本\u{1B}%@ok".utf8))
        #expect(try await title() == "日本ok")
        // The newer one counts, unless it is empty.
        try x.set(window, title: "")
        #expect(try await title() == "日本ok")
        try x.set(window, "_NET_WM_NAME", "UTF8_STRING", [0x41, 0xFF, 0xC3, 0x28, 0x42])
        #expect(try await title() == "A\u{FFFD}\u{FFFD}(B")
        // 4096 bytes are no multiple of the three of each character.
        try x.set(window, title: String(repeating: "€", count: 100_000 / 3))
        #expect(try await title() == String(repeating: "€", count: 1_365))
        try x.set(window, title: String(repeating: "€", count: 1_365) + "a")
        #expect(try await title() == String(repeating: "€", count: 1_365) + "a")
    }

    @Test func compoundTextKeepsWhatItCan() {
        func decoded(_ bytes: [UInt8]) -> String { WindowText.compoundText(bytes) }
        #expect(decoded(Array("plain".utf8)) == "plain")
        #expect(decoded([0x47, 0xF6]) == "Gö")
        // Cyrillic, then Latin-1 again; Japanese of two bytes each, then ASCII.
        #expect(decoded([0x61, 0x1B, 0x2D, 0x4C, 0xBF, 0xE0, 0x1B, 0x2D, 0x41, 0xE4]) == "a\u{FFFD}\u{FFFD}ä")
        #expect(decoded([0x1B, 0x24, 0x28, 0x42, 0x46, 0x7C, 0x1B, 0x28, 0x42, 0x62]) == "\u{FFFD}\u{FFFD}b")
        for broken: [UInt8] in [[], [0x1B], [0x1B, 0x24], [0x1B, 0x25, 0x47, 0xE6], [0x1B, 0x1B, 0x1B]] {
            #expect(decoded(broken).unicodeScalars.allSatisfy { $0 == "\u{FFFD}" })
        }
    }

    @Test func windowsThatAreGoneAreLeftOut() async throws {
        let (xvnc, x, server, _) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let windows = try (0..<3).map { try x.window(titled: "\($0)") }
        try x.list([0, 12_345, UInt32.max] + windows + [x.root])
        try x.destroy(windows[1])
        let listed = try await server.windows()
        #expect(listed.map(\.id) == [windows[0], windows[2], x.root])
        #expect(listed.prefix(2).map(\.title) == ["0", "2"])
    }

    @Test func ofTooManyWindowsTheTopmostAreListed() async throws {
        let (xvnc, x, server, _) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let windows = try (0..<1_001).map { try x.window(titled: "\($0)") }
        try x.list(Array(windows.prefix(1_000)))
        #expect(try await server.windows().map(\.id) == Array(windows.prefix(1_000)))
        try x.list(windows)
        let listed = try await server.windows()
        #expect(listed.map(\.id) == Array(windows.suffix(1_000)))
        #expect(listed.map(\.title) == (1...1_000).map { "\($0)" })
    }

    @Test func theListByAgeStandsInForTheStacking() async throws {
        let (xvnc, x, server, _) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let windows = try (0..<2).map { try x.window(titled: "\($0)") }
        try x.set(x.root, "_NET_CLIENT_LIST", "WINDOW", format: 32, RawX.bytes(windows))
        #expect(try await server.windows().map(\.id) == windows)
        try x.list(windows.reversed())
        #expect(try await server.windows().map(\.id) == windows.reversed())
        try x.list([])
        #expect(try await server.windows() == [])
    }

    @Test func aTitleIsMatchedLetterForLetter() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let windows = try ["Save as", "Save as 2", "save"].map { try x.window(titled: $0) }
        try x.list(windows)
        #expect(try await server.firstWindow(titled: "Save", within: .zero)?.id == windows[1])
        #expect(try await server.firstWindow(titled: "", within: .zero)?.id == windows[2])
        let task = Task { try await server.firstWindow(titled: "SAVE", within: .seconds(100)) }
        try await eventually("the wait") { clock.nextDeadline?.offset == .seconds(100) }
        // Changes that do not help do not end it.
        try x.set(windows[0], title: "other")
        try x.destroy(windows[1])
        try x.list([windows[0]])
        #expect(clock.sleeping == 1)
        clock.advance(by: .seconds(100))
        #expect(try await task.value == nil)
    }

    @Test func aTitleThatIsSetAtLastIsFound() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let task = Task { try await server.firstWindow(titled: "at last", within: .seconds(100)) }
        try await eventually("the wait") { clock.nextDeadline?.offset == .seconds(100) }
        let window = try x.window()
        try x.list([window])
        try x.set(window, "WM_NAME", "STRING", Array("almost".utf8))
        try x.set(window, title: "at last")
        #expect(try await task.value?.id == window)
    }

    @Test func aWindowThatTakesNoFocusIsAnError() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let window = try x.window(titled: "stubborn")
        try x.list([window])
        let refused = Task { try await failure { try await server.focus(window) } }
        try await eventually("the wait") { clock.nextDeadline?.offset == DesktopLimits.focusBudget }
        clock.advance(by: DesktopLimits.focusBudget)
        let error = try await refused.value
        #expect(error.code == .failed && error.message.contains("Window \(window) has not become active within 2 s"))

        let ended = Task { try await failure { try await server.focus(window) } }
        try await eventually("the wait") { clock.nextDeadline?.offset == DesktopLimits.focusBudget * 2 }
        try x.list([])
        #expect(try await ended.value.code == .notFound)
    }

    @Test func noWindowManagerIsAnErrorThatSaysSo() async throws {
        let xvnc = try Xvnc("320x200")
        let clock = ManualClock()
        let server = XServer(display: xvnc.display, clock: AgentClock(clock))
        let task = Task { try await failure { _ = try await server.windows() } }
        try await eventually("the wait") { clock.nextDeadline?.offset == DesktopLimits.windowManagerBudget }
        clock.advance(by: DesktopLimits.windowManagerBudget)
        let error = try await task.value
        #expect(error.code == .failed && error.message.contains("no window manager"))
    }

    @Test func aServerThatWantsACookieIsAnErrorThatSaysSo() async throws {
        let directory = try TemporaryDirectory()
        // For any address and any display: family, address, number, name, cookie.
        let name = Array("MIT-MAGIC-COOKIE-1".utf8)
        let cookie = [UInt8](repeating: 7, count: 16)
        let entry = [0xFF, 0xFF, 0, 0, 0, 0, 0, UInt8(name.count)] + name + [0, UInt8(cookie.count)] + cookie
        try Data(entry).write(to: URL(fileURLWithPath: "\(directory.path)/cookies"))
        let xvnc = try Xvnc("320x200", arguments: ["-auth", "\(directory.path)/cookies"])
        let error = try await failure { _ = try await XServer(display: xvnc.display).pointer() }
        #expect(error.code == .failed && error.message.contains("refuses") && error.detail?.contains("cookie") == true)
    }

    @Test func aServerThatHangsCostsTheBudgetOnce() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        kill(xvnc.pid, SIGSTOP)
        let calls: [@Sendable () async throws -> Void] = [
            { _ = try await server.windows() },
            { try await server.focus(1) },
            { try await server.close(1) },
            { _ = try await server.firstWindow(titled: "a", within: .seconds(1_000)) },
            { _ = try await server.pointer() },
        ]
        for call in calls {
            let task = Task { try await failure(call) }
            await clock.sleepers(1)
            clock.advance(by: DesktopLimits.windowAnswers)
            let error = try await task.value
            #expect(error.code == .failed && error.message.contains("does not answer"))
        }
        for call in calls {
            let task = Task { try await call() }
            await clock.sleepers(1)
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
    }

    @Test func aServerThatEndsEndsTheWait() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let task = Task { try await failure { _ = try await server.firstWindow(titled: "a", within: .seconds(100)) } }
        try await eventually("the wait") { clock.nextDeadline?.offset == .seconds(100) }
        kill(xvnc.pid, SIGKILL)
        let lost = try await task.value
        #expect(lost.code == .failed && lost.message.contains("closed the connection"))
        try await eventually("its end") { !ProcFS.runs(xvnc.pid) }
        let gone = try await failure { _ = try await server.windows() }
        #expect(gone.code == .failed && gone.message.contains("does not accept connections"))
    }

    @Test func aCancelledWaitEndsAtOnce() async throws {
        let (xvnc, x, server, clock) = try Self.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let task = Task { try await server.firstWindow(titled: "a", within: .seconds(100)) }
        try await eventually("the wait") { clock.nextDeadline?.offset == .seconds(100) }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(clock.sleeping == 0)
        let late = Task {
            while !Task.isCancelled { await Task.yield() }
            return try await server.windows()
        }
        late.cancel()
        await #expect(throws: CancellationError.self) { try await late.value }
    }
}
