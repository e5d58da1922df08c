import FuzzInput
@testable import IPAddresses
@testable import Sodium

@testable import WireGuard

/// Two nodes with fixed keys, in virtual time: the first byte says whether they have a session already, the others are
/// operations. What one takes must be what the other sealed, once; what is changed is dropped and counted; and
/// afterwards packets get through again.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    guard count > 0 else { return 0 }
    var input = FuzzInput(data, count)
    var pair = input.byte() & 1 == 0 ? Pair.fresh : Pair.connected
    wall.now = pair.now
    while !input.isEmpty {
        pair.perform(input.byte(), &input)
        pair.checkLimits()
    }
    pair.recover()
    return 0
}

extension Pair {
    /// The high bit of an operation says which node it is for.
    mutating func perform(_ operation: UInt8, _ input: inout FuzzInput) {
        let index = Int(operation >> 7)
        switch operation & 15 {
        case 0, 1: send(index, packet(from: index, bytes: Int(input.byte()) * 5))
        case 2: send(index, input.take(Int(input.byte()) * 6))
        case 3: drain(index)
        case 4, 5: deliverNext(index)
        case 6:
            // Once more, later.
            if let datagram = network[index].first { network[index].append(datagram) }
        case 7: if !network[index].isEmpty { network[index].append(network[index].removeFirst()) }
        case 8: _ = network[index].popFirst()
        case 9: deliverChanged(index, at: input.word(), xor: input.byte())
        case 10: deliverShortened(index, by: Int(input.byte()))
        case 11: deliverRaw(index, input.block(), hasMACs: operation & 64 != 0, hasIndex: operation & 32 != 0)
        case 12: pass(.milliseconds(Int(input.byte())))
        case 13: pass(.seconds(Int(input.byte())))
        case 14: changePeer(index, input.byte())
        default: initiateAsStranger(index, Int(input.byte()))
        }
    }

    /// What is made by neither node.
    private mutating func deliverRaw(_ index: Int, _ bytes: [UInt8], hasMACs: Bool, hasIndex: Bool) {
        var datagram = bytes
        if hasIndex, datagram.count >= 8 {
            let known = nodes[index].places.keys.sorted() + nodes[index].initiations.keys.sorted()
            if let own = known.first {
                // An answer has it later.
                let offset = datagram[0] == 2 && datagram.count >= 12 ? 8 : 4
                withUnsafeBytes(of: own.littleEndian) { datagram.replaceSubrange(offset..<offset + 4, with: $0) }
            }
        }
        if hasMACs, datagram.count > Message.macsCount {
            datagram.removeLast(Message.macsCount)
            _ = Message.appendMACs(to: &datagram, receiver: nodes[index].key.publicKey, cookie: nil)
        }
        let result = take(index, datagram, isReal: false)
        if case .packet = result { fatalError("a packet that nobody sealed") }
    }

    private mutating func deliverChanged(_ index: Int, at place: Int, xor: UInt8) {
        guard var datagram = network[index].first, xor != 0 else { return }
        let place = place % datagram.count
        datagram[place] ^= xor
        let result = take(index, datagram, isReal: false)
        // The second MAC says nothing where no cookie is demanded.
        if datagram[0] <= 2, place >= datagram.count - MAC.count { return }
        guard case .dropped(_, nil) = result else { fatalError("a changed datagram was taken: \(result)") }
    }

    private mutating func deliverShortened(_ index: Int, by count: Int) {
        guard let datagram = network[index].first, count > 0 else { return }
        let result = take(index, Array(datagram.dropLast(count)), isReal: false)
        guard case .dropped(_, nil) = result else { fatalError("a part of a datagram was taken: \(result)") }
    }

    /// Handshake messages of nobody we know, which cost Diffie-Hellman operations all the same.
    private mutating func initiateAsStranger(_ index: Int, _ number: Int) {
        for source in 0..<number % 8 {
            var message = [UInt8](repeating: UInt8(number), count: Message.initiationCount - Message.macsCount)
            message.replaceSubrange(0..<4, with: [1, 0, 0, 0])
            _ = Message.appendMACs(to: &message, receiver: nodes[index].key.publicKey, cookie: nil)
            take(index, message, from: Source([9, UInt8(source)]), isReal: false)
        }
    }

    private mutating func changePeer(_ index: Int, _ choice: UInt8) {
        switch choice & 3 {
        case 0:
            nodes[index].removePeer(peers[index])
            let key = nodes[1 - index].key.publicKey
            guard
                let id = try? nodes[index].addPeer(
                    key, allowed: host(1 - index), keepAlive: choice & 4 == 0 ? nil : .seconds(25), now: now)
            else { fatalError("the peer was not taken again") }
            check(id != peers[index], "an id was used twice")
            peers[index] = id
        case 1: try? nodes[index].replaceAllowed([], of: peers[index])
        case 2: try? nodes[index].replaceAllowed(host(1 - index), of: peers[index])
        default: while nodes[index].nextEvent() != nil {}
        }
    }

    func checkLimits() {
        for node in nodes {
            check(node.places.count <= 3 && node.initiations.count <= 1, "sessions of a peer are left")
            check(node.stagedPackets <= node.limits.staged, "too much is staged")
            check(node.watchedSources <= node.limits.sources, "too many sources")
            check(node.cookieReplies.count <= node.limits.cookieReplies, "too many cookie replies")
            check(node.deadlines.count <= 1 && node.ready.count <= 1, "a peer has two places")
        }
    }
}
