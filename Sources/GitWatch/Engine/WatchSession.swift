import FoundationEssentials
import Synchronization

/// One connection's view: what it was sent and what waits for it. The engine offers, the connection's task
/// takes; a slow client holds only the newest entry of each repository.
package final class WatchSession: Sendable {
    private struct State {
        var waiting: [String: EncodedEntry] = [:]
        var errors: [String] = []
        var sent: [String: Int] = [:]
        var scanned = false
        var ended = false
        var reader: CheckedContinuation<Void, Never>?
    }

    package let chat: UUID?
    private let heartbeat: Bool
    private let wallSeconds: @Sendable () -> Int64
    private let state = Mutex(State())

    package init(chat: UUID?, heartbeat: Bool, wallSeconds: @escaping @Sendable () -> Int64) {
        self.chat = chat
        self.heartbeat = heartbeat
        self.wallSeconds = wallSeconds
    }

    /// A repository's state after a scan; nil when the scan gave none.
    func offer(_ entry: EncodedEntry?) {
        wake { state in
            if let entry {
                let known = state.sent[entry.root]
                if entry.removed ? known == nil && state.waiting[entry.root] == nil : false {
                    // Never shown, so nothing to take back.
                } else {
                    state.waiting[entry.root] = entry
                }
            }
            state.scanned = true
        }
    }

    func fail(_ message: String) {
        wake { if $0.errors.count < GitWatchLimits.waitingErrors { $0.errors.append(message) } }
    }

    package func end() { wake { $0.ended = true } }

    private func wake(_ body: (inout State) -> Void) {
        let reader = state.withLock { state in
            body(&state)
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume()
    }

    /// The next messages; nil when the session has ended. One task calls it.
    package func next() async -> [String]? {
        while true {
            let (messages, ended) = take()
            if ended { return nil }
            if !messages.isEmpty { return messages }
            await withCheckedContinuation { continuation in
                let ready = state.withLock { state in
                    if state.ended || state.scanned || !state.errors.isEmpty { return true }
                    state.reader = continuation
                    return false
                }
                if ready { continuation.resume() }
            }
        }
    }

    private func take() -> (messages: [String], ended: Bool) {
        let (entries, errors, scanned, ended) = state.withLock { state in
            let entries = state.waiting.values.filter { state.sent[$0.root] != $0.digest }
                .sorted { $0.root < $1.root }
            for entry in entries { state.sent[entry.root] = entry.removed ? nil : entry.digest }
            defer { (state.waiting, state.errors, state.scanned) = ([:], [], false) }
            return (entries, state.errors, state.scanned, state.ended)
        }
        var messages = errors.map { SnapshotMessages.error($0) }
        if !entries.isEmpty || (scanned && heartbeat) {
            messages += SnapshotMessages.changes(entries, wallSeconds: wallSeconds())
        }
        return (messages, ended)
    }
}
