/// A value that must not reach a log, an error text or an encoder by accident.
///
/// Every textual form prints `***`; the value itself is reached only by naming ``reveal()``.
public struct Secret<Value: Sendable>: Sendable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    private let value: Value

    public init(_ value: Value) { self.value = value }

    /// The value in the clear. Never pass the result to a logger or an error.
    public func reveal() -> Value { value }

    public var description: String { "***" }
    public var debugDescription: String { "***" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension Secret: Encodable {
    /// Encodes `***`, never the value.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode("***")
    }
}

extension Secret where Value == String {
    /// Compares in a time that depends on the candidate's length alone, so that an attacker
    /// learns nothing about how much of a guess was right.
    public func matches(_ candidate: some Collection<UInt8>) -> Bool {
        let expected = Array(value.utf8)
        guard !expected.isEmpty else { return false }
        var difference: UInt8 = expected.count == candidate.count ? 0 : 1
        var index = 0
        for byte in candidate {
            difference |= byte ^ expected[index % expected.count]
            index += 1
        }
        return difference == 0
    }
}
