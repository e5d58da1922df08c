/// Batches that are not on disk yet, with their payloads in one array.
struct Chunk: Sendable {
    struct Entry: Sendable {
        var bytes: Int
        var logs: Int
    }

    /// Set when the queue's thread takes the chunk; the ids of its batches are consecutive.
    var firstID: Int64 = 0
    /// Seconds since 1970 of its first batch.
    let received: Int64
    private(set) var entries: [Entry] = []
    private(set) var payload: [UInt8] = []
    private(set) var logs = 0

    init(received: Int64) { self.received = received }

    var batches: Int { entries.count }
    var bytes: Int { payload.count }
    var lastID: Int64 { firstID + Int64(entries.count) - 1 }

    mutating func append(_ bytes: UnsafeRawBufferPointer, _ parts: [Range<Int>], logs: Int) {
        let before = payload.count
        for part in parts { payload.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[part])) }
        entries.append(Entry(bytes: payload.count - before, logs: logs))
        self.logs += logs
    }

    /// Adds the batches that follow its own.
    mutating func append(_ next: Chunk) {
        entries += next.entries
        payload += next.payload
        logs += next.logs
    }

    /// Removes its batches up to this one.
    mutating func drop(through id: Int64) -> (batches: Int, bytes: Int) {
        let count = min(entries.count, Int(clamping: max(0, id - firstID + 1)))
        let gone = entries.prefix(count).reduce(0) { $0 + $1.bytes }
        logs -= entries.prefix(count).reduce(0) { $0 + $1.logs }
        entries.removeFirst(count)
        payload.removeFirst(gone)
        firstID += Int64(count)
        return (count, gone)
    }

    func forEach(_ body: (Int64, Entry, UnsafeRawBufferPointer) throws -> Void) rethrows {
        try payload.withUnsafeBytes { bytes in
            var (id, at) = (firstID, 0)
            for entry in entries {
                try body(id, entry, UnsafeRawBufferPointer(rebasing: bytes[at..<at + entry.bytes]))
                id += 1
                at += entry.bytes
            }
        }
    }

    /// Its batches after the id, at most `count`.
    func batches(after id: Int64, atMost count: Int) -> [QueuedBatch] {
        var found: [QueuedBatch] = []
        forEach { own, entry, payload in
            if own > id, found.count < count {
                found.append(QueuedBatch(id: own, logs: entry.logs, payload: Array(payload)))
            }
        }
        return found
    }
}
