import NIOCore

/// The last bytes of a process's output in memory, from the moment on at which it was made.
struct RecentOutput {
    /// The offset in the output at which it was made.
    private let base: Int
    private var buffer = HeadTailBuffer(headCapacity: 0, tailCapacity: ProcLimits.recentBytes)

    init(from base: Int) { self.base = base }

    /// The offset of the oldest byte that is kept.
    var start: Int { base + buffer.tailStart }

    mutating func append(_ bytes: UnsafeRawBufferPointer) { buffer.append(bytes) }

    /// - Returns: nil when the byte at the offset is not kept.
    func bytes(from offset: Int, atMost count: Int) -> ByteBuffer? {
        buffer.bytes(from: offset - base, atMost: count)
    }
}
