import AgentCore

/// Waits until a screen is still, over an RFB connection of its own, so that other actions go on meanwhile. The server
/// reports each change; a screen that is still costs nothing.
struct StillScreen: Sendable {
    let endpoint: RFBEndpoint
    /// The part that has to be still, on the screen with the present size.
    let area: @Sendable (DesktopSize) throws -> DesktopRegion
    let still: Duration
    let timeout: Duration

    /// - Returns: false when it was not still for so long within the time.
    /// - Throws: ``DesktopError``; `CancellationError` when the task is cancelled.
    func wait() async throws -> Bool {
        try DesktopLibrary.vncClient.load()
        guard let inbox = RFBInbox() else { throw DesktopError(.failed, "No descriptor is left for the desktop.") }
        return try await withTaskCancellationHandler {
            do {
                return try await withCheckedThrowingContinuation { continuation in
                    let started = startThread("still-screen") {
                        continuation.resume(with: Result { try watch(inbox) })
                    }
                    guard !started else { return }
                    continuation.resume(
                        throwing: DesktopError(.failed, "The system refuses a thread for the desktop."))
                }
            } catch {
                try Task.checkCancellation()
                throw error
            }
        } onCancel: {
            inbox.close()
        }
    }

    private func watch(_ inbox: RFBInbox) throws -> Bool {
        let end = ContinuousClock.now + timeout
        let budget = DesktopLimits.answerBudget
        let link = try RFBLink(RFBSocket.connect(to: endpoint, within: budget), inbox: inbox, within: budget)
        try link.sync()
        var size = link.size
        var area = try area(size)
        let connected = ContinuousClock.now
        // nil until the first update, which has the whole area, as all of it is new to this connection.
        var last: ContinuousClock.Instant?
        try link.request(area, changed: true)
        while true {
            let seen = link.state.updates
            let next = last.map { min($0 + still, end) } ?? connected + budget
            try link.wait(until: next) { link.state.updates != seen || .now >= next }
            guard link.state.updates != seen else {
                guard let last else { throw RFBLink.silent() }
                return next == last + still
            }
            // An update without pixels says where the pointer is, or the size.
            if link.state.pixels > 0 || link.size != size { last = .now }
            if link.size != size {
                size = link.size
                area = try self.area(size)
            }
            try link.request(area, changed: true)
        }
    }
}
