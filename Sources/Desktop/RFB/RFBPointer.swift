extension DriverAction.Button {
    /// Its bit in a PointerEvent (RFC 6143, 7.5.5).
    var bit: UInt8 {
        switch self {
        case .left: 1 << 0
        case .middle: 1 << 1
        case .right: 1 << 2
        }
    }
}

/// Moving, clicking, dragging and scrolling.
extension RFBActions {
    /// The point on the screen as it is now.
    private func target(_ point: DesktopPoint, _ space: CoordinateSpace) -> DesktopPoint {
        DesktopGeometry.native(point, in: space, on: link.size)
    }

    private func go(to point: DesktopPoint) {
        input.move(to: point)
        link.inbox.positionIsUncertain = false
    }

    /// Sends pointer events while no viewer holds a button: the server drops them otherwise.
    /// - Throws: ``DesktopError`` `.pointerHeld` when one does not let go, or may have begun to before the events
    ///   arrived.
    private func withPointer(_ body: () throws -> Void) throws {
        // While we hold a button, it is the viewers' events that are dropped.
        guard input.buttons == 0, link.inbox.viewers.connected > 0 else {
            try synchronize()
            return try body()
        }
        var presses: UInt64 = 0
        try link.wait(until: .now + DesktopLimits.viewerHold, late: { Self.held() }) {
            let viewers = link.inbox.viewers
            presses = viewers.presses
            return viewers.holding == 0
        }
        // The server has processed the release, too, once it has answered this.
        try synchronize()
        try body()
        try link.fence()
        guard link.inbox.viewers.presses == presses else {
            throw Self.held("A viewer pressed a button at the same time, so the action may not have arrived.")
        }
    }

    private static func held(_ detail: String? = nil) -> DesktopError {
        DesktopError(.pointerHeld, "The pointer is held by a viewer.", detail: detail)
    }

    func move(to point: DesktopPoint, _ space: CoordinateSpace) throws {
        try withPointer {
            go(to: target(point, space))
            try input.send()
        }
    }

    /// - Parameter button: its bit.
    func click(
        _ button: UInt8, times: Int, at point: DesktopPoint, _ space: CoordinateSpace, holding modifiers: [UInt32]
    ) throws {
        try withPointer {
            go(to: target(point, space))
            let modifiers = hold(modifiers)
            for _ in 0..<times {
                input.press(button: button)
                input.release(button: button)
            }
            for keysym in modifiers { input.release(keysym) }
            try input.send()
        }
    }

    func press(button: UInt8) throws {
        try withPointer {
            try requirePosition()
            input.press(button: button)
            try input.send()
        }
    }

    func release(button: UInt8) throws {
        try withPointer {
            try guessPosition()
            input.release(button: button)
            try input.send()
        }
    }

    /// Presses the modifiers that are not held already.
    /// - Returns: the keys to release afterwards, in this order.
    private func hold(_ modifiers: [UInt32]) -> [UInt32] {
        let fresh = modifiers.filter { !input.holds($0) }
        for keysym in fresh { input.press(keysym) }
        return fresh.reversed()
    }

    func drag(
        from start: DesktopPoint, to end: DesktopPoint, _ space: CoordinateSpace, holding modifiers: [UInt32]
    ) throws {
        var held: [UInt32] = []
        try withPointer {
            go(to: target(start, space))
            held = hold(modifiers)
            input.press(button: 1)
            try input.send()
        }
        let (from, to) = (target(start, space), target(end, space))
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
        for keysym in held { input.release(keysym) }
        try input.send()
    }

    func scroll(
        _ direction: DriverAction.Direction, steps: Int, at point: DesktopPoint, _ space: CoordinateSpace,
        holding modifiers: [UInt32]
    ) throws {
        let button: UInt8 =
            switch direction {
            case .up: 1 << 3
            case .down: 1 << 4
            case .left: 1 << 5
            case .right: 1 << 6
            }
        try withPointer {
            go(to: target(point, space))
            let modifiers = hold(modifiers)
            var left = steps
            while left > 0 {
                for _ in 0..<min(left, DesktopLimits.eventsAtOnce) {
                    input.press(button: button)
                    input.release(button: button)
                }
                left -= DesktopLimits.eventsAtOnce
                try input.send()
                if left > 0 { try link.fence() }
            }
            for keysym in modifiers { input.release(keysym) }
            try input.send()
        }
    }

    /// Updates the screen size, and the pointer's position if a program moved it.
    private func synchronize() throws {
        let moves = link.state.pointer_moves
        try link.sync()
        notePosition(since: moves)
    }

    func notePosition(since moves: UInt64) {
        let state = link.state
        guard state.pointer_moves != moves else { return }
        input.position = DesktopPoint(x: Int(state.pointer_x), y: Int(state.pointer_y))
        link.inbox.positionIsUncertain = false
    }

    /// Updates the pointer's position: as the VNC server reports it, else as the X server does.
    private func locate() throws {
        // Cleared before the query, so that a viewer's move during it sets it again.
        let uncertain = link.inbox.positionIsUncertain
        link.inbox.positionIsUncertain = false
        do {
            try synchronize()
            guard uncertain, let server else { return }
            input.position = try link.run(executor) { try await server.pointer() }
        } catch {
            link.inbox.positionIsUncertain = true
            throw error
        }
    }

    /// For releasing buttons: a position that may be wrong is better than a button that stays held.
    func guessPosition() throws {
        do {
            try locate()
        } catch let error as DesktopError where error.code == .failed {}
        // Where a server puts a pointer that was never moved.
        input.position = input.position ?? DesktopPoint(x: link.size.width / 2, y: link.size.height / 2)
    }

    @discardableResult
    func requirePosition() throws -> DesktopPoint {
        try locate()
        guard let position = input.position else {
            throw DesktopError(
                .failed, "The position of the pointer is unknown: the X display of the desktop is not known.")
        }
        return position
    }
}
