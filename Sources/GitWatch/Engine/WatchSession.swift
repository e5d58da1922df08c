import AgentCore
import FoundationEssentials

/// One connection's view: what it was sent and what waits for it. The engine offers, the connection's task
/// takes; a slow client holds only the newest entry of each repository.
package final class WatchSession: Sendable {
    private struct State: Sendable {
        var waiting: [String: EncodedEntry] = [:]
        var errors: [String] = []
        var sent: [String: Int] = [:]
        /// When the last scan was that the client has not heard of, in seconds since 1970.
        var scannedAt: Int64?
        var ended = false
    }

    package let chat: UUID?
    private let heartbeat: Bool
    private let wallSeconds: @Sendable () -> Int64
    private let state = Watched(State())

    package init(chat: UUID?, heartbeat: Bool, wallSeconds: @escaping @Sendable () -> Int64) {
        self.chat = chat
        self.heartbeat = heartbeat
        self.wallSeconds = wallSeconds
    }

    /// States of repositories after a scan, all in one message where that fits; none when the scan gave none.
    func offer(_ entries: [EncodedEntry]) {
        let now = wallSeconds()
        state.update { state in
            for entry in entries {
                let known = state.sent[entry.root]
                // What was never shown need not be taken back.
                let isNews = !entry.removed || known != nil || state.waiting[entry.root] != nil
                if isNews { state.waiting[entry.root] = entry }
            }
            state.scannedAt = now
        }
    }

    func fail(_ message: String) {
        state.update { if $0.errors.count < GitWatchLimits.waitingErrors { $0.errors.append(message) } }
    }

    package func end() { state.update { $0.ended = true } }

    /// The next messages; nil when the session has ended. One task calls it.
    package func next() async -> [SnapshotMessage]? {
        while true {
            let (messages, ended) = take()
            if ended { return nil }
            if !messages.isEmpty { return messages }
            await state.waitIgnoringCancellation { $0.ended || $0.scannedAt != nil || !$0.errors.isEmpty }
        }
    }

    private func take() -> (messages: [SnapshotMessage], ended: Bool) {
        let (entries, errors, scannedAt, ended) = state.update { state in
            let entries = state.waiting.values.filter { state.sent[$0.root] != $0.digest }
                .sorted { $0.root < $1.root }
            for entry in entries { state.sent[entry.root] = entry.removed ? nil : entry.digest }
            defer { (state.waiting, state.errors, state.scannedAt) = ([:], [], nil) }
            return (entries, state.errors, state.scannedAt, state.ended)
        }
        var messages = errors.map { SnapshotMessages.error($0) }
        if let scannedAt, !entries.isEmpty || heartbeat {
            messages += SnapshotMessages.changes(entries, wallSeconds: scannedAt)
        }
        return (messages, ended)
    }
}
