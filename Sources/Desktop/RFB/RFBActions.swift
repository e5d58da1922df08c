/// Performs the actions of a connection, on its thread.
final class RFBActions {
    let link: RFBLink
    let input: RFBInput
    let helpers: DesktopHelpers
    /// Keysyms outside the layout that the server has mapped to spare keycodes for us.
    private var known: Set<UInt32> = []
    /// Whether no client before us can have used up spare keycodes.
    private let isFresh: Bool
    private let usesClipboardMessages: Bool

    init(_ link: RFBLink, _ options: RFBDriver.Options) {
        self.link = link
        helpers = DesktopHelpers(
            options.display == nil ? nil : options.commands, display: options.display ?? "",
            environment: options.environment, executor: options.executor)
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
        case .leftMouseDown:
            try requirePosition()
            input.press(button: 1)
            try input.send()
        case .leftMouseUp:
            try guessPosition()
            input.release(button: 1)
            try input.send()
        case .scroll: try scroll(action)
        case .cursorPosition:
            let point = DesktopGeometry.declared(try requirePosition(), of: action, on: link.size)
            return ActionResult(output: "x=\(point.x),y=\(point.y)")
        case .screenshot: return try screenshot(action)
        case .wait, .open:
            throw DesktopError(.invalid, "\(action.kind.rawValue) is no action of the driver.")
        }
        try link.fence()
        return ActionResult(output: "\(action.kind.rawValue) action performed")
    }

    private func screenshot(_ action: DesktopAction) throws -> ActionResult {
        try DesktopLibrary.png.load()
        return try link.capture { pixels, size in
            let wanted = DesktopSize(
                width: action.declaredWidth ?? size.width, height: action.declaredHeight ?? size.height)
            let png = try PNG.encode(pixels, size, scaledTo: wanted)
            return ActionResult(output: "screenshot", screenshot: png, size: wanted)
        }
    }

    // MARK: Pointer

    /// The action's point on the screen as it is now.
    private func target(_ point: DesktopPoint?, of action: DesktopAction) throws -> DesktopPoint {
        guard let point else {
            throw DesktopError.invalid("Missing \"coordinate\" for \(action.kind.rawValue) action.")
        }
        return DesktopGeometry.native(point, of: action, on: link.size)
    }

    private func go(to point: DesktopPoint) {
        input.move(to: point)
        link.inbox.positionIsUncertain = false
    }

    private func move(_ action: DesktopAction) throws {
        try synchronize()
        go(to: try target(action.coordinate, of: action))
        try input.send()
    }

    private func click(_ action: DesktopAction, _ button: UInt8, times: Int) throws {
        try synchronize()
        go(to: try target(action.coordinate, of: action))
        for _ in 0..<times {
            input.press(button: button)
            input.release(button: button)
        }
        try input.send()
    }

    private func drag(_ action: DesktopAction) throws {
        try synchronize()
        let from = try target(action.startCoordinate, of: action)
        let to = try target(action.coordinate, of: action)
        go(to: from)
        input.press(button: 1)
        try input.send()
        let steps = DesktopLimits.dragSteps
        for step in 1...steps {
            try link.pause(DesktopLimits.dragStep)
            input.move(
                to: DesktopPoint(
                    x: from.x + (to.x - from.x) * step / steps, y: from.y + (to.y - from.y) * step / steps))
            try input.send()
        }
        try link.pause(DesktopLimits.dragStep)
        input.release(button: 1)
        try input.send()
    }

    private func scroll(_ action: DesktopAction) throws {
        let button: UInt8 =
            switch action.scrollDirection {
            case .up: 1 << 3
            case .down: 1 << 4
            case .left: 1 << 5
            case .right: 1 << 6
            }
        try synchronize()
        go(to: try target(action.coordinate, of: action))
        var left = action.scrollAmount
        while left > 0 {
            for _ in 0..<min(left, DesktopLimits.eventsAtOnce) {
                input.press(button: button)
                input.release(button: button)
            }
            left -= DesktopLimits.eventsAtOnce
            try input.send()
            if left > 0 { try link.fence() }
        }
        try input.send()
    }

    /// Updates the screen size, and the pointer's position if a program moved it.
    private func synchronize() throws {
        let moves = link.state.pointer_moves
        try link.sync()
        notePosition(since: moves)
    }

    private func notePosition(since moves: UInt64) {
        let state = link.state
        guard state.pointer_moves != moves else { return }
        input.position = DesktopPoint(x: Int(state.pointer_x), y: Int(state.pointer_y))
        link.inbox.positionIsUncertain = false
    }

    /// Updates the pointer's position: as the VNC server reports it, else as xdotool does.
    private func locate() throws {
        // Cleared before the query, so that a viewer's move during it sets it again.
        let uncertain = link.inbox.positionIsUncertain
        link.inbox.positionIsUncertain = false
        do {
            try synchronize()
            if uncertain { input.position = try helpers.pointerPosition(link) ?? input.position }
        } catch {
            link.inbox.positionIsUncertain = true
            throw error
        }
    }

    /// For releasing buttons: a position that may be wrong is better than a button that stays held.
    private func guessPosition() throws {
        do {
            try locate()
        } catch let error as DesktopError where error.code == .failed {}
        // Where a server puts a pointer that was never moved.
        input.position = input.position ?? DesktopPoint(x: link.size.width / 2, y: link.size.height / 2)
    }

    @discardableResult
    private func requirePosition() throws -> DesktopPoint {
        try locate()
        guard let position = input.position else {
            throw DesktopError(
                .failed, "The position of the pointer is unknown: install the Debian package xdotool.")
        }
        return position
    }

    // MARK: Keys

    private func combination(_ action: DesktopAction) throws -> KeyCombination {
        let keys = try KeyCombination(action.text ?? "", shiftIsHeld: input.shiftIsHeld)
        for keysym in keys.keysyms {
            guard let scalar = Keysym.scalar(keysym), !TextPlan.isOnLayout(scalar), !known.contains(keysym) else {
                continue
            }
            if spareKeycodes > 0 {
                known.insert(keysym)
            } else if isFresh && !link.inbox.sawViewer {
                throw DesktopError(
                    .failed, "The keyboard of the desktop has no code left for the key \(scalar); type can enter it.")
            }
        }
        return keys
    }

    /// Keycodes that are certainly free: an earlier connection or a viewer may have used any number.
    private var spareKeycodes: Int {
        isFresh && !link.inbox.sawViewer ? max(0, DesktopLimits.spareKeycodes - known.count) : 0
    }

    /// Presses a combination. Keys that are held already stay held afterwards, except the last one.
    /// - Returns: the keys to release afterwards, in this order.
    private func press(_ combination: KeyCombination) -> [UInt32] {
        let fresh = combination.keysyms.dropLast().filter { !input.holds($0) } + combination.keysyms.suffix(1)
        for keysym in fresh { input.press(keysym) }
        return fresh.reversed()
    }

    private func key(_ action: DesktopAction) throws {
        for keysym in press(try combination(action)) { input.release(keysym) }
        try input.send()
    }

    private func keyDown(_ action: DesktopAction) throws {
        for keysym in try combination(action).keysyms { input.press(keysym) }
        try input.send()
    }

    private func keyUp(_ action: DesktopAction) throws {
        for keysym in try combination(action).keysyms.reversed() { input.release(keysym) }
        try input.send()
    }

    private func holdKey(_ action: DesktopAction) throws {
        let keys = press(try combination(action))
        try input.send()
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

    private func paste(_ text: String) throws {
        // So that what was typed before arrives before what is pasted.
        try link.fence()
        if usesClipboardMessages && link.hasClipboard {
            try offer(text)
        } else {
            try helpers.setSelections(text, link)
            pressPaste()
            try input.send()
            try link.fence()
            // There is no signal for the program having fetched it.
            try link.pause(DesktopLimits.blindPaste)
        }
    }

    private func offer(_ text: String) throws {
        link.clipboard = text
        let before = link.state.clipboard_requests
        try link.send(RFBMessage.clipboardNotify)
        try link.fence()
        // A clipboard manager fetches it at once, and the server then caches it for the program.
        let isCached = link.state.clipboard_requests != before
        pressPaste()
        try input.send()
        try link.fence()
        if isCached {
            try link.pause(DesktopLimits.blindPaste)
        } else {
            try link.wait(until: .now + DesktopLimits.pasteBudget, late: Self.notPasted) {
                link.state.clipboard_requests != before
            }
        }
        // So that the program gets the text before any key that follows.
        try link.fence()
    }

    private func pressPaste() {
        input.press(Keysym.shift)
        input.press(Keysym.insert)
        input.release(Keysym.insert)
        input.release(Keysym.shift)
    }

    private static func notPasted() -> DesktopError {
        DesktopError(
            .failed, "The text has characters that the keyboard lacks, and the program did not paste them.",
            detail: "They are put on the clipboard and pasted with shift+Insert.")
    }
}
