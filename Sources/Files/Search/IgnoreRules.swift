/// The rules of one file, and behind them those that it stands before: of the directories above, of the repository, of
/// the user.
final class IgnoreRules: Sendable {
    private let rules: [IgnoreRule]
    /// Those that test for a whole name, by the name's hash: a file may have hundreds of them.
    private let named: [UInt64: [Int]]
    private let others: [Int]
    /// Bytes of a path up to what the rules are about: the file's directory with the slash behind it.
    private let base: Int
    private let outer: IgnoreRules?
    /// Of this file and the outer ones together.
    let count: Int
    let places: Int

    /// - Parameters:
    ///   - text: the content of the file.
    ///   - base: bytes of the paths up to the name of an entry of the file's directory.
    init(_ text: [UInt8], base: Int, outer: IgnoreRules?) {
        var (rules, count, places) = ([IgnoreRule](), outer?.count ?? 0, outer?.places ?? 0)
        for line in Self.lines(text) where count < FilesLimits.ignoreRules {
            guard let rule = IgnoreRule(line), places + rule.places <= FilesLimits.ignorePlaces else { continue }
            rules.append(rule)
            count += 1
            places += rule.places
        }
        var (named, others) = ([UInt64: [Int]](), [Int]())
        for (index, rule) in rules.enumerated() {
            if case .name(let name) = rule.test {
                named[name.withUnsafeBytes(Self.hash), default: []].append(index)
            } else {
                others.append(index)
            }
        }
        (self.rules, self.named, self.others) = (rules, named, others)
        (self.base, self.outer, self.count, self.places) = (base, outer, count, places)
    }

    /// Whether the rules leave out an entry of a directory that they don't leave out.
    /// - Parameters:
    ///   - path: of the entry.
    ///   - nameStart: bytes up to its name.
    func ignores(_ path: UnsafeRawBufferPointer, nameStart: Int, isDirectory: Bool) -> Bool {
        let name = UnsafeRawBufferPointer(rebasing: path[nameStart...])
        let hash = Self.hash(name)
        var next: IgnoreRules? = self
        while let current = next {
            let inside = UnsafeRawBufferPointer(rebasing: path[current.base...])
            if let index = current.last(inside, name, hash, isDirectory: isDirectory) {
                return !current.rules[index].isNegation
            }
            next = current.outer
        }
        return false
    }

    /// The last rule that matches, which decides.
    private func last(
        _ path: UnsafeRawBufferPointer, _ name: UnsafeRawBufferPointer, _ hash: UInt64, isDirectory: Bool
    ) -> Int? {
        let best = named[hash]?.last { rules[$0].matches(path, name, isDirectory: isDirectory) }
        for index in others.reversed() {
            if let best, best > index { break }
            if rules[index].matches(path, name, isDirectory: isDirectory) { return index }
        }
        return best
    }

    /// FNV-1a. Names that collide cost a comparison each.
    private static func hash(_ name: UnsafeRawBufferPointer) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in name { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        return hash
    }

    private static func lines(_ text: [UInt8]) -> [ArraySlice<UInt8>] {
        // A byte order mark is none of the first rule.
        let text = text.starts(with: [0xEF, 0xBB, 0xBF]) ? text.dropFirst(3) : text[...]
        return text.split(separator: UInt8(ascii: "\n")).map { line in
            line.last == UInt8(ascii: "\r") ? line.dropLast() : line
        }
    }
}
