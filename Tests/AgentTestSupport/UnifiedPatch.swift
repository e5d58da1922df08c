/// Applies a unified diff of one file, strictly: every line has to be where the hunks say.
public struct UnifiedPatch {
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    /// Lines that are deleted, and that are added.
    public private(set) var changed = 0
    public private(set) var hunks = 0
    private var lines: [ArraySlice<UInt8>]
    /// Of the diff: the next line.
    private var next = 0

    public init(_ diff: [UInt8]) { lines = Self.lines(diff) }

    private static func lines(_ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
        var lines: [ArraySlice<UInt8>] = []
        var start = 0
        for (index, byte) in bytes.enumerated() where byte == 10 {
            lines.append(bytes[start...index])
            start = index + 1
        }
        return start < bytes.count ? lines + [bytes[start...]] : lines
    }

    /// What the patch makes of a text.
    public mutating func applied(to old: [UInt8]) throws -> [UInt8] {
        guard !lines.isEmpty else { return old }
        guard lines.count > 2, lines[0].starts(with: "--- ".utf8), lines[1].starts(with: "+++ ".utf8) else {
            throw Failure(description: "no file header")
        }
        next = 2
        let oldLines = Self.lines(old)
        var new: [ArraySlice<UInt8>] = []
        var place = 0
        while next < lines.count {
            hunks += 1
            let numbers = try header()
            let start = numbers[1] == 0 ? numbers[0] : numbers[0] - 1
            guard start >= place, start <= oldLines.count else { throw Failure(description: "hunk at \(start)") }
            new += oldLines[place..<start]
            place = start
            guard new.count == (numbers[3] == 0 ? numbers[2] : numbers[2] - 1) else {
                throw Failure(description: "hunk begins at line \(new.count) of the new text: \(numbers)")
            }
            let (oldEnd, newEnd) = (place + numbers[1], new.count + numbers[3])
            while next < lines.count, !lines[next].starts(with: "@@".utf8) {
                let line = lines[next]
                next += 1
                var text = line.dropFirst()
                if next < lines.count, lines[next].elementsEqual("\\ No newline at end of file\n".utf8) {
                    next += 1
                    text.removeLast()
                }
                if line.first != UInt8(ascii: "+") {
                    guard place < oldLines.count, oldLines[place].elementsEqual(text) else {
                        throw Failure(description: "line \(place + 1) is not \(String(decoding: text, as: UTF8.self))")
                    }
                    place += 1
                }
                if line.first != UInt8(ascii: "-") { new.append(text) }
                if line.first != UInt8(ascii: " ") { changed += 1 }
            }
            guard (place, new.count) == (oldEnd, newEnd) else { throw Failure(description: "length of \(numbers)") }
        }
        return Array((new + oldLines[place...]).joined())
    }

    /// Old start, old count, new start, new count.
    private mutating func header() throws -> [Int] {
        let text = String(decoding: lines[next], as: UTF8.self)
        next += 1
        let words = text.split(separator: " ")
        guard words.count == 4, words[0] == "@@", words[3] == "@@\n" else { throw Failure(description: text) }
        return try words[1...2].flatMap { word in
            let parts = word.dropFirst().split(separator: ",").map { Int($0) }
            guard let start = parts[0] else { throw Failure(description: text) }
            if parts.count == 1 { return [start, 1] }
            // The short form is a must.
            guard let count = parts[1], count != 1 else { throw Failure(description: text) }
            return [start, count]
        }
    }
}
