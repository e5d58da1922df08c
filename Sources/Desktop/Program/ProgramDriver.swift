import AgentCore
import Synchronization

/// Drives a desktop through `portabledesktop`'s own subcommands, for a VNC server that the RFB driver cannot use. Much
/// slower: each step is a process. It gets the desktop's size from screenshots.
final class ProgramDriver: DesktopDriver {
    private struct State {
        var size: DesktopSize
        /// A viewer may have changed the size.
        var sizeIsUncertain = false
        var buttons: Set<String> = []
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

    func perform(_ action: DesktopAction) async throws -> ActionResult {
        try await turns.take()
        defer { turns.give() }
        let (buttons, keys) = state.withLock { ($0.buttons, $0.keys) }
        if action.kind.usesPointer, buttons.isEmpty { try await awaitViewers() }
        do {
            return try await act(action)
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
        for button in Self.buttons { _ = try? await program.run("mouse", "up", arguments: [button]) }
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

    private func act(_ action: DesktopAction) async throws -> ActionResult {
        switch action.kind {
        case .key:
            for combination in try KeyCombination.sequence(action.text ?? "", shiftIsHeld: shiftIsHeld) {
                try await key("key", [try combination.names.joined(separator: "+")])
            }
        case .keyDown: try await press(names(action))
        case .keyUp: try await release(names(action).reversed())
        case .holdKey:
            let all = try names(action)
            let held = state.withLock { $0.keys }
            // Keys that are held already stay held, except the last one. The X server repeats it.
            let fresh = all.dropLast().filter { !held.contains($0) } + all.suffix(1)
            try await press(fresh)
            try await pause(.milliseconds(action.durationMilliseconds))
            try await release(fresh.reversed())
        case .type: try await type(action.text ?? "")
        case .mouseMove: try await move(action, to: action.coordinate)
        case .leftClick: try await withModifiers(action) { try await self.click(action, "left", times: 1) }
        case .middleClick: try await withModifiers(action) { try await self.click(action, "middle", times: 1) }
        case .rightClick: try await withModifiers(action) { try await self.click(action, "right", times: 1) }
        case .doubleClick: try await withModifiers(action) { try await self.click(action, "left", times: 2) }
        case .tripleClick: try await withModifiers(action) { try await self.click(action, "left", times: 3) }
        case .leftClickDrag: try await withModifiers(action) { try await self.drag(action) }
        case .leftMouseDown: try await button("down", "left")
        case .leftMouseUp: try await button("up", "left")
        case .middleMouseDown: try await button("down", "middle")
        case .middleMouseUp: try await button("up", "middle")
        case .rightMouseDown: try await button("down", "right")
        case .rightMouseUp: try await button("up", "right")
        case .scroll: try await withModifiers(action) { try await self.scroll(action) }
        case .cursorPosition:
            let point = DesktopGeometry.declared(try await program.pointer(), of: action, on: try await knownSize())
            return ActionResult(output: "x=\(point.x),y=\(point.y)")
        case .screenshot, .zoom: return try await screenshot(action)
        case .clipboardGet:
            return ActionResult(output: ClipboardText.lines(try await clipboard("read").selectedText()))
        case .clipboardSet: try await clipboard("set").setSelections(ClipboardText.lines(action.text ?? ""))
        case .resize:
            throw DesktopError(
                .failed, "The desktop cannot be resized while its VNC server cannot be used; /healthz says why.")
        case .wait, .open, .waitStable, .windows, .focusWindow, .closeWindow, .waitForWindow:
            throw DesktopError(.invalid, "\(action.kind.rawValue) is no action of the driver.")
        }
        return ActionResult(performed: action.kind)
    }

    private func clipboard(_ what: String) throws -> DesktopHelpers {
        guard let helpers else { throw DesktopHelpers.missing("The clipboard cannot be \(what)") }
        return helpers
    }

    private func screenshot(_ action: DesktopAction) async throws -> ActionResult {
        guard action.region == nil, action.scale == 1 else { return try await part(action) }
        var wanted: DesktopSize?
        if action.declaredWidth != nil || action.declaredHeight != nil {
            let own = try await knownSize()
            wanted = DesktopSize(
                width: action.declaredWidth ?? own.width, height: action.declaredHeight ?? own.height)
        }
        let picture = try await program.picture(wanted)
        if wanted == nil { setSize(picture.size) }
        return ActionResult(output: "screenshot", screenshot: picture.png, size: picture.size)
    }

    /// The program has no regions and only one way to scale.
    private func part(_ action: DesktopAction) async throws -> ActionResult {
        let whole = try await program.picture(nil)
        setSize(whole.size)
        let (area, wanted) = try DesktopGeometry.picture(of: action, on: whole.size)
        let png = try PNG.crop(whole.png, to: area, scaledTo: wanted)
        return ActionResult(output: "screenshot", screenshot: png, size: wanted)
    }

    /// Holds the action's modifiers while the body runs, those that are held already also afterwards.
    private func withModifiers(_ action: DesktopAction, _ body: () async throws -> Void) async throws {
        let held = state.withLock { $0.keys }
        let fresh = try action.modifiers.map { try Keysym.name($0) }.filter { !held.contains($0) }
        try await press(fresh)
        try await body()
        try await release(fresh.reversed())
    }

    // MARK: Pointer

    private static let buttons = ["left", "middle", "right"]

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

    private func target(_ point: DesktopPoint?, of action: DesktopAction) async throws -> DesktopPoint {
        guard let point else {
            throw DesktopError.invalid("Missing \"coordinate\" for \(action.kind.rawValue) action.")
        }
        return DesktopGeometry.native(point, of: action, on: try await knownSize())
    }

    private func move(_ action: DesktopAction, to point: DesktopPoint?) async throws {
        try await go(to: try await target(point, of: action))
    }

    private func go(to point: DesktopPoint) async throws {
        try await program.run("mouse", "move", arguments: ["\(point.x)", "\(point.y)"])
        try checkMayContinue()
    }

    private func click(_ action: DesktopAction, _ name: String, times: Int) async throws {
        try await move(action, to: action.coordinate)
        for _ in 0..<times {
            try await program.run("mouse", "click", arguments: [name])
            try checkMayContinue()
        }
    }

    private func button(_ what: String, _ name: String) async throws {
        // Recorded from before the press until after the release, so that it is released whatever fails.
        if what == "down" { state.withLock { _ = $0.buttons.insert(name) } }
        try await program.run("mouse", what, arguments: [name])
        if what == "up" { state.withLock { _ = $0.buttons.remove(name) } }
        try checkMayContinue()
    }

    private func drag(_ action: DesktopAction) async throws {
        let from = try await target(action.startCoordinate, of: action)
        let to = try await target(action.coordinate, of: action)
        try await go(to: from)
        try await button("down", "left")
        // Programs ignore a drag without movement.
        try await go(to: DesktopPoint(x: (from.x + to.x) / 2, y: (from.y + to.y) / 2))
        try await go(to: to)
        try await button("up", "left")
    }

    private func scroll(_ action: DesktopAction) async throws {
        try await move(action, to: action.coordinate)
        var left = action.scrollAmount
        while left > 0 {
            let some = min(left, DesktopLimits.programScrolls)
            let (x, y) =
                switch action.scrollDirection {
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

    private func names(_ action: DesktopAction) throws -> [String] {
        try KeyCombination(action.text ?? "", shiftIsHeld: shiftIsHeld).names
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
    private func releaseHeld(except buttons: Set<String> = [], _ keys: [String] = []) async {
        let held = state.withLock { ($0.buttons.subtracting(buttons), $0.keys.filter { !keys.contains($0) }) }
        for name in held.1.reversed() {
            guard (try? await program.run("keyboard", "up", arguments: [name])) != nil else { continue }
            state.withLock { $0.keys.removeAll { $0 == name } }
        }
        for name in held.0 {
            guard (try? await program.run("mouse", "up", arguments: [name])) != nil else { continue }
            state.withLock { _ = $0.buttons.remove(name) }
        }
    }
}
