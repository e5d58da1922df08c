/// Patterns of OpenSSH: `*` stands for any characters, `?` for one.
enum WildcardPattern {
    /// Whether a list of patterns between commas matches, upper case like lower case: one must, and none behind a `!`
    /// may.
    static func matches(list: String, _ text: String) -> Bool {
        var isFound = false
        for pattern in list.lowercased().split(separator: ",") {
            let isNegated = pattern.hasPrefix("!")
            guard matches(String(isNegated ? pattern.dropFirst() : pattern), text.lowercased()) else { continue }
            if isNegated { return false }
            isFound = true
        }
        return isFound
    }

    /// In time that is at most the product of both lengths: after a failure only the last `*` takes one more.
    static func matches(_ pattern: String, _ text: String) -> Bool {
        let (pattern, text) = (Array(pattern.utf8), Array(text.utf8))
        var (p, t) = (0, 0)
        var star: (pattern: Int, text: Int)?
        while t < text.count {
            if p < pattern.count, pattern[p] == UInt8(ascii: "*") {
                star = (p, t)
                p += 1
            } else if p < pattern.count, pattern[p] == text[t] || pattern[p] == UInt8(ascii: "?") {
                p += 1
                t += 1
            } else if let last = star {
                star = (last.pattern, last.text + 1)
                p = last.pattern + 1
                t = last.text + 1
            } else {
                return false
            }
        }
        return pattern[p...].allSatisfy { $0 == UInt8(ascii: "*") }
    }
}
