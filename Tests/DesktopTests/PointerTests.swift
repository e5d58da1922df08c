import AgentTestSupport
import Foundation
import Testing

@testable import Desktop

/// Every pointer action, seen by other programs.
@Suite(.timeLimit(.minutes(15))) struct PointerTests {
    @Test func movesToWhereItIsTold() async throws {
        try await withDesktop { xvnc, driver in
            #expect(driver.size == DesktopSize(width: 1280, height: 800))
            for (x, y) in [(0, 0), (640, 400), (1279, 799), (3, 700)] {
                let result = try await driver.perform(#"{"action":"mouse_move","coordinate":[\#(x),\#(y)]}"#)
                #expect(result.output == "mouse_move action performed")
                #expect(try xvnc.pointer() == DesktopPoint(x: x, y: y))
                let position = try await driver.perform(#"{"action":"cursor_position"}"#)
                #expect(position.output == "x=\(x),y=\(y)")
            }
            try await driver.perform(#"{"action":"mouse_move","coordinate":[-5,100000]}"#)
            #expect(try xvnc.pointer() == DesktopPoint(x: 0, y: 799))
        }
    }

    @Test(arguments: [(1280, 800), (640, 400), (1000, 1000), (2560, 1600)])
    func mapsDeclaredCoordinates(width: Int, height: Int) async throws {
        try await withDesktop { xvnc, driver in
            let space = #""scaled_width":\#(width),"scaled_height":\#(height)"#
            for (x, y) in [(0, 0), (width - 1, height - 1), (width / 3, height / 7), (17, 333)] {
                try await driver.perform(#"{"action":"mouse_move","coordinate":[\#(x),\#(y)],\#(space)}"#)
                let expected = DesktopPoint(
                    x: DesktopGeometry.map(x, from: width, to: 1280), y: DesktopGeometry.map(y, from: height, to: 800))
                #expect(try xvnc.pointer() == expected)
                let position = try await driver.perform(#"{"action":"cursor_position",\#(space)}"#)
                let back = DesktopPoint(
                    x: DesktopGeometry.map(expected.x, from: 1280, to: width),
                    y: DesktopGeometry.map(expected.y, from: 800, to: height))
                #expect(position.output == "x=\(back.x),y=\(back.y)")
            }
        }
    }

    @Test func clicksEachButton() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            for (name, buttons) in [
                ("left_click", [1]), ("middle_click", [2]), ("right_click", [3]), ("double_click", [1, 1]),
                ("triple_click", [1, 1, 1]),
            ] {
                let before = window.releases.count
                let result = try await driver.perform(#"{"action":"\#(name)","coordinate":[100,120]}"#)
                #expect(result.output == "\(name) action performed")
                try await eventually(name) { window.releases.count >= before + buttons.count }
                #expect(Array(window.presses.dropFirst(before)) == buttons)
                #expect(Array(window.releases.dropFirst(before)) == buttons)
            }
            #expect(window.text.contains("root:(100,120)"))
        }
    }

    @Test func scrollsInFourDirections() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            var expected: [Int] = []
            for (direction, button) in [("up", 4), ("down", 5), ("left", 6), ("right", 7)] {
                try await driver.perform(
                    #"{"action":"scroll","coordinate":[50,60],"scroll_direction":"\#(direction)","scroll_amount":2}"#)
                expected += [button, button]
            }
            try await driver.perform(#"{"action":"scroll","coordinate":[50,60]}"#)
            try await driver.perform(#"{"action":"scroll","coordinate":[50,60],"scroll_amount":0}"#)
            expected += [5, 5, 5]
            try await driver.perform(
                #"{"action":"scroll","coordinate":[50,60],"scroll_amount":150,"scroll_direction":"up"}"#)
            expected += Array(repeating: 4, count: 150)
            try await eventually("all clicks of the wheel") { window.releases.count >= expected.count }
            #expect(window.presses == expected)
        }
    }

    @Test func holdsAButtonUntilItIsLetGo() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[200,100]}"#)
            try await driver.perform(#"{"action":"left_mouse_down"}"#)
            try await eventually("the press") { window.presses == [1] }
            try await driver.perform(#"{"action":"mouse_move","coordinate":[220,130]}"#)
            try await eventually("a drag") { window.text.contains("root:(220,130)") }
            #expect(window.releases.isEmpty)
            try await driver.perform(#"{"action":"left_mouse_up"}"#)
            try await eventually("the release") { window.releases == [1] }
            // Held buttons are released at the end.
            try await driver.perform(#"{"action":"left_mouse_down"}"#)
            try await eventually("the press") { window.presses == [1, 1] }
            await driver.releaseAll()
            try await eventually("the release") { window.releases == [1, 1] }
            try await driver.perform(#"{"action":"left_mouse_down"}"#)
            await driver.close()
            try await eventually("the release at the end") { window.releases == [1, 1, 1] }
        }
    }

    /// A word by a double click, a line by a triple click, and what was dragged over: xterm knows them.
    @Test(arguments: [
        (#"{"action":"double_click","coordinate":[50,8]}"#, "bravo"),
        (#"{"action":"triple_click","coordinate":[50,21]}"#, "second line\n"),
        (#"{"action":"left_click_drag","start_coordinate":[18,8],"coordinate":[54,8]}"#, "pha br"),
    ])
    func programsTakeClicksForWhatTheyAre(json: String, selection: String) async throws {
        try await withDesktop { xvnc, driver in
            // The terminal answers where its cursor is once it shows the text.
            let ready = "\(xvnc.directory.path)/ready"
            let script =
                "stty raw -echo; printf 'alpha bravo charlie\\r\\nsecond line\\r\\n\\033[6n'; "
                + "dd bs=1 count=4; touch '\(ready)'; exec sleep 1000"
            try xvnc.start(
                ["xterm", "-fn", "fixed", "-b", "2", "-geometry", "60x10+0+0", "-e", "/bin/sh", "-c", script])
            try await eventually("a terminal") { access(ready, F_OK) == 0 }
            try await driver.perform(json)
            var found = ""
            do {
                try await eventually("the selection", within: .seconds(120)) {
                    found = (try? xvnc.run("timeout", "5", "xclip", "-o", "-selection", "primary")) ?? ""
                    return found == selection
                }
            } catch {
                throw DeadlineExceeded(what: "\(selection.debugDescription) selected, but \(found.debugDescription)")
            }
        }
    }

    @Test func dragsInSteps() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(
                #"{"action":"left_click_drag","start_coordinate":[10,20],"coordinate":[310,220]}"#)
            try await eventually("the release") { window.releases == [1] }
            let moves = window.text.components(separatedBy: "\n\n").filter { $0.contains("MotionNotify event") }
            #expect(moves.count >= DesktopLimits.dragSteps)
            let release = try #require(
                window.text.components(separatedBy: "\n\n").first { $0.contains("ButtonRelease event") })
            #expect(release.contains("root:(310,220)"))
        }
    }

    @Test func followsWhatMovesThePointer() async throws {
        try await withDesktop(commands: true) { xvnc, driver in
            // The server has not reported a position yet.
            try xvnc.run("xdotool", "mousemove", "77", "88")
            let first = try await driver.perform(#"{"action":"cursor_position"}"#)
            #expect(first.output == "x=77,y=88")
            // A program.
            try await driver.perform(#"{"action":"mouse_move","coordinate":[5,5]}"#)
            try xvnc.run("xdotool", "mousemove", "333", "222")
            let second = try await driver.perform(#"{"action":"cursor_position"}"#)
            #expect(second.output == "x=333,y=222")
            // A viewer.
            driver.viewerCame()
            let viewer = try await xvnc.driver()
            try await viewer.perform(#"{"action":"mouse_move","coordinate":[444,111]}"#)
            let third = try await driver.perform(#"{"action":"cursor_position"}"#)
            #expect(third.output == "x=444,y=111")
            try await viewer.perform(#"{"action":"mouse_move","coordinate":[50,60]}"#)
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"left_mouse_down"}"#)
            try await eventually("the press") { window.text.contains("root:(50,60)") && window.presses == [1] }
            try await driver.perform(#"{"action":"left_mouse_up"}"#)
            await viewer.close()
        }
    }

    /// A viewer that vanishes with a button held leaves it to us.
    @Test func releasesWhatAViewerHeld() async throws {
        try await withDesktop(commands: true) { xvnc, driver in
            let window = try await xvnc.events()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[10,10]}"#)
            var viewer: RawConnection? = try RawViewer.connect(xvnc.socket)
            try viewer?.send(Data([5, 1, 0, 100, 0, 100]))
            try await eventually("the viewer's press") { window.presses == [1] }
            viewer.map { RawViewer.leave($0) }
            viewer = nil
            await driver.viewerLeft(heldButtons: true)
            try await eventually("the release") { window.releases == [1] }
            #expect(try xvnc.pointer() == DesktopPoint(x: 100, y: 100))
        }
    }

    /// The pointer's position is unknown: buttons are released nevertheless.
    @Test func releasesButtonsAtAnUnknownPosition() async throws {
        try await withDesktop { xvnc, driver in
            let window = try await xvnc.events()
            var viewer: RawConnection? = try RawViewer.connect(xvnc.socket)
            try viewer?.send(Data([5, 1, 0, 100, 0, 100]))
            try await eventually("the viewer's press") { window.presses == [1] }
            viewer.map { RawViewer.leave($0) }
            viewer = nil
            await driver.viewerLeft(heldButtons: true)
            try await eventually("the release") { window.releases == [1] }
            let result = try await driver.perform(#"{"action":"left_mouse_up"}"#)
            #expect(result.output == "left_mouse_up action performed")
        }
    }

    @Test func tellsWhatIsMissingWhenThePositionIsUnknown() async throws {
        try await withDesktop(knowsDisplay: false) { _, driver in
            await #expect(throws: DesktopError(.failed, "")) {
                try await driver.perform(#"{"action":"cursor_position"}"#)
            }
        }
    }
}

/// A VNC client by hand, which ends without a word.
enum RawViewer {
    static func connect(_ path: String) throws -> RawConnection {
        let connection = try RawConnection(unix: path)
        _ = try connection.receive(exactly: 12)
        try connection.send("RFB 003.008\n")
        _ = try connection.receive(exactly: 2)
        try connection.send(Data([1]))
        _ = try connection.receive(exactly: 4)
        // Shared.
        try connection.send(Data([1]))
        _ = try connection.receive(exactly: 24)
        return connection
    }

    /// Returns when the server knows, as the bridge does.
    static func leave(_ connection: RawConnection) {
        connection.closeSending()
        while (try? connection.receive())?.isEmpty == false {}
    }
}
