/// Makes libgit2 find the hunks that git finds: form feeds and vertical tabs are white space to the former, at the
/// beginning of a line and in the name of a function, and ordinary bytes to git. While libgit2 compares, bytes that
/// neither content has stand for them. Which lines are equal stays the same.
struct DiffBytes {
    private static let replaced: [UInt8] = [11, 12]
    /// What is neither white space nor a letter to either; a NUL or a line end would not do.
    private static let substitutes: [UInt8] = Array(1...8) + Array(14...31) + [127]

    private var forth = Array(UInt8.min...UInt8.max)
    private var back = Array(UInt8.min...UInt8.max)
    /// Whether anything is replaced.
    private(set) var isNeeded = false

    /// - Throws: `.needsCLI` when the contents have every byte that could stand for another.
    init(_ old: [UInt8], _ new: [UInt8]) throws(ScanError) {
        guard Self.replaced.contains(where: { old.contains($0) || new.contains($0) }) else { return }
        var isUsed = [Bool](repeating: false, count: 256)
        for bytes in [old, new] { for byte in bytes { isUsed[Int(byte)] = true } }
        var free = Self.substitutes.filter { !isUsed[Int($0)] }[...]
        for byte in Self.replaced where isUsed[Int(byte)] {
            guard let substitute = free.popFirst() else {
                throw ScanError(.needsCLI, "form feeds beside every other control character")
            }
            forth[Int(byte)] = substitute
            back[Int(substitute)] = byte
        }
        isNeeded = true
    }

    func replace(_ bytes: [UInt8]) -> [UInt8] { isNeeded ? bytes.map { forth[Int($0)] } : bytes }

    func restore(_ bytes: UnsafeRawBufferPointer) -> [UInt8] { bytes.map { back[Int($0)] } }
}

/// The text of hunks as libgit2 reports them, piece by piece.
final class HunkCollector {
    private(set) var out: DiffText.BoundedBytes
    private let bytes: DiffBytes

    init(_ out: DiffText.BoundedBytes, _ bytes: DiffBytes) { (self.out, self.bytes) = (out, bytes) }

    /// Something that is not of the contents.
    func append(sign: UInt8) { out.append(CollectionOfOne(sign)) }

    func append(_ text: UnsafeRawBufferPointer) {
        if bytes.isNeeded { out.append(bytes.restore(text)) } else { out.append(text) }
    }
}
