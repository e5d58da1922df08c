import FoundationEssentials

/// Which paths each chat's tool calls touched: chat → paths, both bounded, least recently touched first out.
package struct PathTable: Sendable {
    private struct Chat {
        var touched: UInt64 = 0
        var paths: [String: UInt64] = [:]
    }

    private var chats: [UUID: Chat] = [:]
    private var clock: UInt64 = 0

    package init() {}

    /// Adds absolute paths to the chats; relative ones and ones that no kernel takes are ignored.
    package mutating func add(_ paths: [String], to ids: [UUID]) {
        let paths = paths.filter { $0.hasPrefix("/") && $0.utf8.count <= GitWatchLimits.pathBytes }
        guard !paths.isEmpty else { return }
        for id in ids {
            clock += 1
            var chat = chats.removeValue(forKey: id) ?? Chat()
            chat.touched = clock
            for path in paths {
                clock += 1
                chat.paths[path] = clock
                if chat.paths.count > GitWatchLimits.pathsPerChat,
                    let oldest = chat.paths.min(by: { $0.value < $1.value })
                {
                    chat.paths[oldest.key] = nil
                }
            }
            chats[id] = chat
            if chats.count > GitWatchLimits.chats, let oldest = chats.min(by: { $0.value.touched < $1.value.touched }) {
                chats[oldest.key] = nil
            }
        }
    }

    package func paths(of chat: UUID) -> Set<String> { Set(chats[chat]?.paths.keys.map { $0 } ?? []) }

    package var chatCount: Int { chats.count }
}
