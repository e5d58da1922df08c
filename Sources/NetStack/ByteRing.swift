/// A queue of bytes in one piece of memory that grows on demand. Bytes may be written behind a gap, as segments out of
/// order are, and read anywhere, as retransmissions are.
struct ByteRing: Sendable {
    /// The least that is allocated.
    static let leastCapacity = 4_096

    private var memory: [UInt8] = []
    private var head = 0
    /// Bytes at the front without a gap.
    private(set) var count = 0

    var capacity: Int { memory.count }
    var isEmpty: Bool { count == 0 }

    /// The capacity to grow to for so many bytes: doubled, and at most `limit`, which is enough.
    func capacity(for bytes: Int, limit: Int) -> Int {
        var wanted = max(memory.count, Self.leastCapacity)
        while wanted < bytes { wanted *= 2 }
        return max(bytes, min(wanted, limit))
    }

    mutating func grow(to capacity: Int) {
        guard capacity > memory.count else { return }
        let (old, head) = (memory, head)
        // Not filled: only bytes that were written are read.
        memory = [UInt8](unsafeUninitializedCapacity: capacity) { new, initialized in
            let first = old.count - head
            old.withUnsafeBytes { old in
                let target = UnsafeMutableRawBufferPointer(new)
                target.copyMemory(from: UnsafeRawBufferPointer(rebasing: old[head...]))
                UnsafeMutableRawBufferPointer(rebasing: target[first...])
                    .copyMemory(from: UnsafeRawBufferPointer(rebasing: old[..<head]))
            }
            initialized = capacity
        }
        self.head = 0
    }

    /// Gives the memory back. What it held is gone.
    mutating func release() { self = ByteRing() }

    /// Writes bytes at a distance from the front; they count once ``extend(by:)`` covers them.
    /// - Returns: false, without writing, when the capacity doesn't reach.
    mutating func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) -> Bool {
        guard offset >= 0, bytes.count <= memory.count, offset <= memory.count - bytes.count else { return false }
        var position = head + offset
        if position >= memory.count { position -= memory.count }
        let first = min(bytes.count, memory.count - position)
        memory.withUnsafeMutableBytes { memory in
            UnsafeMutableRawBufferPointer(rebasing: memory[position..<position + first])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[..<first]))
            guard first < bytes.count else { return }
            memory.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[first...]))
        }
        return true
    }

    /// Counts so many bytes more at the end, which were written.
    mutating func extend(by bytes: Int) { count = min(count + bytes, memory.count) }

    /// Copies bytes at a distance from the front, without taking them.
    /// - Returns: false when there are fewer.
    func copy(at offset: Int, into target: UnsafeMutableRawBufferPointer) -> Bool {
        guard offset >= 0, target.count <= count, offset <= count - target.count else { return false }
        var position = head + offset
        if position >= memory.count { position -= memory.count }
        let first = min(target.count, memory.count - position)
        memory.withUnsafeBytes { memory in
            target.copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[position..<position + first]))
            guard first < target.count else { return }
            UnsafeMutableRawBufferPointer(rebasing: target[first...])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: memory[..<(target.count - first)]))
        }
        return true
    }

    /// Takes bytes off the front.
    mutating func drop(_ bytes: Int) {
        let bytes = min(max(0, bytes), count)
        count -= bytes
        head += bytes
        if head >= memory.count { head -= memory.count }
    }

    /// The bytes at the front that lie together.
    func withFront<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        let first = min(count, memory.count - head)
        return memory.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[head..<head + first])) }
    }
}
