import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// A desktop whose VNC server the RFB driver cannot use, driven through portabledesktop's own subcommands.
@Suite(.timeLimit(.minutes(15))) struct ProgramDriverTests {
    /// The real RFB driver, in front of a server that wants a password.
    private static func world(
        _ more: [String: String] = [:], fault: String = "auth", directory: TemporaryDirectory? = nil,
        limits: SessionLimits = SessionWorld.patientLimits
    ) throws -> SessionWorld {
        try SessionWorld(fault: fault, environment: more, directory: directory, limits: limits) {
            var options = RFBDriver.Options($0)
            options.budget = .seconds(5)
            return try await RFBDriver.connect(to: $0.endpoint, options)
        }
    }

    private func blocking(
        _ world: SessionWorld, _ body: @escaping @Sendable (SessionWorld, Xvnc) async throws -> Void
    ) async throws {
        try await withWorld(world) { world in
            let desktop = try await world.session.desktop()
            try await withTaskExecutorPreference(BlockingExecutor.shared) {
                let display = try Xvnc(on: desktop.display)
                // Otherwise a key that is released late repeats.
                try display.run("xset", "r", "off")
                try await display.windowManager()
                try await body(world, display)
            }
        }
    }

    @Test func thePasswordIsTold() async throws {
        let world = try Self.world()
        try await blocking(world) { world, _ in
            #expect(world.session.current?.driver is ProgramDriver)
            #expect(world.session.current?.driver.size == DesktopSize(width: 640, height: 480))
            #expect(world.log.text.contains("driven through portabledesktop's own subcommands"))
            let health = try #require(world.session.health)
            #expect(health.text.contains("its VNC server cannot be used") && !health.degrades, "\(health.text)")
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func pointerActionsArrive() async throws {
        try await blocking(Self.world()) { world, display in
            let window = try await display.events()
            let session = world.session
            for (name, buttons) in [
                ("left_click", [1]), ("middle_click", [2]), ("right_click", [3]), ("double_click", [1, 1]),
                ("triple_click", [1, 1, 1]),
            ] {
                let before = window.releases.count
                let result = try await session.perform(try action(#"{"action":"\#(name)","coordinate":[100,120]}"#))
                #expect(result.output == "\(name) action performed")
                try await eventually(name) { window.releases.count >= before + buttons.count }
                #expect(Array(window.presses.dropFirst(before)) == buttons)
            }
            for (direction, button) in [("up", 4), ("down", 5), ("left", 6), ("right", 7)] {
                let before = window.releases.count
                _ = try await session.perform(
                    try action(
                        #"{"action":"scroll","coordinate":[200,200],"scroll_amount":45,"scroll_direction":"\#(direction)"}"#
                    ))
                try await eventually(direction) { window.releases.count >= before + 45 }
                #expect(window.presses.dropFirst(before) == Array(repeating: button, count: 45)[...])
            }
            let before = window.releases.count
            _ = try await session.perform(
                try action(#"{"action":"left_click_drag","start_coordinate":[120,130],"coordinate":[160,190]}"#))
            try await eventually("the end of the drag") { window.releases.count == before + 1 }
            #expect(window.text.contains("root:(140,160)") && window.text.contains("root:(160,190)"))
            for name in ["left_mouse_down", "left_mouse_up"] {
                _ = try await session.perform(try action(#"{"action":"\#(name)"}"#))
            }
            try await eventually("another press and release") { window.releases.count == before + 2 }
        }
    }

    @Test(arguments: [(640, 480), (320, 240), (1000, 1000)])
    func mapsDeclaredCoordinates(width: Int, height: Int) async throws {
        try await blocking(Self.world()) { world, display in
            let space = #""scaled_width":\#(width),"scaled_height":\#(height)"#
            for (x, y) in [(0, 0), (width - 1, height - 1), (width / 3, height / 7), (-5, 100_000)] {
                _ = try await world.session.perform(
                    try action(#"{"action":"mouse_move","coordinate":[\#(x),\#(y)],\#(space)}"#))
                let expected = DesktopPoint(
                    x: DesktopGeometry.map(x, from: width, to: 640), y: DesktopGeometry.map(y, from: height, to: 480))
                #expect(try display.pointer() == expected)
                let position = try await world.session.perform(try action(#"{"action":"cursor_position",\#(space)}"#))
                let back = DesktopPoint(
                    x: DesktopGeometry.map(expected.x, from: 640, to: width),
                    y: DesktopGeometry.map(expected.y, from: 480, to: height))
                #expect(position.output == "x=\(back.x),y=\(back.y)")
            }
            let picture = try await world.session.perform(try action(#"{"action":"screenshot",\#(space)}"#))
            #expect(picture.size == DesktopSize(width: width, height: height))
            let png = try #require(picture.screenshot)
            #expect(DesktopProgram.size(ofPNG: Data(png)) == picture.size)
        }
    }

    @Test func followsTheSizeThatAViewerGaveTheDesktop() async throws {
        try await blocking(Self.world()) { world, display in
            let driver = try #require(world.session.current?.driver)
            try display.run("xrandr", "-s", "800x600")
            driver.viewerSentInput()
            let corner = #""coordinate":[9,9],"scaled_width":10,"scaled_height":10"#
            _ = try await world.session.perform(try action(#"{"action":"mouse_move",\#(corner)}"#))
            #expect(try display.pointer() == DesktopPoint(x: 760, y: 570))
            #expect(driver.size == DesktopSize(width: 800, height: 600))
            try display.run("xrandr", "-s", "1024x768")
            // A picture in the desktop's own size tells as well.
            #expect(try await world.session.perform(action("screenshot", text: nil)).size == driver.size)
            #expect(driver.size == DesktopSize(width: 1024, height: 768))
        }
    }

    @Test func whatOnlyOursHasWorksToo() async throws {
        try await blocking(Self.world()) { world, display in
            let window = try await display.events()
            func perform(_ json: String) async throws -> ActionResult {
                try await world.session.perform(try action("{\"action\":\(json)}"))
            }
            _ = try await perform(#""left_click","coordinate":[100,120],"modifiers":["ctrl","shift"]"#)
            try await eventually("the click") { window.releases == [1] }
            #expect(window.blocks("ButtonPress").last?.contains("state 0x5,") == true)
            _ = try await perform(#""left_click","coordinate":[100,120]"#)
            try await eventually("a plain click") { window.releases == [1, 1] }
            #expect(window.blocks("ButtonPress").last?.contains("state 0x0,") == true)
            for (name, button) in [("middle", 2), ("right", 3)] {
                _ = try await perform("\"\(name)_mouse_down\"")
                try await eventually("\(name) down") { window.presses.last == button }
                #expect(window.releases.last != button)
                _ = try await perform("\"\(name)_mouse_up\"")
                try await eventually("\(name) up") { window.releases.last == button }
            }
            let keys = window.keys("KeyPress").count
            _ = try await perform(#""key","text":"a CTRL+B""#)
            try await eventually("three keys") { window.keys("KeyRelease").count == keys + 3 }
            #expect(window.keys("KeyPress").dropFirst(keys) == ["a", "Control_L", "b"])
            let part = try await perform(#""zoom","region":[10,10,60,40],"scale":2"#)
            #expect(part.size == DesktopSize(width: 120, height: 80))
            #expect(DesktopProgram.size(ofPNG: Data(try #require(part.screenshot))) == part.size)
            _ = try await perform(#""clipboard_set","text":"zwei €\nZeilen""#)
            #expect(try await perform(#""clipboard_get""#).output == "zwei €\nZeilen")
            await #expect(throws: DesktopError(.failed, "")) { try await perform(#""resize","text":"800x600""#) }
        }
    }

    @Test func whatAViewerHoldsIsWaitedFor() async throws {
        try await blocking(Self.world()) { world, _ in
            let driver = try #require(world.session.current?.driver)
            let click = try action(#"{"action":"left_click","coordinate":[5,5]}"#)
            driver.viewerHolds(true)
            await #expect(throws: DesktopError(.pointerHeld, "")) { try await driver.perform(click) }
            driver.viewerHolds(false)
            _ = try await driver.perform(click)
        }
    }

    @Test func textArrives() async throws {
        try await blocking(Self.world()) { world, display in
            let terminal = try await display.terminal()
            _ = try await world.session.perform(try action(#"{"action":"mouse_move","coordinate":[200,200]}"#))
            let ascii = String(String.UnicodeScalarView((0x20...0x7e).compactMap { Unicode.Scalar($0) }))
            var all = ""
            for text in ["-rf --json\n", ascii, "a\r\nb\rc", String(repeating: "0123456789", count: 45), "--"] {
                let result = try await world.session.perform(action("type", text: text))
                #expect(result.output == "type action performed")
                all += text.replacingOccurrences(of: "\r\n", with: "\n").replacingOccurrences(of: "\r", with: "\n")
                try await terminal.receives(all)
            }
        }
    }

    @Test func keysArrive() async throws {
        try await blocking(Self.world()) { world, display in
            let window = try await display.events()
            let session = world.session
            _ = try await session.perform(try action(#"{"action":"mouse_move","coordinate":[100,100]}"#))
            func press(_ kind: String, _ text: String, _ expected: [String]) async throws {
                let before = (window.keys("KeyPress").count, window.keys("KeyRelease").count)
                _ = try await session.perform(try action(#"{"action":"\#(kind)","text":"\#(text)","duration":1}"#))
                func keys() -> [String] {
                    // What a release is called depends on what is still held.
                    let keys =
                        kind == "key_up"
                        ? window.keys("KeyRelease").dropFirst(before.1) : window.keys("KeyPress").dropFirst(before.0)
                    // A key that is held may repeat.
                    var distinct: [String] = []
                    for key in keys where key != distinct.last { distinct.append(key) }
                    return distinct
                }
                try await eventually("\(kind) \(text)") {
                    window.keys("KeyRelease").count >= before.1 + expected.count && keys().count >= expected.count
                }
                #expect(keys() == expected, "\(kind) \(text)")
            }
            try await press("key", "ctrl+a", ["Control_L", "a"])
            try await press("key", "Return", ["Return"])
            try await press("key", "-", ["minus"])
            try await press("key", "ctrl++", ["Control_L", "Shift_L", "plus"])
            try await press("hold_key", "F5", ["F5"])
            let downs = window.keys("KeyPress").count
            _ = try await session.perform(try action(#"{"action":"key_down","text":"ctrl+x"}"#))
            try await eventually("both are down") { window.keys("KeyPress").dropFirst(downs).contains("x") }
            try await press("key_up", "ctrl+x", ["x", "Control_L"])
            await #expect(throws: DesktopError(.invalid, "")) {
                _ = try await session.perform(action("key", text: "nosuchkey"))
            }
        }
    }

    @Test func whoGoesAwayReleasesTheKey() async throws {
        try await blocking(Self.world()) { world, display in
            let window = try await display.events()
            let session = world.session
            _ = try await session.perform(try action(#"{"action":"mouse_move","coordinate":[100,100]}"#))
            let hold = Task {
                try await session.perform(try action(#"{"action":"hold_key","text":"a","duration":60000}"#))
            }
            try await eventually("the key is down") { !window.keys("KeyPress").isEmpty }
            let next = Task { try await session.perform(try action(#"{"action":"key","text":"b"}"#)) }
            try await eventually("two are pending") {
                world.metrics.render().contains("agent_desktop_actions_pending 2")
            }
            hold.cancel()
            await #expect(throws: CancellationError.self) { try await hold.value }
            _ = try await next.value
            try await eventually("both are up") { window.keys("KeyRelease").suffix(2) == ["a", "b"] }
        }
    }

    @Test func releaseAllEndsWhatRuns() async throws {
        try await blocking(Self.world()) { world, display in
            let window = try await display.events()
            let session = world.session
            _ = try await session.perform(try action(#"{"action":"mouse_move","coordinate":[100,100]}"#))
            _ = try await session.perform(try action(#"{"action":"left_mouse_down"}"#))
            let hold = Task {
                try await session.perform(try action(#"{"action":"hold_key","text":"a","duration":60000}"#))
            }
            try await eventually("the key is down") { !window.keys("KeyPress").isEmpty }
            await session.current?.driver.releaseAll()
            await #expect(throws: DesktopError(.failed, "")) { try await hold.value }
            try await eventually("nothing is held") {
                // A key that is held repeats.
                window.keys("KeyRelease").count == window.keys("KeyPress").count && window.releases == [1]
            }
        }
    }

    /// The program does not see it either: what was wrong with the VNC server is the answer.
    @Test(arguments: ["fail", "garbage"])
    func aProgramThatIsBrokenTooIsNoHelp(fault: String) async throws {
        let world = try Self.world(["PORTABLEDESKTOP_SUBFAULT": "screenshot=\(fault)"])
        try await withWorld(world) { world in
            await #expect(throws: DesktopError(.failed, "")) { _ = try await world.session.desktop() }
            #expect(world.session.health?.text.contains("its VNC server cannot be used") ?? false)
            try await eventuallyNothingLeft(of: world)
        }
    }

    @Test func aProgramThatHangsHoldsTheStartUpForItsTimeOnly() async throws {
        var limits = SessionWorld.patientLimits
        limits.start = .seconds(4)
        let world = try Self.world(["PORTABLEDESKTOP_SUBFAULT": "screenshot=hang"], limits: limits)
        _ = try await withWorld(world) { world in
            await #expect(throws: DesktopError(.failed, "")) { _ = try await world.session.desktop() }
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aLineBeforeTheAnswerIsIgnored() async throws {
        try await withWorld(Self.world(["PORTABLEDESKTOP_SUBFAULT": "cursor=noisy"])) { world in
            _ = try await world.session.perform(try action(#"{"action":"mouse_move","coordinate":[3,4]}"#))
            #expect(try await world.session.perform(action("cursor_position", text: nil)).output == "x=3,y=4")
        }
    }

    @Test func aFailingSubcommandIsQuoted() async throws {
        let world = try Self.world(["PORTABLEDESKTOP_SUBFAULT": "keyboard=fail"])
        try await withWorld(world) { world in
            do {
                _ = try await world.session.perform(action("type", text: "a"))
                Issue.record("it cannot work")
            } catch let error as DesktopError {
                #expect(error.code == .failed && error.message == "portabledesktop keyboard type exited with status 4.")
                #expect(error.detail == "portabledesktop: keyboard is broken")
            }
            // The desktop is none the worse for it.
            _ = try await world.session.perform(action("cursor_position", text: nil))
            #expect(world.calls("up") == 1)
        }
    }

    @Test func aStoppedServerIsKilledAndReplaced() async throws {
        var limits = SessionWorld.patientLimits
        limits.probeAfter = .zero
        limits.probe = .seconds(8)
        let world = try Self.world(limits: limits)
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            let old = try world.xvnc()
            kill(old, SIGSTOP)
            _ = try await world.session.desktop()
            #expect(!ProcFS.runs(old) && world.calls("up") == 2)
            #expect(world.log.text.contains("why=it does not answer"))
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func aDesktopOfAnEarlierLifeIsAdopted() async throws {
        let first = try Self.world()
        let display = try await first.session.desktop().display
        await first.abandon()
        let second = try Self.world(directory: first.directory)
        try await withWorld(second) { world in
            let adopted = try await world.session.desktop()
            #expect(adopted.display == display)
            #expect(world.session.current?.driver is ProgramDriver && world.calls("up") == 1)
        }
        try await eventuallyNothingLeft(of: second)
    }

    // MARK: Values

    @Test func textGoesInPieces() {
        let limit = DesktopLimits.programTypes
        func lengths(_ count: Int) -> [Int] {
            ProgramText.pieces(String(repeating: "é", count: count)).map(\.unicodeScalars.count)
        }
        #expect(lengths(0) == [] && lengths(1) == [1])
        #expect(lengths(limit - 1) == [limit - 1] && lengths(limit) == [limit])
        #expect(lengths(limit + 1) == [limit, 1])
        #expect(ProgramText.pieces("a\r\nb\rc\n\n") == ["a\nb\nc\n\n"])
    }

    @Test(arguments: [
        ("a", "a"), ("Z", "Z"), ("7", "7"), ("+", "plus"), ("-", "minus"), ("é", "eacute"), ("龍", "U9F8D"),
    ])
    func keysHaveTheNamesOfX(key: String, name: String) throws {
        let last = try #require(try KeyCombination(key).keysyms().last)
        #expect(try Keysym.name(last) == name)
    }

    @Test func onlyAPNGHasASize() {
        let head: [UInt8] =
            [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13] + Array("IHDR".utf8) + [
                0, 0, 1, 0, 0, 0, 0, 9,
            ]
        #expect(DesktopProgram.size(ofPNG: Data(head)) == DesktopSize(width: 256, height: 9))
        #expect(DesktopProgram.size(ofPNG: Data(head.dropLast())) == nil)
        for index in 0..<8 {
            var broken = head
            broken[index] ^= 1
            #expect(DesktopProgram.size(ofPNG: Data(broken)) == nil)
        }
        #expect(DesktopProgram.size(ofPNG: Data(head.dropLast() + [0])) == nil)
    }
}
