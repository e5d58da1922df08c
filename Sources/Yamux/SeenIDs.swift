/// Which stream ids the other side has opened, as far as ``YamuxLimits/rememberedIDs`` back from the
/// highest: streams come and go by the million, and a session must not grow with them. Ids may come
/// in a slightly wrong order, since the other side's opens run at the same time.
struct SeenIDs: Sendable {
    private static let wordCount = YamuxLimits.rememberedIDs / 64
    private var words = [UInt64](repeating: 0, count: Int(wordCount))
    private var highest: UInt32 = 0

    /// Remembers the id; false when it is known already.
    mutating func insert(_ id: UInt32) -> Bool {
        if id > highest {
            // What the ring's place stood for before is forgotten.
            if id - highest >= YamuxLimits.rememberedIDs {
                for index in words.indices { words[index] = 0 }
            } else {
                for skipped in (highest + 1)...id { words[Self.word(skipped)] &= ~Self.bit(skipped) }
            }
            highest = id
        } else if highest - id >= YamuxLimits.rememberedIDs {
            return true
        }
        if words[Self.word(id)] & Self.bit(id) != 0 { return false }
        words[Self.word(id)] |= Self.bit(id)
        return true
    }

    private static func word(_ id: UInt32) -> Int { Int((id / 64) % wordCount) }
    private static func bit(_ id: UInt32) -> UInt64 { 1 << UInt64(id % 64) }
}
