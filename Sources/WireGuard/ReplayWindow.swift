/// Which counters of a session were received: a ring of bits (RFC 6479) that looks back 8,128 counters.
///
/// It takes its KiB of memory at the first counter.
package struct ReplayWindow: Sendable {
    private static let words: UInt64 = 128
    /// A word less than the ring has: the newest word is there in part only.
    package static let size = (words - 1) * 64

    private var ring: [UInt64] = []
    private var newest: UInt64 = 0

    package init() {}

    /// Takes a counter; false for one that was taken before, that is too old to tell, or that no message may have.
    package mutating func accept(_ counter: UInt64) -> Bool {
        guard counter < WireGuardTimes.mostMessages else { return false }
        if ring.isEmpty { ring = [UInt64](repeating: 0, count: Int(Self.words)) }
        if counter > newest {
            let (from, to) = (newest >> 6, counter >> 6)
            if to - from >= Self.words {
                for index in ring.indices { ring[index] = 0 }
            } else {
                var word = from
                while word < to {
                    word += 1
                    ring[Int(word & (Self.words - 1))] = 0
                }
            }
            newest = counter
        } else if newest - counter > Self.size {
            return false
        }
        let (word, bit) = (Int(counter >> 6 & (Self.words - 1)), UInt64(1) << (counter & 63))
        guard ring[word] & bit == 0 else { return false }
        ring[word] |= bit
        return true
    }
}
