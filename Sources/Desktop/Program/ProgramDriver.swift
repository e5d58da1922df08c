import AgentCore
import Synchronization

/// Drives a desktop through `portabledesktop`'s own subcommands, for a VNC server that the RFB driver cannot use. Much
/// slower: each step is a process. It gets the desktop's size from screenshots.
final class ProgramDriver: DesktopDriver {
    private struct State {
        var size: DesktopSize
        /// A viewer may have changed the size.
        var sizeIsUncertain = false
        var buttons: Set<DriverAction.Button> = []
        /// Names in the order in which they were pressed.
        var keys: [String] = []
        var isOver = false
        /// Why the running action has to end early.
        var interruption: (any Error)?
        var pause: Task<Void, any Error>?
    }

    private let program: DesktopProgram
    private let helpers: DesktopHelpers?
    private let state: Mutex<State>
    private let viewersHolding = Watched(0)
    private let turns = TurnQueue(limit: DesktopLimits.queuedActions) {
        DesktopError(.tooMany, "Too many actions wait for the desktop.")
    }

    private init(_ program: DesktopProgram, _ helpers: DesktopHelpers?, _ size: DesktopSize) {
        self.program = program
        self.helpers = helpers
        state = Mutex(State(size: size))
    }

    /// Checks that the program can take a screenshot of the desktop, and gets its size.
    /// - Parameter helpers: reach the clipboard.
    /// - Throws: ``DesktopError``.
    static func connect(
        through program: DesktopProgram, helpers: DesktopHelpers? = nil
    ) async throws -> ProgramDriver {
        ProgramDriver(program, helpers, try await program.picture(nil).size)
    }

    var size: DesktopSize { state.withLock { $0.size } }
    var isAlive: Bool { state.withLock { !$0.isOver } }

    func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
        try await turns.take()
        defer { turns.give() }
        let (buttons, keys) = state.withLock { ($0.buttons, $0.keys) }
        if action.usesPointer, buttons.isEmpty { try await awaitViewers() }
        do {
            return try await act(action, space)
        } catch {
            if (error as? DesktopError)?.code == .connectionLost {
                end()
            } else {
                await releaseHeld(except: buttons, keys)
            }
            throw error
        }
    }

    /// While a viewer holds a button the server may drop the pointer events of others.
    private func awaitViewers() async throws {
        guard viewersHolding.value > 0 else { return }
        let free = try await program.limiter.runUnlessCancelled(atMost: DesktopLimits.viewerHold) { [viewersHolding] in
            try await viewersHolding.first { $0 == 0 ? true : nil }
        }
        if free == nil { throw DesktopError(.pointerHeld, "The pointer is held by a viewer.") }
    }

    func probe(within budget: Duration) async throws {
        do {
            _ = try await program.pointer(within: budget)
        } catch let error as DesktopError {
            throw DesktopError(.connectionLost, error.message, detail: error.detail, cause: error)
        }
    }

    func viewerCame() { state.withLock { $0.sizeIsUncertain = true } }

    func viewerSentInput() { state.withLock { $0.sizeIsUncertain = true } }

    func viewerHolds(_ holds: Bool) { viewersHolding.update { $0 += holds ? 1 : -1 } }

    /// This may not release a button that was pressed through VNC: X servers may track the buttons of each input
    /// device separately.
    func viewerLeft(heldButtons: Bool) async {
        guard heldButtons, (try? await turns.take(first: true)) != nil else { return }
        defer { turns.give() }
        for button in DriverAction.Button.allCases {
            _ = try? await program.run("mouse", "up", arguments: [button.rawValue])
        }
    }

    func releaseAll() async {
        interrupt(DesktopError(.failed, "The action was ended because all keys and buttons are being released."))
        // In an unstructured task, which is not cancelled with the caller.
        await Task(executorPreference: program.limiter.executor) { [self] in
            guard (try? await turns.take(first: true)) != nil else { return }
            defer { turns.give() }
            // Cleared only now, because an action that got its turn in between has to end, too.
            state.withLock { $0.interruption = nil }
            await releaseHeld()
        }.value
    }

    func close() async { end() }

    private func end() {
        state.withLock { $0.isOver = true }
        interrupt(RFBInbox.closed)
        turns.end(RFBInbox.closed)
    }

    private func interrupt(_ error: any Error) {
        state.withLock { state in
            state.interruption = error
            return state.pause
        }?.cancel()
    }

    // MARK: Actions

    private func act(_ action: DriverAction, _ space: CoordinateSpace) async throws -> ActionResult {
        switch action {
        case .keys(let combinations):
            let shiftIsHeld = shiftIsHeld
            for combination in combinations {
                let names = try Keysym.names(combination.keysyms(shiftIsHeld: shiftIsHeld))
                try await key("key", [names.joined(separator: "+")])
            }
        case .press(let combination): try await press(names(combination))
        case .release(let combination): try await release(names(combination).reversed())
        case .hold(let combination, let milliseconds):
            let all = try names(combination)
            let held = state.withLock { $0.keys }
            // Keys that are held already stay held, except the last one. The X server repeats it.
            let fresh = all.dropLast().filter { !held.contains($0) } + all.suffix(1)
            try await press(fresh)
            try await pause(.milliseconds(milliseconds))
            try await release(fresh.reversed())
        case .type(let text): try await type(text)
        case .move(let point): try await go(to: try await target(point, space))
        case .click(let button, let times, let point, let modifiers):
            try await holding(modifiers) { try await self.click(button, times: times, at: point, space) }
        case .button(let button, let isDown): try await self.button(isDown ? "down" : "up", button)
        case .drag(let from, let to, let modifiers):
            try await holding(modifiers) { try await self.drag(from: from, to: to, space) }
        case .scroll(let direction, let steps, let point, let modifiers):
            try await holding(modifiers) {
                try await self.go(to: try await self.target(point, space))
                try await self.scroll(direction, steps)
            }
        case .position:
            let point = DesktopGeometry.declared(try await program.pointer(), in: space, on: try await knownSize())
            return ActionResult(output: "x=\(point.x),y=\(point.y)")
        case .picture(let picture): return try await capture(picture, space)
        case .readClipboard:
            return ActionResult(output: ClipboardText.lines(try await clipboard("read").selectedText()))
        case .setClipboard(let text): try await clipboard("set").setSelections(ClipboardText.lines(text))
        case .resize:
            throw DesktopError(
                .failed, "The desktop cannot be resized while its VNC server cannot be used; /healthz says why.")
        }
        return ActionResult()
    }

    private func clipboard(_ what: String) throws -> DesktopHelpers {
        guard let helpers else { throw DesktopHelpers.missing("The clipboard cannot be \(what)") }
        return helpers
    }

    private func capture(_ picture: Picture, _ space: CoordinateSpace) async throws -> ActionResult {
        guard picture == Picture() else { return try await part(picture, space) }
        let wanted = space.isNative ? nil : space.size(on: try await knownSize())
        let taken = try await program.picture(wanted)
        if wanted == nil { setSize(taken.size) }
        return ActionResult(output: "screenshot", screenshot: taken.png, size: taken.size)
    }

    /// The program has no regions and only one way to scale.
    private func part(_ picture: Picture, _ space: CoordinateSpace) async throws -> ActionResult {
        let whole = try await program.picture(nil)
        setSize(whole.size)
        let (area, wanted) = try DesktopGeometry.area(of: picture, in: space, on: whole.size)
        let png = try PNG.crop(whole.png, to: area, scaledTo: wanted)
        return ActionResult(output: "screenshot", screenshot: png, size: wanted)
    }

    /// Holds modifiers while the body runs, those that are held already also afterwards.
    private func holding(_ modifiers: [UInt32], _ body: () async throws -> Void) async throws {
        let held = state.withLock { $0.keys }
        let fresh = try Keysym.names(modifiers).filter { !held.contains($0) }
        try await press(fresh)
        try await body()
        try await release(fresh.reversed())
    }

    // MARK: Pointer

    private func knownSize() async throws -> DesktopSize {
        let (size, isUncertain) = state.withLock { ($0.size, $0.sizeIsUncertain) }
        guard isUncertain else { return size }
        let found = try await program.picture(nil).size
        setSize(found)
        return found
    }

    private func setSize(_ size: DesktopSize) {
        state.withLock { state in
            state.size = size
            state.sizeIsUncertain = false
        }
    }

    private func target(_ point: DesktopPoint, _ space: CoordinateSpace) async throws -> DesktopPoint {
        DesktopGeometry.native(point, in: space, on: try await knownSize())
    }

    private func go(to point: DesktopPoint) async throws {
        try await program.run("mouse", "move", arguments: ["\(point.x)", "\(point.y)"])
        try checkMayContinue()
    }

    private func click(
        _ button: DriverAction.Button, times: Int, at point: DesktopPoint, _ space: CoordinateSpace
    ) async throws {
        try await go(to: try await target(point, space))
        for _ in 0..<times {
            try await program.run("mouse", "click", arguments: [button.rawValue])
            try checkMayContinue()
        }
    }

    private func button(_ what: String, _ button: DriverAction.Button) async throws {
        // Recorded from before the press until after the release, so that it is released whatever fails.
        if what == "down" { state.withLock { _ = $0.buttons.insert(button) } }
        try await program.run("mouse", what, arguments: [button.rawValue])
        if what == "up" { state.withLock { _ = $0.buttons.remove(button) } }
        try checkMayContinue()
    }

    private func drag(from start: DesktopPoint, to end: DesktopPoint, _ space: CoordinateSpace) async throws {
        let from = try await target(start, space)
        let to = try await target(end, space)
        try await go(to: from)
        try await button("down", .left)
        // Programs ignore a drag without movement.
        try await go(to: DesktopPoint(x: (from.x + to.x) / 2, y: (from.y + to.y) / 2))
        try await go(to: to)
        try await button("up", .left)
    }

    private func scroll(_ direction: DriverAction.Direction, _ steps: Int) async throws {
        var left = steps
        while left > 0 {
            let some = min(left, DesktopLimits.programScrolls)
            let (x, y) =
                switch direction {
                case .up: (0, -some)
                case .down: (0, some)
                case .left: (-some, 0)
                case .right: (some, 0)
                }
            try await program.run("mouse", "scroll", arguments: ["\(x)", "\(y)"])
            try checkMayContinue()
            left -= some
        }
    }

    // MARK: Keys

    private var shiftIsHeld: Bool {
        state.withLock { $0.keys.contains { $0 == Keysym.programShift || $0.hasPrefix("Shift_") } }
    }

    private func names(_ combination: KeyCombination) throws -> [String] {
        try Keysym.names(combination.keysyms(shiftIsHeld: shiftIsHeld))
    }

    private func key(_ what: String, _ arguments: [String], characters: Int = 0) async throws {
        try await program.run(
            "keyboard", what, arguments: arguments,
            within: DesktopLimits.programBudget + DesktopLimits.programPerCharacter * characters)
        try checkMayContinue()
    }

    private func press(_ names: [String]) async throws {
        for name in names {
            state.withLock { if !$0.keys.contains(name) { $0.keys.append(name) } }
            try await key("down", [name])
        }
    }

    private func release(_ names: [String]) async throws {
        for name in names {
            try await program.run("keyboard", "up", arguments: [name])
            state.withLock { $0.keys.removeAll { $0 == name } }
            try checkMayContinue()
        }
    }

    private func type(_ text: String) async throws {
        for piece in ProgramText.pieces(text) {
            try await key("type", [piece], characters: piece.unicodeScalars.count)
        }
    }

    // MARK: Ending early

    /// - Throws: why the action has to end early.
    private func checkMayContinue() throws {
        if let why = state.withLock({ $0.isOver ? RFBInbox.closed : $0.interruption }) { throw why }
        try Task.checkCancellation()
    }

    private func pause(_ duration: Duration) async throws {
        let clock = program.limiter.clock
        let pause = Task(executorPreference: program.limiter.executor) { try await clock.sleep(duration) }
        state.withLock { $0.pause = pause }
        defer { state.withLock { $0.pause = nil } }
        try checkMayContinue()
        _ = await withTaskCancellationHandler {
            await pause.result
        } onCancel: {
            pause.cancel()
        }
        try checkMayContinue()
    }

    /// Releases keys and buttons, except the given ones. Those that cannot be released stay recorded as held.
    private func releaseHeld(except buttons: Set<DriverAction.Button> = [], _ keys: [String] = []) async {
        let held = state.withLock { ($0.buttons.subtracting(buttons), $0.keys.filter { !keys.contains($0) }) }
        for name in held.1.reversed() {
            guard (try? await program.run("keyboard", "up", arguments: [name])) != nil else { continue }
            state.withLock { $0.keys.removeAll { $0 == name } }
        }
        for button in held.0 {
            guard (try? await program.run("mouse", "up", arguments: [button.rawValue])) != nil else { continue }
            state.withLock { _ = $0.buttons.remove(button) }
        }
    }
}
