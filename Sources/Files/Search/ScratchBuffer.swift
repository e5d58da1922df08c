/// Memory for one file's content that is used again for the next.
struct ScratchBuffer: ~Copyable {
    private var area = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    deinit { area.deallocate() }

    /// At least this many bytes; what was in them before may be lost.
    mutating func reserve(_ count: Int) -> UnsafeMutableRawBufferPointer {
        if area.count < count {
            area.deallocate()
            area = .allocate(byteCount: max(count, 2 * area.count, 64 << 10), alignment: 16)
        }
        return area
    }
}
