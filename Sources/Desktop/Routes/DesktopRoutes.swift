import AgentCore
import AgentHTTP
import Hummingbird
import Logging

/// The routes below /api/v0/desktop, except those of recordings (docs/contracts/desktop.md#routes).
package struct DesktopRoutes: Sendable {
    package static let base = "/api/v0/desktop"

    /// Starts a program for the `open` action, through the process API's launcher.
    /// - Parameters:
    ///   - command: a command line for the shell.
    ///   - display: the X display that the program gets.
    /// - Throws: ``DesktopError``.
    package typealias ProgramStarter =
        @Sendable (_ command: String, _ display: String, _ chat: ChatIdentity?) async throws -> Void

    /// What the routes need from elsewhere.
    package struct Hooks: Sendable {
        package var open: ProgramStarter
        /// Called for each action, which keeps recordings going.
        package var activity: @Sendable () -> Void
        /// How many recordings run.
        package var recordings: @Sendable () -> Int

        package init(
            open: @escaping ProgramStarter, activity: @escaping @Sendable () -> Void = {},
            recordings: @escaping @Sendable () -> Int = { 0 }
        ) {
            self.open = open
            self.activity = activity
            self.recordings = recordings
        }
    }

    private let session: DesktopSession
    private let viewer: ViewerFiles
    private let hooks: Hooks
    private let clock: AgentClock
    private let executor: any TaskExecutor
    private let logger: Logger

    /// - Parameters:
    ///   - viewer: the files of the viewer's page.
    ///   - executor: runs actions and the cleanup after viewers.
    package init(
        session: DesktopSession, viewer: ViewerFiles, hooks: Hooks, clock: AgentClock, executor: any TaskExecutor,
        logger: Logger
    ) {
        self.session = session
        self.viewer = viewer
        self.hooks = hooks
        self.clock = clock
        self.executor = executor
        self.logger = logger
    }

    package func add(to routes: AgentRoutes) {
        routes.post("\(Self.base)/action", bodyLimit: DesktopLimits.actionBytes, action)
        routes.get("\(Self.base)/status", status)
        routes.webSocket("\(Self.base)/vnc", changes: true, vnc)
        viewer.add(to: routes)
    }

    // MARK: Actions

    private func action(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        try request.requireJSON()
        let body = try await request.body.collect(upTo: .max)
        return try await answering {
            let action: DesktopAction
            do {
                action = try await JSONWork.run(bytes: body.readableBytes) { try DesktopAction.decode(body) }
            } catch {
                session.metrics.actions.with("none", "invalid").increment()
                throw error
            }
            hooks.activity()
            do {
                let result = try await performWithPicture(action, context)
                session.metrics.actions.with(action.name, "ok").increment()
                return .json(bytes: result.json())
            } catch {
                let why = (error as? DesktopError)?.code == .invalid ? "invalid" : "failed"
                session.metrics.actions.with(action.name, why).increment()
                throw error
            }
        }
    }

    /// Performs an action, and takes the picture after it where one is wanted.
    private func performWithPicture(_ action: DesktopAction, _ context: AgentRequestContext) async throws
        -> ActionResult
    {
        var result = try await perform(action, context)
        if let picture = action.picture, result.screenshot == nil {
            do {
                let taken = try await session.perform(.picture(picture), in: action.space)
                (result.screenshot, result.size) = (taken.screenshot, taken.size)
            } catch let error as DesktopError {
                // Else the client would do the action once more.
                let done = "The \(action.name) action was performed, but the screenshot after it failed."
                throw DesktopError(
                    error.code, error.message, detail: [done, error.detail].compactMap { $0 }.joined(separator: " "),
                    cause: error)
            }
        }
        result.desktopRestarted = session.takeReplacement()
        return result
    }

    /// Performs a long action in a task of its own, which ends when the caller disconnects or shutdown begins.
    private func perform(_ action: DesktopAction, _ context: AgentRequestContext) async throws -> ActionResult {
        guard action.mayTakeLong else { return try await run(action, context.chat) }
        let chat = context.chat
        let work = Task(executorPreference: executor) { try await run(action, chat) }
        let gone = context.caller.onGone { work.cancel() }
        let stopping = session.onShutdown { work.cancel() }
        defer {
            context.caller.remove(gone)
            session.removeOnShutdown(stopping)
        }
        do {
            return try await work.value
        } catch is CancellationError {
            if session.isStopping { throw DesktopSession.shuttingDown }
            throw DesktopError(.invalid, "The client disconnected before the action was over.")
        }
    }

    private func run(_ action: DesktopAction, _ chat: ChatIdentity?) async throws -> ActionResult {
        var result = ActionResult()
        switch action.work {
        case .wait(let milliseconds):
            guard !session.isStopping else { throw DesktopSession.shuttingDown }
            try await clock.sleep(.milliseconds(milliseconds))
        case .open(let text):
            let desktop = try await session.desktop()
            try await hooks.open(text, desktop.display, chat)
        case .driver(let work): result = try await session.perform(work, in: action.space)
        case .screen(let work): result = try await session.perform(work, in: action.space)
        }
        result.output = result.output ?? "\(action.name) action performed"
        return result
    }

    // MARK: Status

    private struct Status: Encodable {
        var running = false
        var width: Int?
        var height: Int?
        var vnc_port: Int?
        var since: Int64?
        var viewers = 0
        var recordings = 0

        private enum CodingKeys: CodingKey { case running, width, height, vnc_port, since, viewers, recordings }

        // Every key is always present; without a running desktop its values are null.
        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            try container.encode(running, forKey: .running)
            try container.encode(width, forKey: .width)
            try container.encode(height, forKey: .height)
            try container.encode(vnc_port, forKey: .vnc_port)
            try container.encode(since, forKey: .since)
            try container.encode(viewers, forKey: .viewers)
            try container.encode(recordings, forKey: .recordings)
        }
    }

    private func status(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: [])
        var status = Status(viewers: session.hub.count, recordings: hooks.recordings())
        if let desktop = session.current {
            let size = desktop.driver.size
            status.running = true
            (status.width, status.height) = (size.width, size.height)
            (status.vnc_port, status.since) = (desktop.vncPort, desktop.since)
        }
        return .json(status)
    }

    // MARK: The bridge

    private func vnc(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        _ = try Query(request, allowed: ["token"])
        // Checked first, so that no desktop is started for a client that cannot use it.
        try WebSocketUpgrade.check(request)
        let desktop = try await answering { try await session.desktop() }
        let bridge = ViewerBridge.Context(
            desktop: desktop, hub: session.hub, metrics: session.metrics, executor: executor, logger: context.logger)
        return try WebSocketUpgrade.respondWithBytes(to: request, context: context, protocols: ["binary"]) { channel in
            try ViewerBridge.install(bridge, on: channel)
        }
    }
}
