import FuzzInput
@testable import IPAddresses
@testable import NetStack

extension NetStack {
    mutating func packets(now: Duration) -> [[UInt8]] {
        var packets: [[UInt8]] = []
        var memory = [UInt8](repeating: 0xaa, count: 1_280)
        while let count = memory.withUnsafeMutableBytes({ nextPacket(into: $0, now: now)?.count }) {
            packets.append(Array(memory.prefix(count)))
            check(packets.count < 50_000, "packets do not end")
        }
        return packets
    }

    /// Lets hours pass in which nothing comes.
    mutating func settle(_ now: inout Duration) {
        for id in connections.filter({ $0.state != .free }).map(\.id) {
            while read(id, now: now) != nil {}
            finish(id, now: now)
        }
        let end = now + .seconds(5 * 3_600)
        var count = 0
        while let next = nextDeadline, next <= end {
            count += 1
            check(count < 100_000, "the deadline does not move")
            now = max(now, next)
            advance(now: now)
            while nextEvent() != nil {}
            _ = packets(now: now)
        }
    }

    /// What must hold at any time.
    func checkInvariants() {
        var bytes = 0
        var (used, half) = (0, 0)
        for connection in connections where connection.state != .free {
            used += 1
            if connection.isCountedHalfOpen { half += 1 }
            bytes += connection.send.ring.capacity + connection.receive.ring.capacity
            checkSending(connection.send)
            let receive = connection.receive
            check(receive.ring.capacity <= limits.receiveBytes + 128, "a large receive buffer")
            check(receive.held.count <= limits.outOfOrderRanges, "too many ranges are held")
            check(receive.edge - receive.next <= limits.receiveBytes + 128, "a window past the limit")
        }
        check(bytes == bufferBytes && bufferBytes <= limits.bufferBytes, "\(bufferBytes) of \(bytes) bytes counted")
        check(used == connectionCount && half == halfOpenCount, "connections are counted wrongly")
        check(used <= limits.connections && half <= limits.halfOpen, "too many connections")
        check(udpFlowCount <= limits.udpFlows && timeWaitCount <= limits.timeWaits, "too many flows or pairs")
        check(answers.count <= limits.answers && udp.outgoingBytes <= limits.datagramBytes, "too much waits")
        check(acknowledging.count <= connections.count && sending.count <= connections.count, "a turn too many")
    }

    private func checkSending(_ send: SendSide) {
        check(send.unacknowledged <= send.next, "acknowledged what was not sent")
        check(send.segments.bytes == send.next - send.unacknowledged, "segments do not add up")
        var (sacked, lost, start) = (0, 0, send.unacknowledged)
        for id in send.segments.first..<send.segments.end {
            let segment = send.segments[id]
            check(segment.start == start && segment.length > 0, "a segment in the wrong place")
            check(!(segment.isLost && segment.isSacked), "lost and received")
            if segment.isSacked { sacked += Int(segment.length) }
            if segment.isLost { lost += Int(segment.length) }
            start = segment.end
        }
        check(sacked == send.segments.sackedBytes && lost == send.segments.lostBytes, "bytes are counted wrongly")
        check(send.segments.end - send.segments.first <= limits.segmentsInFlight, "too many segments")
        check(send.congestion.window >= 0 && send.ring.capacity <= limits.sendBytes, "past a limit")
    }
}
