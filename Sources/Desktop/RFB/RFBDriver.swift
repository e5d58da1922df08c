import AgentCore
import CDesktop

/// Drives a desktop over one shared RFB connection, which has its own thread. An idle connection costs no
/// wake-ups: nothing is requested from the server without a call.
///
/// Actions are performed in the order of the calls; each returns when the server has processed it.
package final class RFBDriver: DesktopDriver {
    private let inbox: RFBInbox

    private init(_ inbox: RFBInbox) { self.inbox = inbox }

    deinit { inbox.close() }

    /// What a connection needs besides the server's address.
    package struct Options: Sendable {
        /// The X display, such as `:3`, which is asked for the pointer's position; nil leaves it unknown after a viewer
        /// moved it.
        package var display: String?
        /// Of the time limits of what is not the VNC server.
        package var clock = AgentClock(ContinuousClock())
        /// Run xclip; without them text can only go through the VNC server's own clipboard.
        package var helpers: DesktopHelpers?
        /// No client has typed on this desktop before; otherwise characters outside the keyboard's layout always
        /// go through the clipboard.
        package var isFresh = true
        /// How long the server may take to accept the connection, and then for each answer of the handshake, which
        /// is not cut short when the task is cancelled.
        package var budget = DesktopLimits.connectBudget
        /// Waits for what is not the VNC server; nil is the runtime's pool.
        package var executor: (any TaskExecutor)?
        /// Whether the extended clipboard is used where the server has it.
        var usesClipboardMessages = true

        package init() {}

        /// Those of a session's desktop.
        package init(_ server: DesktopSession.Connection) {
            (display, helpers, isFresh, clock) = (server.display, server.helpers, server.isFresh, server.clock)
        }
    }

    /// Connects to a VNC server and learns what it can do.
    /// - Throws: ``DesktopError``: `.connectionLost` when no VNC server answers there, `.failed` when a library
    ///   is not installed or the system refuses a descriptor or a thread.
    package static func connect(to endpoint: RFBEndpoint, _ options: Options = Options()) async throws -> RFBDriver {
        try DesktopLibrary.vncClient.load()
        guard let inbox = RFBInbox() else { throw DesktopError(.failed, "No descriptor is left for the desktop.") }
        let driver = RFBDriver(inbox)
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                // The thread keeps the inbox, not the driver, so that a driver without references closes.
                let started = startThread("desktop") {
                    RFBThread(inbox, options).run(endpoint) { continuation.resume(with: $0) }
                }
                if !started {
                    continuation.resume(throwing: DesktopError(.failed, "The system refuses a thread for the desktop."))
                }
            }
        } onCancel: {
            inbox.close()
        }
        return driver
    }

    package var size: DesktopSize { inbox.size }
    package var isAlive: Bool { inbox.isAlive }

    @discardableResult
    package func perform(_ action: DriverAction, in space: CoordinateSpace) async throws -> ActionResult {
        try await submit(.action(action, space))
    }

    private func submit(_ work: RFBInbox.Work, first: Bool = false) async throws -> ActionResult {
        let id = inbox.newID()
        defer { inbox.forget(id) }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { inbox.submit(id, work, $0, first: first) }
        } onCancel: {
            inbox.cancel(id)
        }
    }

    package func probe(within budget: Duration) async throws {
        let probe = RFBInbox.Probe(id: inbox.newID(), deadline: .now + budget)
        defer { inbox.forget(probe.id) }
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { inbox.submitProbe(probe, $0) }
        } onCancel: {
            inbox.cancelProbe(probe.id)
        }
    }

    package func viewerCame() { inbox.updateViewers { $0.connected += 1 } }

    package func viewerSentInput() { inbox.updateViewers { $0.sentInput = true } }

    package func viewerHolds(_ holds: Bool) {
        inbox.updateViewers { viewers in
            viewers.holding += holds ? 1 : -1
            if holds { viewers.presses += 1 }
        }
    }

    /// To be called once the viewer's own connection is closed: the server ignores our events before.
    package func viewerLeft(heldButtons: Bool) async {
        inbox.updateViewers { $0.connected -= 1 }
        guard heldButtons else { return }
        await submitIgnoringCancellation(.viewerLeft)
    }

    /// Ends the running action early; waiting actions run afterwards.
    package func releaseAll() async { await submitIgnoringCancellation(.releaseAll, first: true) }

    private func submitIgnoringCancellation(_ work: RFBInbox.Work, first: Bool = false) async {
        _ = try? await withCheckedThrowingContinuation { inbox.submit(inbox.newID(), work, $0, first: first) }
    }

    package func close() async {
        inbox.close()
        await inbox.ended()
    }
}

/// The connection's thread: connects, performs jobs, and closes.
private final class RFBThread {
    private let inbox: RFBInbox
    private let options: RFBDriver.Options

    init(_ inbox: RFBInbox, _ options: RFBDriver.Options) {
        self.inbox = inbox
        self.options = options
    }

    func run(_ endpoint: RFBEndpoint, _ connected: (Result<Void, any Error>) -> Void) {
        defer { inbox.finish() }
        wd_block_sigpipe()
        let actions: RFBActions
        do {
            let descriptor = try RFBSocket.connect(to: endpoint, within: options.budget)
            actions = RFBActions(
                try RFBLink(descriptor, inbox: inbox, within: min(options.budget, DesktopLimits.answerBudget)), options)
            try actions.greet()
        } catch {
            inbox.end(error as? DesktopError ?? RFBInbox.closed)
            return connected(.failure(error))
        }
        connected(.success(()))
        let reason = serve(actions)
        if inbox.isClosing { try? actions.input.releaseAll() }
        inbox.end(reason)
    }

    /// Performs jobs until the connection is lost or closed.
    private func serve(_ actions: RFBActions) -> DesktopError {
        while true {
            do {
                try actions.link.wait(until: nil, stoppingOn: .closing) { inbox.hasJob }
            } catch {
                return error as? DesktopError ?? RFBInbox.closed
            }
            guard let job = inbox.next() else { continue }
            let result = Result { try actions.perform(job.work) }
            if case .failure(let error as DesktopError) = result, error.code == .connectionLost {
                // Marked as lost before the caller sees the error.
                inbox.end(error)
                inbox.finish(job, result)
                return error
            }
            inbox.finish(job, result)
        }
    }
}
