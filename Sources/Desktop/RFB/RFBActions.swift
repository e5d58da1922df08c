/// Performs the actions of a connection, on its thread.
final class RFBActions {
    let link: RFBLink
    let input: RFBInput
    let helpers: DesktopHelpers?
    let server: XServer?
    let executor: (any TaskExecutor)?
    /// The text that a client has put on the clipboard, and how many offers of programs there had been.
    var ownClipboard: (text: String, offers: UInt64)?
    /// When an action was done that may make a program take the clipboard, and how many offers there had been.
    var lastInput: (at: RFBLink.Instant, offers: UInt64)?
    /// Keysyms outside the layout that the server has mapped to spare keycodes for us.
    private var known: Set<UInt32> = []
    /// Keysyms pressed by this action of which only the X server can say whether they had a keycode.
    private var doubtful: Set<UInt32> = []
    /// Whether no client before us can have used up spare keycodes.
    let isFresh: Bool
    let usesClipboardMessages: Bool

    init(_ link: RFBLink, _ options: RFBDriver.Options) {
        self.link = link
        helpers = options.helpers
        server = options.display.map { XServer(display: $0, clock: options.clock) }
        executor = options.executor
        isFresh = options.isFresh
        usesClipboardMessages = options.usesClipboardMessages
        input = RFBInput(link)
    }

    /// Called once, before anything else: learns the screen size, and sends a first key, because the server drops
    /// the first keysym that is new to it.
    func greet() throws {
        // Also answers the server's announcements of fences and the clipboard.
        try link.sync()
        if link.hasClipboard { try link.send(RFBMessage.clipboardCapabilities) }
        input.stroke(KeyStroke(keysym: Keysym.shift, shift: false))
        try input.send()
        try link.fence()
        notePosition(since: 0)
    }

    func perform(_ work: RFBInbox.Work) throws -> ActionResult {
        input.begin()
        doubtful = []
        do {
            switch work {
            case .action(let action): return try perform(action)
            case .viewerLeft:
                try guessPosition()
                // Twice: the server may notice the viewer's disconnect only after our first event.
                try input.resendButtons()
                try input.resendButtons()
            case .releaseAll: try input.releaseAll()
            }
            return ActionResult()
        } catch {
            try? input.undo()
            throw error
        }
    }

    private func perform(_ action: DesktopAction) throws -> ActionResult {
        switch action.kind {
        case .key: try key(action)
        case .keyDown: try keyDown(action)
        case .keyUp: try keyUp(action)
        case .holdKey: try holdKey(action)
        case .type: try type(action.text ?? "")
        case .mouseMove: try move(action)
        case .leftClick: try click(action, 1, times: 1)
        case .middleClick: try click(action, 2, times: 1)
        case .rightClick: try click(action, 4, times: 1)
        case .doubleClick: try click(action, 1, times: 2)
        case .tripleClick: try click(action, 1, times: 3)
        case .leftClickDrag: try drag(action)
        case .leftMouseDown: try press(button: 1)
        case .leftMouseUp: try release(button: 1)
        case .middleMouseDown: try press(button: 2)
        case .middleMouseUp: try release(button: 2)
        case .rightMouseDown: try press(button: 4)
        case .rightMouseUp: try release(button: 4)
        case .scroll: try scroll(action)
        case .cursorPosition:
            let point = DesktopGeometry.declared(try requirePosition(), of: action, on: link.size)
            return ActionResult(output: "x=\(point.x),y=\(point.y)")
        case .screenshot, .zoom: return try screenshot(action)
        case .clipboardGet: return ActionResult(output: try clipboardText())
        case .clipboardSet: try setClipboard(ClipboardText.lines(action.text ?? ""))
        case .resize: try resize(to: action.newSize ?? link.size)
        case .wait, .open, .waitStable, .windows, .focusWindow, .closeWindow, .waitForWindow:
            throw DesktopError(.invalid, "\(action.kind.rawValue) is no action of the driver.")
        }
        try link.fence()
        if action.kind != .clipboardSet { lastInput = (.now, link.state.clipboard_offers) }
        return ActionResult(performed: action.kind)
    }

    private func screenshot(_ action: DesktopAction) throws -> ActionResult {
        var wanted = link.size
        return try link.capture { size in
            let (area, picture) = try DesktopGeometry.picture(of: action, on: size)
            wanted = picture
            return area
        } _: { area in
            ActionResult(output: "screenshot", screenshot: try PNG.encode(area, scaledTo: wanted), size: wanted)
        }
    }

    private func resize(to size: DesktopSize) throws {
        try link.sync()
        let state = link.state
        guard link.size != size else { return }
        guard state.resizable else {
            throw DesktopError(.failed, "The desktop cannot be resized: its VNC server has only one size.")
        }
        try link.send(RFBMessage.desktopSize(size, screen: state.screen_id, flags: state.screen_flags))
        let deadline = RFBLink.Instant.now + DesktopLimits.resizeBudget
        // The server answers with an update, which has to be requested.
        while link.state.resize_answers == state.resize_answers {
            guard .now < deadline else { throw DesktopError(.failed, "The VNC server does not answer the resize.") }
            try link.sync()
        }
        let why: String
        switch link.state.resize_status {
        case 0: return
        case 1: why = "it is configured not to be resized"
        case 2: why = "it has not the memory"
        default: why = "it does not have this size"
        }
        throw DesktopError(
            .failed, "The VNC server refuses to be resized to \(size.width)x\(size.height): \(why).")
    }

    // MARK: Keys

    private func combination(_ action: DesktopAction) throws -> KeyCombination {
        try learn(try KeyCombination(action.text ?? "", shiftIsHeld: input.shiftIsHeld))
    }

    /// Takes spare keycodes for what the layout lacks.
    /// - Throws: ``DesktopError`` `.failed` for a key that the server would drop in silence.
    private func learn(_ keys: KeyCombination) throws -> KeyCombination {
        let new = Set(
            keys.keysyms.filter { keysym in
                Keysym.scalar(keysym).map { !TextPlan.isOnLayout($0) && !known.contains(keysym) } ?? false
            })
        if new.isEmpty { return keys }
        if knowsSpareKeycodes {
            guard new.count <= spareKeycodes else { throw Self.noKeycode(new) }
            known.formUnion(new)
        } else {
            let codes = try keyboard()
            let lacking = new.filter { !codes.has($0) }
            guard lacking.count <= codes.spare else { throw Self.noKeycode(lacking) }
            // A viewer may get the last one first.
            doubtful.formUnion(lacking)
        }
        return keys
    }

    /// Checks that the server had keycodes for what was pressed.
    private func confirm() throws {
        if doubtful.isEmpty { return }
        try link.fence()
        let codes = try keyboard()
        let lost = doubtful.filter { !codes.has($0) }
        guard lost.isEmpty else { throw Self.noKeycode(lost) }
        doubtful = []
    }

    /// As the X server has it.
    private func keyboard() throws -> KeyboardCodes {
        guard let server else {
            throw DesktopError(
                .failed, "It cannot be found out whether the keyboard of the desktop has a code for this key.",
                detail: "Its X server is not known. The action type can enter characters.")
        }
        return try link.run(executor) { try await server.keyboard() }
    }

    private static func noKeycode(_ keysyms: Set<UInt32>) -> DesktopError {
        let names = keysyms.sorted().compactMap { Keysym.scalar($0).map(String.init) }.joined(separator: " ")
        return DesktopError(
            .failed, "The keyboard of the desktop has no code left for the key \(names); type can enter it.")
    }

    /// Otherwise an earlier connection or a viewer may have used any number.
    private var knowsSpareKeycodes: Bool { isFresh && !link.inbox.viewers.sentInput }

    /// Keycodes that are certainly free.
    private var spareKeycodes: Int {
        knowsSpareKeycodes ? max(0, DesktopLimits.spareKeycodes - known.count) : 0
    }

    /// Presses a combination. Keys that are held already stay held afterwards, except the last one.
    /// - Returns: the keys to release afterwards, in this order.
    private func press(_ combination: KeyCombination) -> [UInt32] {
        let fresh = combination.keysyms.dropLast().filter { !input.holds($0) } + combination.keysyms.suffix(1)
        for keysym in fresh { input.press(keysym) }
        return fresh.reversed()
    }

    private func key(_ action: DesktopAction) throws {
        for combination in try KeyCombination.sequence(action.text ?? "", shiftIsHeld: input.shiftIsHeld) {
            for keysym in press(try learn(combination)) { input.release(keysym) }
            try input.send()
            try confirm()
        }
    }

    private func keyDown(_ action: DesktopAction) throws {
        for keysym in try combination(action).keysyms { input.press(keysym) }
        try input.send()
        try confirm()
    }

    private func keyUp(_ action: DesktopAction) throws {
        // What has no keycode cannot be held.
        let keys = try KeyCombination(action.text ?? "", shiftIsHeld: input.shiftIsHeld)
        for keysym in keys.keysyms.reversed() { input.release(keysym) }
        try input.send()
    }

    private func holdKey(_ action: DesktopAction) throws {
        let keys = press(try combination(action))
        try input.send()
        try confirm()
        let start = ContinuousClock.now
        let end = start + .milliseconds(action.durationMilliseconds)
        var next = start + DesktopLimits.repeatDelay
        while next < end {
            try link.pause(until: next)
            if let keysym = keys.first { input.press(keysym) }
            try input.send()
            // Counted from now when we are late, so that repeats do not come in a burst.
            next = max(next, .now - DesktopLimits.repeatInterval) + DesktopLimits.repeatInterval
        }
        try link.pause(until: end)
        for keysym in keys { input.release(keysym) }
        try input.send()
    }

    // MARK: Text

    private func type(_ text: String) throws {
        let plan = TextPlan(text, known: known, spare: spareKeycodes)
        known.formUnion(plan.learnt)
        for step in plan.steps {
            switch step {
            case .keys(let strokes): try type(strokes)
            case .paste(let piece): try paste(piece)
            }
        }
    }

    private func type(_ strokes: [KeyStroke]) throws {
        let wraps = !input.shiftIsHeld
        var rest = strokes[...]
        while !rest.isEmpty {
            let some = rest.prefix(DesktopLimits.eventsAtOnce)
            rest = rest.dropFirst(some.count)
            var shift = false
            for stroke in some {
                if wraps && stroke.shift != shift {
                    shift ? input.release(Keysym.shift) : input.press(Keysym.shift)
                    shift = stroke.shift
                }
                input.stroke(stroke)
            }
            if shift { input.release(Keysym.shift) }
            try input.send()
            if !rest.isEmpty { try link.fence() }
        }
    }
}
