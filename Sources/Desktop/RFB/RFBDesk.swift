/// Performs actions on a connection. On the connection's thread.
final class RFBDesk {
    let link: RFBLink
    let hands: RFBHands
    let helpers: DesktopHelpers
    /// Keysyms outside the layout that the keyboard has learnt from us.
    private var known: Set<UInt32> = []
    /// Whether nobody has taught the keyboard anything before us.
    private let isFresh: Bool
    private let usesClipboardMessages: Bool

    init(_ link: RFBLink, _ options: RFBDriver.Options) {
        self.link = link
        helpers = DesktopHelpers(
            options.display == nil ? nil : options.commands, display: options.display ?? "",
            environment: options.environment, executor: options.executor)
        isFresh = options.isFresh
        usesClipboardMessages = options.usesClipboardMessages
        hands = RFBHands(link)
    }

    /// Once, before anything else: learns the screen, and makes the server look at its keyboard; it
    /// loses the first new keysym otherwise.
    func greet() throws {
        // Answers the server's announcements as well: fences and the clipboard.
        try link.sync()
        if link.hasClipboard { try link.send(RFBMessage.clipboardCapabilities) }
        hands.stroke(KeyStroke(keysym: Keysym.shift, shift: false))
        try hands.send()
        try link.fence()
        notePosition(since: 0)
    }

    func perform(_ work: RFBInbox.Work) throws -> ActionResult {
        hands.begin()
        do {
            switch work {
            case .action(let action): return try perform(action)
            case .viewerLeft:
                try guessPosition()
                // Twice: the server may get to the viewer's end only after our first event.
                try hands.restateButtons()
                try hands.restateButtons()
            case .releaseAll: try hands.releaseAll()
            }
            return ActionResult()
        } catch {
            try? hands.undo()
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
            hands.press(button: 1)
            try hands.send()
        case .leftMouseUp:
            try guessPosition()
            hands.release(button: 1)
            try hands.send()
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
        hands.move(to: point)
        link.inbox.positionIsUncertain = false
    }

    private func move(_ action: DesktopAction) throws {
        try synchronize()
        go(to: try target(action.coordinate, of: action))
        try hands.send()
    }

    private func click(_ action: DesktopAction, _ button: UInt8, times: Int) throws {
        try synchronize()
        go(to: try target(action.coordinate, of: action))
        for _ in 0..<times {
            hands.press(button: button)
            hands.release(button: button)
        }
        try hands.send()
    }

    private func drag(_ action: DesktopAction) throws {
        try synchronize()
        let from = try target(action.startCoordinate, of: action)
        let to = try target(action.coordinate, of: action)
        go(to: from)
        hands.press(button: 1)
        try hands.send()
        let steps = DesktopLimits.dragSteps
        for step in 1...steps {
            try link.pause(DesktopLimits.dragStep)
            hands.move(
                to: DesktopPoint(
                    x: from.x + (to.x - from.x) * step / steps, y: from.y + (to.y - from.y) * step / steps))
            try hands.send()
        }
        try link.pause(DesktopLimits.dragStep)
        hands.release(button: 1)
        try hands.send()
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
                hands.press(button: button)
                hands.release(button: button)
            }
            left -= DesktopLimits.eventsAtOnce
            try hands.send()
            if left > 0 { try link.fence() }
        }
        try hands.send()
    }

    /// Learns the screen's size, and where the pointer is if a program moved it.
    private func synchronize() throws {
        let moves = link.told.pointer_moves
        try link.sync()
        notePosition(since: moves)
    }

    private func notePosition(since moves: UInt64) {
        let told = link.told
        guard told.pointer_moves != moves else { return }
        hands.position = DesktopPoint(x: Int(told.pointer_x), y: Int(told.pointer_y))
        link.inbox.positionIsUncertain = false
    }

    /// Makes the position as good as it can be: told by the server, or asked of the X server.
    private func locate() throws {
        // Before the question, so that a viewer's move during it is not forgotten.
        let uncertain = link.inbox.positionIsUncertain
        link.inbox.positionIsUncertain = false
        do {
            try synchronize()
            if uncertain { hands.position = try helpers.pointerPosition(link) ?? hands.position }
        } catch {
            link.inbox.positionIsUncertain = true
            throw error
        }
    }

    /// For what releases buttons: a place that may be wrong is better than a button that stays held.
    private func guessPosition() throws {
        do {
            try locate()
        } catch let error as DesktopError where error.code == .failed {}
        // Where a server has it that nobody has moved yet.
        hands.position = hands.position ?? DesktopPoint(x: link.size.width / 2, y: link.size.height / 2)
    }

    @discardableResult
    private func requirePosition() throws -> DesktopPoint {
        try locate()
        guard let position = hands.position else {
            throw DesktopError(
                .failed, "Where the pointer is cannot be told: install the Debian package xdotool.")
        }
        return position
    }

    // MARK: Keys

    private func combination(_ action: DesktopAction) throws -> KeyCombination {
        let keys = try KeyCombination(action.text ?? "", shiftIsHeld: hands.shiftIsHeld)
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

    /// What the keyboard can still learn, as far as we know: a former connection and viewers may have
    /// taught it anything.
    private var spareKeycodes: Int {
        isFresh && !link.inbox.sawViewer ? max(0, DesktopLimits.spareKeycodes - known.count) : 0
    }

    /// Presses a combination: what is held already stays so afterwards, but for the key itself.
    /// - Returns: what has to be released again, in this order.
    private func press(_ combination: KeyCombination) -> [UInt32] {
        let fresh = combination.keysyms.dropLast().filter { !hands.holds($0) } + combination.keysyms.suffix(1)
        for keysym in fresh { hands.press(keysym) }
        return fresh.reversed()
    }

    private func key(_ action: DesktopAction) throws {
        for keysym in press(try combination(action)) { hands.release(keysym) }
        try hands.send()
    }

    private func keyDown(_ action: DesktopAction) throws {
        for keysym in try combination(action).keysyms { hands.press(keysym) }
        try hands.send()
    }

    private func keyUp(_ action: DesktopAction) throws {
        for keysym in try combination(action).keysyms.reversed() { hands.release(keysym) }
        try hands.send()
    }

    private func holdKey(_ action: DesktopAction) throws {
        let keys = press(try combination(action))
        try hands.send()
        let start = ContinuousClock.now
        let end = start + .milliseconds(action.durationMilliseconds)
        var next = start + DesktopLimits.repeatDelay
        while next < end {
            try link.pause(until: next)
            if let keysym = keys.first { hands.press(keysym) }
            try hands.send()
            // From now on, should we be late: no burst of repeats.
            next = max(next, .now - DesktopLimits.repeatInterval) + DesktopLimits.repeatInterval
        }
        try link.pause(until: end)
        for keysym in keys { hands.release(keysym) }
        try hands.send()
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
        let wraps = !hands.shiftIsHeld
        var rest = strokes[...]
        while !rest.isEmpty {
            let some = rest.prefix(DesktopLimits.eventsAtOnce)
            rest = rest.dropFirst(some.count)
            var shift = false
            for stroke in some {
                if wraps && stroke.shift != shift {
                    shift ? hands.release(Keysym.shift) : hands.press(Keysym.shift)
                    shift = stroke.shift
                }
                hands.stroke(stroke)
            }
            if shift { hands.release(Keysym.shift) }
            try hands.send()
            if !rest.isEmpty { try link.fence() }
        }
    }

    private func paste(_ text: String) throws {
        // What was typed before has arrived before what is pasted.
        try link.fence()
        if usesClipboardMessages && link.hasClipboard {
            try offer(text)
        } else {
            try helpers.setSelections(text, link)
            pressPaste()
            try hands.send()
            try link.fence()
            // Nothing tells when the program has fetched it.
            try link.pause(DesktopLimits.blindPaste)
        }
    }

    private func offer(_ text: String) throws {
        link.clipboard = text
        let before = link.told.clipboard_asks
        try link.send(RFBMessage.clipboardNotify)
        try link.fence()
        // A clipboard manager fetches it at once, and the server remembers it for the program.
        let isRemembered = link.told.clipboard_asks != before
        pressPaste()
        try hands.send()
        try link.fence()
        if isRemembered {
            try link.pause(DesktopLimits.blindPaste)
        } else {
            try link.wait(until: .now + DesktopLimits.pasteBudget, late: Self.notPasted) {
                link.told.clipboard_asks != before
            }
        }
        // The answer is on its way to the program before any key that follows.
        try link.fence()
    }

    private func pressPaste() {
        hands.press(Keysym.shift)
        hands.press(Keysym.insert)
        hands.release(Keysym.insert)
        hands.release(Keysym.shift)
    }

    private static func notPasted() -> DesktopError {
        DesktopError(
            .failed, "The text has characters that the keyboard lacks, and the program did not paste them.",
            detail: "They are put on the clipboard and pasted with shift+Insert.")
    }
}
