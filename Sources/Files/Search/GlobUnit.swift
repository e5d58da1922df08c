/// What patterns and paths are compared by: a character (Unicode scalar), or a byte that is part of none.
struct GlobUnit: Sendable, Comparable, ExpressibleByUnicodeScalarLiteral {
    let value: UInt32

    init(unicodeScalarLiteral scalar: Unicode.Scalar) { value = scalar.value }

    /// A byte by itself: of no UTF-8, or where bytes are compared.
    init(byte: UInt8, isCharacter: Bool) { value = isCharacter ? UInt32(byte) : 0x11_0000 + UInt32(byte) }

    private init(_ value: UInt32) { self.value = value }

    static func < (a: GlobUnit, b: GlobUnit) -> Bool { a.value < b.value }

    /// Takes the next character.
    /// - Parameter index: must be one of the bytes'.
    @inline(__always)
    static func next(_ bytes: UnsafeRawBufferPointer, _ index: inout Int) -> GlobUnit {
        let byte = bytes[index]
        index += 1
        return byte < 0x80 ? GlobUnit(UInt32(byte)) : long(byte, bytes, &index)
    }

    private static func long(_ first: UInt8, _ bytes: UnsafeRawBufferPointer, _ index: inout Int) -> GlobUnit {
        let alone = GlobUnit(byte: first, isCharacter: false)
        let (more, least): (Int, UInt32)
        switch first {
        case 0xC2...0xDF: (more, least) = (1, 0x80)
        case 0xE0...0xEF: (more, least) = (2, 0x800)
        case 0xF0...0xF4: (more, least) = (3, 0x1_0000)
        default: return alone
        }
        guard bytes.count - index >= more else { return alone }
        var value = UInt32(first) & (0x3F >> UInt32(more))
        for byte in bytes[index..<(index + more)] {
            guard byte & 0xC0 == 0x80 else { return alone }
            value = value << 6 | UInt32(byte & 0x3F)
        }
        guard value >= least, Unicode.Scalar(value) != nil else { return alone }
        index += more
        return GlobUnit(value)
    }

    static func characters(_ bytes: [UInt8]) -> [GlobUnit] {
        bytes.withUnsafeBytes { bytes in
            var units: [GlobUnit] = []
            var index = 0
            while index < bytes.count { units.append(next(bytes, &index)) }
            return units
        }
    }

    static func bytes(_ bytes: some Sequence<UInt8>) -> [GlobUnit] {
        bytes.map { GlobUnit(byte: $0, isCharacter: true) }
    }
}
