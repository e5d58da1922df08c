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
            case .action(let action, let space): return try perform(action, space)
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

    private func perform(_ action: DriverAction, _ space: CoordinateSpace) throws -> ActionResult {
        switch action {
        case .keys(let combinations): try press(inTurn: combinations)
        case .press(let combination): try hold(combination)
        case .release(let combination): try release(combination)
        case .hold(let combination, let milliseconds): try hold(combination, for: .milliseconds(milliseconds))
        case .type(let text): try type(text)
        case .move(let point): try move(to: point, space)
        case .click(let button, let times, let point, let modifiers):
            try click(button.bit, times: times, at: point, space, holding: modifiers)
        case .button(let button, let isDown): try isDown ? press(button: button.bit) : release(button: button.bit)
        case .drag(let from, let to, let modifiers): try drag(from: from, to: to, space, holding: modifiers)
        case .scroll(let direction, let steps, let point, let modifiers):
            try scroll(direction, steps: steps, at: point, space, holding: modifiers)
        case .position:
            let point = DesktopGeometry.declared(try requirePosition(), in: space, on: link.size)
            return ActionResult(output: "x=\(point.x),y=\(point.y)")
        case .picture(let picture): return try capture(picture, space)
        case .readClipboard: return ActionResult(output: try clipboardText())
        case .setClipboard(let text):
            try setClipboard(ClipboardText.lines(text))
            try link.fence()
            return ActionResult()
        case .resize(let size): try resize(to: size)
        }
        try link.fence()
        lastInput = (.now, link.state.clipboard_offers)
        return ActionResult()
    }

    private func capture(_ picture: Picture, _ space: CoordinateSpace) throws -> ActionResult {
        var wanted = link.size
        return try link.capture { size in
            let (area, scaled) = try DesktopGeometry.area(of: picture, in: space, on: size)
            wanted = scaled
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
        case 2: why = "it is out of memory"
        default: why = "it does not have this size"
        }
        throw DesktopError(
            .failed, "The VNC server refuses to be resized to \(size.width)x\(size.height): \(why).")
    }

    // MARK: Keys

    /// The keys of a combination as things are, each of which the server has a keycode for.
    private func keysyms(_ combination: KeyCombination) throws -> [UInt32] {
        let keys = combination.keysyms(shiftIsHeld: input.shiftIsHeld)
        try learn(keys)
        return keys
    }

    /// Takes spare keycodes for what the layout lacks.
    /// - Throws: ``DesktopError`` `.failed` for a key that the server would drop in silence.
    private func learn(_ keys: [UInt32]) throws {
        let new = Set(
            keys.filter { keysym in
                Keysym.scalar(keysym).map { !TextPlan.isOnLayout($0) && !known.contains(keysym) } ?? false
            })
        if new.isEmpty { return }
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

    /// Presses keys. Those that are held already stay held afterwards, except the last one.
    /// - Returns: the keys to release afterwards, in this order.
    private func press(_ keysyms: [UInt32]) -> [UInt32] {
        let fresh = keysyms.dropLast().filter { !input.holds($0) } + keysyms.suffix(1)
        for keysym in fresh { input.press(keysym) }
        return fresh.reversed()
    }

    private func press(inTurn combinations: [KeyCombination]) throws {
        // What they mean does not change while they are pressed, though one of them may have Shift in it.
        let shiftIsHeld = input.shiftIsHeld
        for combination in combinations {
            let keys = combination.keysyms(shiftIsHeld: shiftIsHeld)
            try learn(keys)
            for keysym in press(keys) { input.release(keysym) }
            try input.send()
            try confirm()
        }
    }

    private func hold(_ combination: KeyCombination) throws {
        for keysym in try keysyms(combination) { input.press(keysym) }
        try input.send()
        try confirm()
    }

    private func release(_ combination: KeyCombination) throws {
        // What has no keycode cannot be held.
        for keysym in combination.keysyms(shiftIsHeld: input.shiftIsHeld).reversed() { input.release(keysym) }
        try input.send()
    }

    private func hold(_ combination: KeyCombination, for duration: Duration) throws {
        let keys = press(try keysyms(combination))
        try input.send()
        try confirm()
        let start = ContinuousClock.now
        let end = start + duration
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
