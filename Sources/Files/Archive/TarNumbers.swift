/// The numbers in a tar header.
enum TarNumber {
    /// Octal digits between blanks or NULs, or, when the first bit is set, a big-endian number in two's complement
    /// (base-256, an extension of GNU).
    /// - Returns: nil when it is neither, or too large.
    static func parse(_ field: ArraySlice<UInt8>) -> Int? {
        guard let first = field.first else { return nil }
        if first & 0x80 != 0 { return base256(field) }
        let digits = field.drop { $0 == UInt8(ascii: " ") || $0 == 0 }
        let number = digits.prefix { (UInt8(ascii: "0")...UInt8(ascii: "7")).contains($0) }
        if let behind = digits.dropFirst(number.count).first, behind != UInt8(ascii: " "), behind != 0 { return nil }
        return number.isEmpty ? 0 : Int(String(decoding: number, as: UTF8.self), radix: 8)
    }

    private static func base256(_ field: ArraySlice<UInt8>) -> Int? {
        let isNegative = (field.first ?? 0) & 0x40 != 0
        var number = isNegative ? -1 : 0
        for (index, byte) in field.enumerated() {
            var byte = byte
            if index == 0 { byte = isNegative ? byte | 0x80 : byte & 0x7F }
            let (shifted, overflows) = number.multipliedReportingOverflow(by: 256)
            guard !overflows else { return nil }
            number = shifted | Int(byte)
        }
        return number
    }

    /// Octal digits and a NUL.
    /// - Returns: nil when the number is negative or does not fit the field.
    static func octal(_ number: Int, width: Int) -> [UInt8]? {
        guard number >= 0 else { return nil }
        let digits = Array(String(number, radix: 8).utf8)
        guard digits.count < width else { return nil }
        return [UInt8](repeating: UInt8(ascii: "0"), count: width - 1 - digits.count) + digits + [0]
    }

    /// A time as extended headers have it, as `-1.25`; digits behind the ninth are ignored.
    /// - Returns: the seconds, rounded down, and the nanoseconds; nil when it is no such number.
    static func time(_ text: [UInt8]) -> (seconds: Int, nanoseconds: Int)? {
        let isNegative = text.first == UInt8(ascii: "-")
        let parts = text.dropFirst(isNegative ? 1 : 0)
            .split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
        guard let whole = parts.first, let seconds = number(whole) else { return nil }
        guard parts.count == 2, let fraction = parts.last, !fraction.isEmpty else {
            return (isNegative ? -seconds : seconds, 0)
        }
        guard fraction.allSatisfy(isDigit) else { return nil }
        let nine = fraction.prefix(9) + [UInt8](repeating: UInt8(ascii: "0"), count: max(0, 9 - fraction.count))
        guard let nanoseconds = number(nine) else { return nil }
        guard isNegative else { return (seconds, nanoseconds) }
        return nanoseconds == 0 ? (-seconds, 0) : (-seconds - 1, 1_000_000_000 - nanoseconds)
    }

    /// Decimal digits and nothing else.
    static func number(_ digits: some Collection<UInt8>) -> Int? {
        guard !digits.isEmpty, digits.allSatisfy(isDigit) else { return nil }
        return Int(String(decoding: digits, as: UTF8.self))
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}
