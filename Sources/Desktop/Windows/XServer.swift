import AgentCore
import CDesktop

/// The X server of a desktop, and what its window manager knows about windows.
///
/// Each call makes a connection of its own and closes it: an open one would collect events (each new keysym is
/// told to all). ``DesktopLimits/windowCalls`` run at once in the process, a further one is refused; the server
/// has ``DesktopLimits/windowAnswers`` to answer, without the waits. Cancellation ends any call at once.
///
/// Every call throws `CancellationError`, and ``DesktopError``: `.failed` when the X server cannot be reached, is not
/// this user's or root's, or does not answer, `.tooMany`, and what the call says.
struct XServer: Sendable {
    /// Such as `:3`.
    let display: String
    private let clock: AgentClock

    private static let turns = TurnQueue(atOnce: DesktopLimits.windowCalls, limit: 0) {
        DesktopError(
            .tooMany,
            "Too many requests about windows at once: \(DesktopLimits.windowCalls) are already being answered.")
    }

    /// - Parameter clock: of the time limits. The default starts timer threads of the runtime, which stay.
    init(display: String, clock: AgentClock = AgentClock(ContinuousClock())) {
        self.display = display
        self.clock = clock
    }

    /// The windows from the bottom to the top (`_NET_CLIENT_LIST_STACKING`), or from the oldest to the newest
    /// where the window manager does not say how they are stacked (`_NET_CLIENT_LIST`); the last
    /// ``DesktopLimits/windows`` of them. Windows that end meanwhile are left out.
    /// - Throws: ``DesktopError`` `.failed` when no window manager that keeps such a list (EWMH) appears within
    ///   ``DesktopLimits/windowManagerBudget``.
    func windows() async throws -> [DesktopWindow] { try await connected { try await list($0) } }

    /// Raises a window and makes it the active one; returns when the window manager says that it is. When it already
    /// was, or something else is changing the focus at that moment, it may be so again only a moment later.
    /// - Throws: as ``windows()``; ``DesktopError`` `.notFound` when it is not among the windows, `.failed` when it has
    ///   not become active within ``DesktopLimits/focusBudget``: not all windows can.
    func focus(_ id: UInt32) async throws {
        try await connected { connection in
            try Self.check(id, try await list(connection))
            try await answer(connection) { try $0.send(WD_X_ACTIVATE, to: id) }
            let isActive = try await first(connection, within: DesktopLimits.focusBudget) { connection -> Bool? in
                guard let windows = try connection.windows(follow: false) else { return nil }
                return try Self.check(id, windows).isFocused ? true : nil
            }
            guard isActive == nil else { return }
            throw DesktopError(
                .failed, "Window \(id) has not become active within \(DesktopLimits.focusBudget.components.seconds) s.",
                detail: "Some windows, such as panels, take no keyboard focus.")
        }
    }

    /// Asks the window manager to close a window; returns when the server has passed that on. The program may ask
    /// its user first, or keep the window.
    /// - Throws: as ``windows()``; ``DesktopError`` `.notFound` when it is not among the windows.
    func close(_ id: UInt32) async throws {
        try await connected { connection in
            try Self.check(id, try await list(connection))
            try await answer(connection) { try $0.send(WD_X_CLOSE, to: id) }
        }
    }

    /// Waits, without polling, for a window whose title has this part, letter for letter (upper and lower case
    /// differ; compared as Unicode scalars, not normalised). Of several it is the topmost.
    /// - Parameters:
    ///   - part: an empty one matches every window.
    ///   - limit: how long is waited after the first look, which is always taken.
    /// - Returns: nil when the time is over, also where the server or the window manager hung meanwhile.
    /// - Throws: as ``windows()``.
    func firstWindow(titled part: String, within limit: Duration) async throws -> DesktopWindow? {
        try await connected { connection in
            _ = try await list(connection)
            return try await first(connection, within: limit) { connection in
                try connection.windows(follow: true)?.last { $0.title.utf8.contains(part.utf8) }
            }
        }
    }

    /// Where the pointer is, in pixels of the framebuffer. Needs no window manager.
    func pointer() async throws -> DesktopPoint {
        try await connected { connection in try await answer(connection) { try $0.pointer() } }
    }

    /// Which keysyms have a keycode. Needs no window manager.
    func keyboard() async throws -> KeyboardCodes {
        try await connected { connection in try await answer(connection) { try $0.keyboard() } }
    }

    // MARK: Steps

    private struct TimeIsOver: Error {}

    private func connected<T: Sendable>(_ body: (XConnection) async throws -> T) async throws -> T {
        try await Self.turns.take()
        defer { Self.turns.give() }
        let connection = try XConnection(to: display)
        try await answer(connection) { try $0.greet() }
        return try await body(connection)
    }

    private func list(_ connection: XConnection) async throws -> [DesktopWindow] {
        let windows = try await first(connection, within: DesktopLimits.windowManagerBudget) {
            try $0.windows(follow: false)
        }
        if let windows { return windows }
        throw DesktopError(
            .failed, "The desktop \(display) has no window manager that lists its windows, such as openbox.",
            detail: "_NET_SUPPORTING_WM_CHECK is missing.")
    }

    @discardableResult
    private static func check(_ id: UInt32, _ windows: [DesktopWindow]) throws(DesktopError) -> DesktopWindow {
        guard let window = windows.first(where: { $0.id == id }) else {
            throw DesktopError(.notFound, "Window not found: \(id).")
        }
        return window
    }

    /// A step in which the server only has to answer.
    private func answer<T: Sendable>(
        _ connection: XConnection, _ step: @escaping @Sendable (XConnection) throws -> T
    ) async throws -> T {
        let start = clock.now()
        defer { connection.patience.withLock { $0 -= clock.now() - start } }
        return try await withTimeLimit(
            connection.patience.withLock { $0 }, clock,
            DesktopError(.failed, "The X server \(display) does not answer.")
        ) { try await connection.run(step) }
    }

    /// Looks now and after each change, until something is found.
    /// - Returns: nil when the time is over; the connection cannot be used any more then.
    private func first<T: Sendable>(
        _ connection: XConnection, within limit: Duration, _ look: @escaping @Sendable (XConnection) throws -> T?
    ) async throws -> T? {
        if let found = try await answer(connection, look) { return found }
        do {
            return try await withTimeLimit(limit, clock, TimeIsOver()) {
                try await connection.run { connection in
                    while true {
                        try connection.waitForChange()
                        if let found = try look(connection) { return found }
                    }
                }
            }
        } catch is TimeIsOver {
            return nil
        }
    }
}
