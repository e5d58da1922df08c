import FuzzInput
@testable import IPAddresses
@testable import NetStack

/// The first byte decides the limits, and whether the others are packets for one stack or what happens between two.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    var input = FuzzInput(data, count)
    let choice = input.byte()
    var limits = NetStackLimits()
    if choice & 1 != 0 { limits.makeSmall() }
    if choice & 2 == 0 {
        takePackets(&input, limits)
    } else {
        var world = World(limits)
        while !input.isEmpty { world.perform(input.byte(), &input) }
        world.end()
    }
    return 0
}

extension NetStackLimits {
    /// So small that they are reached.
    fileprivate mutating func makeSmall() {
        (connections, connectionsPerPeer, halfOpen, halfOpenPerPeer) = (4, 3, 2, 2)
        (udpFlows, udpFlowsPerPeer, datagramBytes, answers) = (2, 1, 1_000, 3)
        (bufferBytes, firstReceiveBytes, receiveBytes) = (160 << 10, 4 << 10, 32 << 10)
        (firstSendBytes, sendBytes, segmentsInFlight) = (4 << 10, 32 << 10, 6)
        (outOfOrderBytesPerMiB, outOfOrderRanges, timeWaits, countedFlows) = (3_000, 2, 2, 3)
    }
}

/// Packets with their length before them, of which those with the length's highest bit get what makes them acceptable:
/// addresses, lengths and a checksum.
private func takePackets(_ input: inout FuzzInput, _ limits: NetStackLimits) {
    var random = SeededRandom(9)
    var stack = NetStack(addresses: [address(0), address(1)], limits: limits, random: &random)
    var now = Duration.seconds(1)
    while !input.isEmpty {
        let word = input.word()
        var packet = input.take(word & 0x7ff)
        if word & 0x8000 != 0 { mend(&packet) }
        packet.withUnsafeBytes { stack.receive($0, now: now) }
        now += .milliseconds(word >> 11 & 15)
        while let event = stack.nextEvent() {
            guard case .connectionRequested(let id, _, _) = event else { continue }
            if word & 0x800 == 0 { stack.accept(id, now: now) } else { stack.refuse(id) }
        }
        for answer in stack.packets(now: now) { checkPacket(answer) }
        stack.checkInvariants()
    }
    // Nobody acknowledges anything: all ends.
    stack.settle(&now)
    check(stack.connectionCount == 0 && stack.udpFlowCount == 0 && stack.timeWaitCount == 0, "something is left")
    check(stack.bufferBytes == 0 && stack.halfOpenCount == 0, "memory is left")
}

private func mend(_ packet: inout [UInt8]) {
    guard packet.count >= 40 else { return }
    packet[0] = 0x60
    packet.replaceSubrange(4..<6, with: [UInt8((packet.count - 40) >> 8), UInt8((packet.count - 40) & 255)])
    if packet[6] & 1 == 0, packet[6] != 58 { packet[6] = 6 } else if packet[6] != 99, packet[6] != 58 { packet[6] = 17 }
    packet.replaceSubrange(8..<24, with: address(2 + Int(packet[23] & 1)).bytes)
    packet.replaceSubrange(24..<40, with: address(Int(packet[39] & 1)).bytes)
    mendChecksum(&packet)
}

/// Writes the checksum that the packet should have.
func mendChecksum(_ packet: inout [UInt8]) {
    guard packet.count >= 40, let place = [6: 16, 17: 6, 58: 2][packet[6]], packet.count >= 42 + place else { return }
    packet[40 + place] = 0
    packet[41 + place] = 0
    let stored = sum(packet)
    // A datagram's checksum of 0 is written as 65,535.
    let value = stored == 0 && packet[6] == 17 ? .max : stored
    packet[40 + place] = UInt8(value >> 8)
    packet[41 + place] = UInt8(value & 255)
}

/// 0 for a packet whose checksum is right. Computed otherwise than the stack does.
func sum(_ packet: [UInt8]) -> UInt16 {
    let length = packet.count - 40
    let bytes = packet[8..<40] + [0, 0, UInt8(length >> 8), UInt8(length & 255), 0, 0, 0, packet[6]] + packet[40...]
    var sum: UInt32 = 0
    for (index, byte) in bytes.enumerated() { sum += UInt32(byte) << (index & 1 == 0 ? 8 : 0) }
    while sum > 0xffff { sum = sum >> 16 + sum & 0xffff }
    return ~UInt16(truncatingIfNeeded: sum)
}

/// What a stack sends is well-formed.
func checkPacket(_ packet: [UInt8]) {
    guard let read = packet.withUnsafeBytes({ IPv6Packet($0).map { ($0.nextHeader, $0.payload.count) } }) else {
        fatalError("no packet")
    }
    check(read.1 == packet.count - 40 && packet.count <= 1_280, "a packet of a wrong length")
    if [6, 17, 58].contains(read.0) { check(sum(packet) == 0, "a wrong checksum") }
    guard read.0 == 6 else { return }
    check(Array(packet[40...]).withUnsafeBytes { TCPSegment($0) != nil }, "no segment")
}
