import AgentCore
import AgentHTTP
import FoundationEssentials
import Hummingbird
import Synchronization

/// What happens to files, over a WebSocket (docs/contracts/files.md#watch).
struct WatchRoutes: Sendable {
    let files: FilesContext
    private let watchers = FileWatchers()

    init(files: FilesContext) { self.files = files }

    func add(to routes: AgentRoutes) {
        routes.webSocket("\(FilesRoutes.base)/watch", changes: false) { request, context in
            try await FilesRoutes.answering { try await watch(request, context) }
        }
    }

    private func watch(_ request: Request, _ context: AgentRequestContext) async throws -> Response {
        try WebSocketUpgrade.check(request)
        var query = FilesQuery(request)
        let path = query.required("path")
        let isRecursive = query.flag("recursive", default: false)
        // Has been checked.
        _ = query.text("token")
        try query.check()
        try requireAbsolute(path)
        let seat = try watchers.seat()
        let work = files.work
        let tree = DiskState(
            WatchedTree(path, isRecursive: isRecursive, budget: files.watchBudget), work, path)
        // Before the answer, so that the client gets an error as an answer, and afterwards misses nothing.
        do {
            try await tree.use { try $0.begin() }
            while try await tree.use({ try $0.watchSome() }) {}
        } catch {
            // What it took is there again before the client is told.
            try? await tree.use { $0.end() }
            throw error
        }
        return try WebSocketUpgrade.respond(to: request, context: context) { webSocket in
            await WatchClient(webSocket: webSocket, tree: tree, seat: seat, clock: work.clock).run()
            // Here rather than where the last reference goes: it may take long.
            try? await tree.use { $0.end() }
        }
    }
}

/// The clients that watch files: how many there are, and what they wait with.
final class FileWatchers: Sendable {
    private let count = Atomic(0)
    let readiness = Readiness()

    /// - Throws: ``HTTPProblem`` 429, 503.
    func seat() throws -> WatchSeat { try WatchSeat(self) }

    fileprivate func enter() throws {
        guard count.add(1, ordering: .relaxed).newValue <= FilesLimits.watchers else {
            count.subtract(1, ordering: .relaxed)
            throw HTTPProblem(
                .tooManyRequests, "\(FilesLimits.watchers) clients watch files already; close one of them first.")
        }
        guard readiness.enter() else {
            count.subtract(1, ordering: .relaxed)
            throw HTTPProblem(.serviceUnavailable, "The kernel refuses a thread or a descriptor to watch files with.")
        }
    }

    fileprivate func leave() {
        readiness.leave()
        count.subtract(1, ordering: .relaxed)
    }
}

/// One client's place among those that watch; given back when nothing uses it any more.
final class WatchSeat: Sendable {
    let watchers: FileWatchers

    fileprivate init(_ watchers: FileWatchers) throws {
        self.watchers = watchers
        try watchers.enter()
    }

    deinit { watchers.leave() }
}

/// Tells one client what happens, at most ten times a second. While it does not read, nothing is read from the kernel,
/// whose queue runs over when that goes on: then the client is told that events were lost.
struct WatchClient {
    let webSocket: WebSocket
    let tree: DiskState<WatchedTree>
    let seat: WatchSeat
    let clock: AgentClock

    private struct Message: Encodable {
        var type: String
        var events: [WatchedTree.Look.Event]?
        var message: String?
    }

    /// Returns when the client has gone, or what it watches.
    func run() async {
        await withTaskGroup { group in
            group.addTask { await report() }
            group.addTask {
                // Clients have nothing to say.
                while await webSocket.next() != nil {}
            }
            group.addTask { await webSocket.waitUntilClosed() }
            await group.next()
            group.cancelAll()
        }
    }

    private func report() async {
        do {
            while true {
                let look = try await tree.use { try $0.look() }
                var rest = look.events[...]
                while !rest.isEmpty {
                    let some = rest.prefix(FilesLimits.watchEventsPerMessage)
                    try await send(Message(type: "events", events: Array(some)))
                    rest = rest.dropFirst(some.count)
                }
                if look.overflows { try await send(Message(type: "overflow")) }
                if look.isOver { return await webSocket.close(.normal, reason: "what was watched is gone") }
                if look.hasMore { continue }
                try await readable(look.descriptor)
                // What comes next in a row is told with it.
                try await clock.sleep(FilesLimits.watchInterval)
            }
        } catch let error as FilesError {
            try? await send(Message(type: "error", message: error.message))
            await webSocket.close(.internalError, reason: error.message)
        } catch {
            // The client has gone.
        }
    }

    private func readable(_ descriptor: CInt) async throws {
        let ready = Promise<Void>()
        let token = seat.watchers.readiness.wait(descriptor) { ready.fulfill() }
        defer { seat.watchers.readiness.cancel(token) }
        try await ready.valueUnlessCancelled()
    }

    private func send(_ message: Message) async throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        try await webSocket.send(String(decoding: try encoder.encode(message), as: UTF8.self))
    }
}
