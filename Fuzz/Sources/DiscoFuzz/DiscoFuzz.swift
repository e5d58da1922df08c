import FuzzInput
@testable import IPAddresses
@testable import Sodium

@testable import Disco

/// The first byte decides what the others are for: a datagram, a STUN packet, a disco message, or what happens between
/// two nodes.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    var input = FuzzInput(data, count)
    switch input.byte() % 4 {
    case 0: readDatagram(input.rest())
    case 1: answer(&input)
    case 2: readMessage(input.rest())
    default:
        var network = Network.start
        while !input.isEmpty {
            network.perform(input.byte(), &input)
            network.checkLimits()
        }
        network.recover()
    }
    return 0
}

private func readDatagram(_ bytes: [UInt8]) {
    let kind = bytes.withUnsafeBytes { DatagramKind($0) }
    if let (tx, address) = try? STUN.readResponse(bytes) {
        check(kind == .stun, "an answer that is no STUN")
        check(tx.bytes == Array(bytes[8..<20]) && Endpoint("\(address)") == address, "an address changed")
    }
    if kind == .disco { check(DiscoPacket.sender(of: bytes) != nil || bytes.count > 4_096, "disco without a sender") }
    if kind == .wireGuard { check(bytes.count >= 32 && (1...4).contains(bytes[0]), "no WireGuard") }
}

/// A server's answer says where the request came from.
private func answer(_ input: inout FuzzInput) {
    let address = input.byte() & 1 == 0 ? IPAddress(input.take(4)) : IPAddress(input.take(16))
    let source = Endpoint(address ?? .unspecified, UInt16(input.word()))
    guard let tx = TransactionID(input.take(12)) else { return }
    let request = STUN.makeRequest(tx)
    guard let answer = STUN.answer(request, from: source) else { fatalError("a request of ours was not answered") }
    guard let read = try? STUN.readResponse(answer) else { fatalError("an answer of ours is none") }
    check(read.tx == tx && read.address == source, "\(read) instead of \(tx) and \(source)")
    // A changed request has no answer, or the same one: some bytes say nothing.
    var changed = request
    changed[input.word() % request.count] ^= input.byte()
    if let other = STUN.answer(changed, from: source) { check(other.count == answer.count, "another answer") }
    _ = STUN.answer(input.rest(), from: source)
}

private func readMessage(_ bytes: [UInt8]) {
    guard let message = try? DiscoMessage(plaintext: bytes) else { return }
    let plaintext = message.plaintext
    check((try? DiscoMessage(plaintext: plaintext)) == message, "the message changed: \(message)")
    guard case .callMeMaybe(let endpoints) = message else {
        check(plaintext.count == DiscoMessage.paddedCount, "a ping or pong is not padded")
        return
    }
    check(endpoints.count <= DiscoLimits.candidates, "too many endpoints")
}
