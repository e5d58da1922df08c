import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Windows of real programs under a real window manager; what wmctrl, xdotool and xwininfo say is the measure.
@Suite(.timeLimit(.minutes(15)), .blocking) struct WindowTests {
    static func desktop() async throws -> (Xvnc, XServer) {
        let xvnc = try Xvnc()
        try xvnc.start(["openbox"])
        try await eventually("a window manager") { (try? xvnc.run("wmctrl", "-m")) != nil }
        return (xvnc, XServer(display: xvnc.display))
    }

    /// Prints its title by an escape sequence.
    static func terminal(_ xvnc: Xvnc, _ title: String) throws -> pid_t {
        let script = "printf '\\033]0;\(title)\\007'; exec sleep 1000"
        return try xvnc.start(["xterm", "-u8", "-fn", "fixed", "-geometry", "40x10+200+100", "-e", "sh", "-c", script])
    }

    static func dialog(_ xvnc: Xvnc, _ title: String) throws -> pid_t {
        try xvnc.start(["zenity", "--info", "--title", title, "--text", "Hello"])
    }

    private func found(_ server: XServer, _ title: String) async throws -> DesktopWindow {
        try #require(try await server.firstWindow(titled: title, within: .seconds(60)))
    }

    private func activeWindow(_ xvnc: Xvnc) throws -> UInt32? {
        UInt32(try xvnc.run("xdotool", "getactivewindow").trimmingCharacters(in: .whitespacesAndNewlines))
    }

    @Test func listsWhatWmctrlLists() async throws {
        let (xvnc, server) = try await Self.desktop()
        defer { withExtendedLifetime(xvnc) {} }
        #expect(try await server.windows() == [])
        _ = try Self.terminal(xvnc, "Größe: 10 € 日本語 👩‍💻")
        let dialog = try Self.dialog(xvnc, "A dialog – really")
        try xvnc.start(["xmessage", "-title", "A note", "Hello"])
        for title in ["日本語 👩‍💻", "dialog – really", "A note"] { _ = try await found(server, title) }

        var windows: [DesktopWindow] = []
        // A window may still be moved to its place.
        try await eventually("the same list as wmctrl's") {
            windows = try await server.windows()
            let ours = windows.map { window in
                let id = String(window.id, radix: 16)
                let padded = "0x" + String(repeating: "0", count: 8 - id.count) + id
                return "\(padded) \(window.pid ?? 0) \(window.className) \(window.title)"
            }
            let theirs = try xvnc.run("wmctrl", "-lpx").split(separator: "\n").map { line in
                // id, desktop, pid, instance.class, host, title
                let words = line.split(separator: " ", maxSplits: 5)
                guard words.count == 6 else { return String(line) }
                return "\(words[0]) \(words[2]) \(words[3].split(separator: ".").last ?? "") "
                    + words[5].trimmingCharacters(in: .whitespaces)
            }
            guard ours.count == 3 && Set(ours) == Set(theirs) else { return false }
            return try windows.allSatisfy { try isWhereXwininfoSays($0, xvnc) }
        }
        #expect(windows.first { $0.title == "A dialog – really" }?.pid == dialog)
        #expect(windows.first { $0.title == "A note" }?.className == "Xmessage")
        try await eventually("the same active window as xdotool's") {
            try await server.windows().filter(\.isFocused).map(\.id) == [try activeWindow(xvnc)]
        }
    }

    private func isWhereXwininfoSays(_ window: DesktopWindow, _ xvnc: Xvnc) throws -> Bool {
        let text = try xvnc.run("xwininfo", "-id", "\(window.id)")
        let numbers = ["Absolute upper-left X:", "Absolute upper-left Y:", "Width:", "Height:"].map { label in
            text.components(separatedBy: label).last.flatMap {
                Int($0.drop { $0 == " " }.prefix { $0.isNumber || $0 == "-" })
            }
        }
        return numbers == [window.x, window.y, window.width, window.height]
    }

    @Test func focusMovesBetweenWindows() async throws {
        let (xvnc, server) = try await Self.desktop()
        defer { withExtendedLifetime(xvnc) {} }
        _ = try Self.terminal(xvnc, "one")
        let one = try await found(server, "one")
        _ = try Self.terminal(xvnc, "two")
        let two = try await found(server, "two")
        // Each new window becomes active, in the end.
        try await eventually("the newer window") { (try? activeWindow(xvnc)) == two.id }
        for window in [one, two, one] {
            try await server.focus(window.id)
            #expect(try activeWindow(xvnc) == window.id)
            try await eventually("the raised window") {
                try await server.windows().last { $0.id == one.id || $0.id == two.id }?.id == window.id
            }
        }
        // It is the active one in the end, whatever the window manager has still to do.
        func isActive() async throws -> Bool { try await server.windows().first { $0.isFocused }?.id == one.id }
        try await server.focus(one.id)
        try await eventually("the active window again", isActive)
        try xvnc.run("xdotool", "windowminimize", "--sync", "\(one.id)")
        try await eventually("another active window") { try await !isActive() }
        try await server.focus(one.id)
        #expect(try await isActive())
    }

    @Test func closeEndsADialog() async throws {
        let (xvnc, server) = try await Self.desktop()
        defer { withExtendedLifetime(xvnc) {} }
        let pid = try Self.dialog(xvnc, "Close me")
        let window = try await found(server, "Close me")
        try await server.close(window.id)
        // A zombie: its parent is this process.
        try await eventually("its end") { !ProcFS.runs(pid) }
        try await eventually("its end in the list") { try await server.windows().isEmpty }
        for call in [server.focus, server.close] {
            do {
                try await call(window.id)
                Issue.record("done to a window that is gone")
            } catch let error as DesktopError {
                #expect(error.code == .notFound && error.message == "Window not found: \(window.id).")
            }
        }
    }

    @Test func findsAWindowThatAppearsLater() async throws {
        let (xvnc, server) = try await Self.desktop()
        defer { withExtendedLifetime(xvnc) {} }
        let task = Task { try await server.firstWindow(titled: "Grüße", within: .seconds(100)) }
        let pid = try Self.dialog(xvnc, "Viele Grüße!")
        let window = try #require(try await task.value)
        #expect(window.title == "Viele Grüße!" && window.pid == pid && window.className.lowercased() == "zenity")
        #expect(window.width > 0 && window.height > 0)
    }

    @Test func findsATitleThatAppearsLater() async throws {
        let (xvnc, server) = try await Self.desktop()
        defer { withExtendedLifetime(xvnc) {} }
        let ready = "\(xvnc.directory.path)/go"
        let script = "printf '\\033]0;before\\007'; read line <'\(ready)'; printf '\\033]0;after\\007'; exec sleep 1000"
        mkfifo(ready, 0o600)
        try xvnc.start(["xterm", "-u8", "-fn", "fixed", "-e", "sh", "-c", script])
        let before = try await found(server, "before")
        let clock = ManualClock()
        let waiting = XServer(display: xvnc.display, clock: AgentClock(clock))
        let task = Task { try await waiting.firstWindow(titled: "after", within: .seconds(1_000)) }
        try await eventually("the wait") { clock.nextDeadline?.offset == .seconds(1_000) }
        try "now\n".write(toFile: ready, atomically: false, encoding: .utf8)
        #expect(try await task.value?.id == before.id)
    }

    @Test func pointerIsWhereXdotoolPutIt() async throws {
        let xvnc = try Xvnc()
        try xvnc.run("xdotool", "mousemove", "123", "456")
        #expect(try await XServer(display: xvnc.display).pointer() == DesktopPoint(x: 123, y: 456))
        #expect(try await XServer(display: xvnc.display + ".0").pointer() == DesktopPoint(x: 123, y: 456))
    }

    @Test func survivesARestartOfTheWindowManager() async throws {
        let xvnc = try Xvnc()
        defer { withExtendedLifetime(xvnc) {} }
        let first = try xvnc.start(["openbox"])
        try await eventually("a window manager") { (try? xvnc.run("wmctrl", "-m")) != nil }
        _ = try Self.terminal(xvnc, "here")
        let clock = ManualClock()
        let server = XServer(display: xvnc.display, clock: AgentClock(clock))
        let window = try #require(try await server.firstWindow(titled: "here", within: .seconds(1_000)))
        kill(first, SIGKILL)
        try await eventually("its end") { !ProcFS.runs(first) }
        // Its properties on the root window are still there.
        let call = Task { try await server.windows() }
        try await eventually("the wait") { clock.nextDeadline?.offset == DesktopLimits.windowManagerBudget }
        try xvnc.start(["openbox"])
        #expect(try await call.value.map(\.id) == [window.id])
    }
}
