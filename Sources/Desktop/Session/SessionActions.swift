import AgentCore

/// Performing actions: the driver's on the driver, those about windows at the X server.
extension DesktopSession {
    /// Performs an action on the desktop, which is started when there is none; never `wait` or `open`.
    /// - Throws: ``DesktopError``; `CancellationError` when the calling task is cancelled.
    public func perform(_ action: DesktopAction) async throws -> ActionResult {
        let live = try await acquire()
        await hub.settled()
        do {
            return try await perform(action, on: live)
        } catch let error as DesktopError where error.code == .connectionLost {
            markLost(live, error.message)
            guard action.kind.changesNothing else { throw error }
        }
        // A screenshot can be repeated; a click cannot, because it may have arrived.
        return try await perform(action, on: try await acquire())
    }

    private func perform(_ action: DesktopAction, on live: LiveDesktop) async throws -> ActionResult {
        let desktop = live.running
        if action.kind.isOfDriver {
            return try await live.busy(clock) { try await desktop.driver.perform(action) }
        }
        let server = XServer(display: desktop.display, clock: clock)
        var result = ActionResult(performed: action.kind)
        switch action.kind {
        case .windows:
            result.windows = try await server.windows().map { declared($0, of: action, on: desktop.driver.size) }
        case .focusWindow: try await server.focus(action.windowID ?? 0)
        case .closeWindow: try await server.close(action.windowID ?? 0)
        case .waitForWindow:
            let title = action.title ?? ""
            let found = try await server.firstWindow(
                titled: title, within: .milliseconds(action.timeoutMilliseconds))
            result.met = found != nil
            if let found {
                result.windows = [declared(found, of: action, on: desktop.driver.size)]
            } else {
                result.output =
                    "No window has \"\(title)\" in its title after \(action.timeoutMilliseconds) ms."
            }
        case .waitStable:
            let isStill = try await waitUntilStill(action, desktop)
            result.met = isStill
            if !isStill {
                result.output =
                    "The screen was not still for \(action.stillMilliseconds) ms within \(action.timeoutMilliseconds) ms."
            }
        default: throw DesktopError(.invalid, "\(action.kind.rawValue) is no action of the session.")
        }
        return result
    }

    private func waitUntilStill(_ action: DesktopAction, _ desktop: RunningDesktop) async throws -> Bool {
        try await stillnessWaits.take()
        defer { stillnessWaits.give() }
        let screen = StillScreen(
            endpoint: desktop.endpoint,
            area: { size in
                try action.region.map { try DesktopGeometry.native($0, of: action, on: size) } ?? DesktopRegion(size)
            },
            still: .milliseconds(action.stillMilliseconds), timeout: .milliseconds(action.timeoutMilliseconds))
        return try await screen.wait()
    }

    /// A window in the caller's coordinates.
    private func declared(_ window: DesktopWindow, of action: DesktopAction, on size: DesktopSize) -> DesktopWindow {
        guard action.declaredWidth != nil || action.declaredHeight != nil else { return window }
        func map(_ value: Int, _ declared: Int?, _ native: Int) -> Int {
            Int((Double(value) * Double(declared ?? native) / Double(native)).rounded())
        }
        var window = window
        window.x = map(window.x, action.declaredWidth, size.width)
        window.width = max(1, map(window.width, action.declaredWidth, size.width))
        window.y = map(window.y, action.declaredHeight, size.height)
        window.height = max(1, map(window.height, action.declaredHeight, size.height))
        return window
    }
}
