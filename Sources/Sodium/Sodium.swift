import CSodium

/// libsodium on this machine, which the tailnet node's cryptography comes from.
package enum Sodium {
    /// Why it cannot be used; nil when it can. Loads it; from any thread, any number of times.
    package static var problem: String? {
        var why = [CChar](repeating: 0, count: 256)
        if wsd_load(&why, why.count) { return nil }
        let reason = String(decoding: why.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        return "libsodium cannot be loaded: \(reason)"
    }
}

/// What could not be done, with the reason and what to try.
package struct SodiumError: Error, CustomStringConvertible {
    package var description: String
}

/// Secret bytes: they are overwritten when they are no longer needed, print as `***`, and compare in constant time.
package final class SecretBytes: Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    package let count: Int
    // Written by the initializers alone, before anyone else has it.
    private nonisolated(unsafe) let memory: UnsafeMutableRawPointer

    /// Has the closure fill the bytes, which are zero before.
    package init<E: Error>(count: Int, fill: (UnsafeMutableRawBufferPointer) throws(E) -> Void) throws(E) {
        self.count = count
        memory = .allocate(byteCount: max(count, 1), alignment: 16)
        memory.initializeMemory(as: UInt8.self, repeating: 0, count: max(count, 1))
        try fill(UnsafeMutableRawBufferPointer(start: memory, count: count))
    }

    package convenience init(_ bytes: some Collection<UInt8>) {
        self.init(count: bytes.count) { $0.copyBytes(from: bytes) }
    }

    deinit {
        wsd_wipe(memory, count)
        memory.deallocate()
    }

    package func withBytes<R, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> R) throws(E) -> R {
        try body(UnsafeRawBufferPointer(start: memory, count: count))
    }

    package static func == (a: SecretBytes, b: SecretBytes) -> Bool {
        a.count == b.count && wsd_equal(a.memory, b.memory, a.count)
    }

    package var description: String { "***" }
    package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Whether two short texts of bytes are the same, in a time that does not depend on where they differ.
package func isSameInConstantTime(_ a: UnsafeRawBufferPointer, _ b: UnsafeRawBufferPointer) -> Bool {
    guard let first = a.baseAddress, let second = b.baseAddress else { return a.count == b.count }
    return a.count == b.count && wsd_equal(first, second, a.count)
}
