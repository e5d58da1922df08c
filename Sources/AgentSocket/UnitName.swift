/// A unit's name, compared by its UTF-8 bytes.
///
/// Swift's `String` calls two spellings of "é" equal and orders by meaning; other clients compare
/// bytes, and the order of lists is part of the contract.
public struct UnitName: Sendable, Hashable, Comparable, CustomStringConvertible {
    public let text: String

    public init(_ text: String) { self.text = text }

    public var description: String { text }

    public static func == (a: UnitName, b: UnitName) -> Bool { a.text.utf8.elementsEqual(b.text.utf8) }

    public static func < (a: UnitName, b: UnitName) -> Bool {
        a.text.utf8.lexicographicallyPrecedes(b.text.utf8)
    }

    public func hash(into hasher: inout Hasher) {
        var text = text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }
}
