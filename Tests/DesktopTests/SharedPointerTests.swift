import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// The pointer of a desktop that viewers use, too; modifiers; all buttons.
@Suite(.timeLimit(.minutes(15))) struct SharedPointerTests {
    private static let click = #"{"action":"left_click","coordinate":[50,60]}"#

    @Test func whatAViewerHoldsIsA409UntilItLetsGo() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            let (display, window) = try await Self.events(server)
            defer { withExtendedLifetime(display) {} }
            try await server.blocking { server in
                let viewer = try Self.holding(server, window)
                for body in [
                    Self.click, #"{"action":"mouse_move","coordinate":[1,1]}"#,
                    #"{"action":"left_click_drag","start_coordinate":[1,1],"coordinate":[9,9]}"#,
                    #"{"action":"scroll","coordinate":[1,1]}"#, #"{"action":"left_mouse_down"}"#,
                ] {
                    let answer = try server.action(body)
                    #expect(answer.status == 409, "\(answer.text)")
                    #expect(answer.json["message"] as? String == "The pointer is held by a viewer.")
                }
                // What is no pointer goes on.
                #expect(try server.action(#"{"action":"key","text":"a"}"#).status == 200)
                let position = try server.action(#"{"action":"cursor_position"}"#)
                #expect(position.json["output"] as? String == "x=100,y=100", "\(position.text)")
                #expect(window.presses == [1])
                try viewer.pointer(0, 100, 100)
                let answer = try server.action(Self.click)
                #expect(answer.status == 200, "\(answer.text)")
                try wait("our click") { window.releases == [1, 1] }
                #expect(window.text.contains("root:(50,60)"))
                viewer.end()
            }
            try await eventually("it has left") { server.world.session.hub.count == 0 }
        }
    }

    @Test func anActionWaitsForTheRelease() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            let (display, window) = try await Self.events(server)
            defer { withExtendedLifetime(display) {} }
            let viewer = try await server.blocking { server in try Self.holding(server, window) }
            async let answer = server.blocking { try $0.action(Self.click) }
            try await eventually("it waits") {
                server.world.metrics.render().contains("agent_desktop_actions_pending 1")
            }
            try await server.blocking { _ in try viewer.pointer(0, 100, 100) }
            let text = try await answer.text
            #expect(text == #"{"output":"left_click action performed"}"#)
            try await eventually("our click") { window.releases == [1, 1] }
            viewer.end()
        }
    }

    /// A viewer that leaves with a button held does not hold up the actions.
    @Test func aViewerThatVanishesHoldsNothing() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            let (display, window) = try await Self.events(server)
            defer { withExtendedLifetime(display) {} }
            try await server.blocking { server in
                let viewer = try Self.holding(server, window)
                viewer.end()
                try wait("it has left") { server.world.session.hub.count == 0 }
                let answer = try server.action(Self.click)
                #expect(answer.status == 200, "\(answer.text)")
                try wait("our click") { window.presses == [1, 1] && window.releases == [1, 1] }
            }
        }
    }

    /// While we hold a button, the server ignores the viewers, not us.
    @Test func whatWeHoldIsOurs() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            let (display, window) = try await Self.events(server)
            defer { withExtendedLifetime(display) {} }
            try await server.blocking { server in
                #expect(try server.action(#"{"action":"mouse_move","coordinate":[30,40]}"#).status == 200)
                #expect(try server.action(#"{"action":"left_mouse_down"}"#).status == 200)
                let viewer = try RawRFB(try TestViewer(try server.connect()))
                try viewer.pointer(1, 100, 100)
                try viewer.frame()
                #expect(try server.action(#"{"action":"mouse_move","coordinate":[35,45]}"#).status == 200)
                #expect(try server.action(#"{"action":"left_mouse_up"}"#).status == 200)
                try wait("the release") { window.releases == [1] }
                #expect(window.presses == [1])
                viewer.end()
            }
        }
    }

    @Test func anEventOfAViewerThatCameAfterTheCheckIsTold() async throws {
        try await withDesktop { _, driver in
            driver.viewerCame()
            driver.viewerHolds(true)
            async let click: Void = { _ = try await driver.perform(Self.click) }()
            driver.viewerHolds(false)
            try await click
            driver.viewerHolds(true)
            await #expect(throws: DesktopError(.pointerHeld, "")) { try await driver.perform(Self.click) }
            driver.viewerHolds(false)
            try await driver.perform(Self.click)
        }
    }

    // MARK: Modifiers and buttons

    @Test func modifiersAreHeldForTheActionOnly() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            for (json, buttons, state) in [
                (#""action":"left_click","coordinate":[50,60],"modifiers":["ctrl","Shift"]"#, 1, "state 0x5,"),
                (#""action":"right_click","coordinate":[50,60],"modifiers":["alt"]"#, 1, "state 0x8,"),
                (#""action":"double_click","coordinate":[50,60],"modifiers":["super"]"#, 2, "state 0x40,"),
                (#""action":"scroll","coordinate":[50,60],"modifiers":["ctrl"]"#, 3, "state 0x4,"),
            ] {
                let before = window.blocks("ButtonPress").count
                try await driver.perform("{\(json)}")
                try await eventually("\(json)") { window.blocks("ButtonRelease").count == before + buttons }
                let presses = window.blocks("ButtonPress").dropFirst(before)
                #expect(presses.count == buttons && presses.allSatisfy { $0.contains(state) }, "\(presses)")
            }
            let before = window.blocks("ButtonPress").count
            try await driver.perform(Self.click)
            try await eventually("a plain click") { window.blocks("ButtonPress").count == before + 1 }
            #expect(window.blocks("ButtonPress").last?.contains("state 0x0,") == true, "\(window.text.suffix(2_000))")
            #expect(window.keys("KeyPress").sorted() == window.keys("KeyRelease").sorted())
            // One that is held already stays held.
            try await driver.perform(#"{"action":"key_down","text":"ctrl"}"#)
            try await driver.perform(#"{"action":"left_click","coordinate":[50,60],"modifiers":["ctrl"]}"#)
            try await driver.perform(Self.click)
            try await eventually("two clicks") { window.blocks("ButtonPress").count == before + 3 }
            #expect(window.blocks("ButtonPress").last?.contains("state 0x4,") == true, "\(window.text.suffix(2_000))")
            try await driver.perform(#"{"action":"key_up","text":"ctrl"}"#)
        }
    }

    @Test func everyButtonGoesDownAndUp() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[50,60]}"#)
            for (name, button) in [("left", 1), ("middle", 2), ("right", 3)] {
                let down = try await driver.perform(#"{"action":"\#(name)_mouse_down"}"#)
                #expect(down.output == "\(name)_mouse_down action performed")
                try await eventually("\(name) down") { window.presses.last == button }
                #expect(window.releases.count == button - 1)
                try await driver.perform(#"{"action":"\#(name)_mouse_up"}"#)
                try await eventually("\(name) up") { window.releases.last == button }
            }
        }
    }

    @Test func pressesASequence() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[50,60]}"#)
            try await driver.perform(#"{"action":"key","text":"CTRL+A ctrl + c numpad5"}"#)
            try await eventually("the last key") { window.keys("KeyRelease").contains("KP_5") }
            // The server sets Num Lock by itself.
            let keys = window.keys("KeyPress").filter { $0 != "Num_Lock" }
            #expect(keys == ["Control_L", "a", "Control_L", "c", "KP_5"])
        }
    }

    /// A viewer that holds the left button.
    private static func holding(_ server: DesktopServer, _ window: EventWindow) throws -> RawRFB {
        let viewer = try RawRFB(try TestViewer(try server.connect()))
        try viewer.pointer(1, 100, 100)
        try wait("the viewer's press") { window.presses == [1] }
        return viewer
    }

    /// A window on the session's desktop that writes the events it gets, and ends with the first value.
    private static func events(_ server: DesktopServer) async throws -> (Xvnc, EventWindow) {
        let desktop = try await server.world.session.desktop()
        let display = try Xvnc(on: desktop.display)
        return try await withTaskExecutorPreference(BlockingExecutor.shared) {
            try await display.windowManager()
            return (display, try await display.events())
        }
    }
}

/// As ``eventually(_:within:_:)``, on a thread that may block.
private func wait(_ what: String, _ condition: () throws -> Bool) throws {
    for _ in 0..<12_000 {
        if try condition() { return }
        poll(nil, 0, 5)
    }
    throw DeadlineExceeded(what: what)
}
