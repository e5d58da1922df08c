import AgentCore

/// Performing actions: the driver's on the driver, those about windows at the X server.
extension DesktopSession {
    /// Performs an action on the desktop, which is started when there is none.
    /// - Throws: ``DesktopError``; `CancellationError` when the calling task is cancelled.
    func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
        try await onDesktop(isRepeatable: action.isRepeatable) { [clock] live in
            try await live.busy(clock) { try await live.running.driver.perform(action, in: space) }
        }
    }

    /// Likewise what is asked of the screen.
    func perform(_ action: ScreenAction, in space: CoordinateSpace) async throws -> ActionResult {
        try await onDesktop(isRepeatable: false) { live in try await self.perform(action, in: space, on: live.running) }
    }

    private func onDesktop(
        isRepeatable: Bool, _ body: (LiveDesktop) async throws -> ActionResult
    ) async throws -> ActionResult {
        let live = try await acquire()
        await hub.settled()
        do {
            return try await body(live)
        } catch let error as DesktopError where error.code == .connectionLost {
            markLost(live, error.message)
            // A click cannot be repeated, because it may have arrived.
            guard isRepeatable else { throw error }
        }
        return try await body(try await acquire())
    }

    private func perform(
        _ action: ScreenAction, in space: CoordinateSpace, on desktop: RunningDesktop
    ) async throws -> ActionResult {
        let server = XServer(display: desktop.display, clock: clock)
        var result = ActionResult()
        switch action {
        case .windows:
            result.windows = try await server.windows().map { declared($0, in: space, on: desktop.driver.size) }
        case .focus(let window): try await server.focus(window)
        case .close(let window): try await server.close(window)
        case .window(let title, let timeout):
            let found = try await server.firstWindow(titled: title, within: .milliseconds(timeout))
            result.met = found != nil
            if let found {
                result.windows = [declared(found, in: space, on: desktop.driver.size)]
            } else {
                result.output = "No window has \"\(title)\" in its title after \(timeout) ms."
            }
        case .untilStill(let region, let still, let timeout):
            try await stillnessWaits.take()
            defer { stillnessWaits.give() }
            let screen = StillScreen(
                endpoint: desktop.endpoint,
                area: { size in
                    try region.map { try DesktopGeometry.native($0, in: space, on: size) } ?? DesktopRegion(size)
                },
                still: .milliseconds(still), timeout: .milliseconds(timeout))
            let isStill = try await screen.wait()
            result.met = isStill
            if !isStill { result.output = "The screen was not still for \(still) ms within \(timeout) ms." }
        }
        return result
    }

    /// A window in the caller's coordinates.
    private func declared(_ window: DesktopWindow, in space: CoordinateSpace, on size: DesktopSize) -> DesktopWindow {
        if space.isNative { return window }
        func map(_ value: Int, _ declared: Int, _ native: Int) -> Int {
            Int((Double(value) * Double(declared) / Double(native)).rounded())
        }
        let own = space.size(on: size)
        var window = window
        window.x = map(window.x, own.width, size.width)
        window.width = max(1, map(window.width, own.width, size.width))
        window.y = map(window.y, own.height, size.height)
        window.height = max(1, map(window.height, own.height, size.height))
        return window
    }
}
