import AgentTestSupport
import Testing

@testable import AgentProc

/// The obviously right implementation: keep everything, cut at the end.
private struct NaiveBuffer {
    var all: [UInt8] = []
    let head: Int, tail: Int

    var headBytes: [UInt8] { Array(all.prefix(head)) }
    var tailBytes: [UInt8] { Array(all.dropFirst(head).suffix(tail)) }
    var omitted: Int { max(0, all.count - head - tail) }

    func bytes(from offset: Int) -> [UInt8]? {
        guard all.indices.contains(offset) else { return nil }
        if offset < head { return Array(all.prefix(head)[offset...]) }
        return offset >= all.count - tailBytes.count ? Array(all[offset...]) : nil
    }
}

@Suite struct HeadTailBufferTests {
    private func append(_ bytes: some Collection<UInt8>, to buffer: inout HeadTailBuffer) {
        Array(bytes).withUnsafeBytes { buffer.append($0) }
    }

    private func expectSame(_ buffer: HeadTailBuffer, _ model: NaiveBuffer, _ note: String) {
        #expect(buffer.total == model.all.count, "\(note)")
        #expect(buffer.headBytes == model.headBytes, "\(note)")
        #expect(buffer.tailBytes == model.tailBytes, "\(note)")
        #expect(buffer.omitted == model.omitted, "\(note)")
        #expect(buffer.tailStart == model.all.count - model.tailBytes.count, "\(note)")
        for offset in -1...(model.all.count + 1) where model.all.count < 64 || offset % 97 == 0 {
            let all = buffer.bytes(from: offset, atMost: .max).map { Array($0.readableBytesView) }
            #expect(all == model.bytes(from: offset), "\(note), from \(offset)")
            let two = buffer.bytes(from: offset, atMost: 2).map { Array($0.readableBytesView) }
            #expect(two == model.bytes(from: offset).map { Array($0.prefix(2)) }, "\(note), two from \(offset)")
        }
    }

    /// Every pair of chunk sizes around every border, with capacities small enough to try all.
    @Test func everySplitOfSmallCapacities() {
        for (head, tail) in [(4, 4), (1, 3), (3, 1), (0, 4), (4, 0)] {
            for total in 0...(2 * (head + tail) + 3) {
                for cut in 0...total {
                    for second in [cut, (cut + total) / 2] {
                        let bytes = (0..<total).map { UInt8($0) }
                        var buffer = HeadTailBuffer(headCapacity: head, tailCapacity: tail)
                        for part in [bytes[..<cut], bytes[cut..<second], bytes[second...]] { append(part, to: &buffer) }
                        expectSame(
                            buffer, NaiveBuffer(all: bytes, head: head, tail: tail), "\(head)/\(tail) \(total) \(cut)")
                    }
                }
            }
        }
    }

    /// The sizes that the daemon uses, one byte around each border, written in one piece, in two,
    /// and in pieces of odd sizes.
    @Test(arguments: [16 << 10, 32 << 10, 48 << 10, 64 << 10])
    func realCapacities(border: Int) {
        for total in (border - 2)...(border + 2) {
            let bytes = (0..<total).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            for piece in [total, max(1, total / 2), 4095, 16384, 16385] {
                var buffer = HeadTailBuffer()
                var rest = bytes[...]
                while !rest.isEmpty {
                    append(rest.prefix(piece), to: &buffer)
                    rest = rest.dropFirst(piece)
                }
                let model = NaiveBuffer(all: bytes, head: ProcLimits.headBytes, tail: ProcLimits.tailBytes)
                expectSame(buffer, model, "\(total) in pieces of \(piece)")
            }
        }
    }

    @Test func randomWrites() {
        var random = SeededGenerator("HeadTailBufferTests.randomWrites")
        for round in 0..<200 {
            let head = Int.random(in: 0...40, using: &random), tail = Int.random(in: 0...40, using: &random)
            var buffer = HeadTailBuffer(headCapacity: head, tailCapacity: tail)
            var model = NaiveBuffer(head: head, tail: tail)
            for _ in 0..<Int.random(in: 0...30, using: &random) {
                let chunk = (0..<Int.random(in: 0...60, using: &random)).map { _ in
                    UInt8.random(in: 0...255, using: &random)
                }
                append(chunk, to: &buffer)
                model.all += chunk
                expectSame(buffer, model, "seed \(random.seed) round \(round)")
            }
        }
    }
}
