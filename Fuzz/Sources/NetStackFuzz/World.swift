import FuzzInput
@testable import IPAddresses
@testable import NetStack
import NIOCore

/// Two hosts, and the packets that are under way to each.
struct World {
    private var hosts: [Host]
    private var network: [[[UInt8]]] = [[], []]
    private var now = Duration.seconds(1)
    private var isTainted = false

    init(_ limits: NetStackLimits) { hosts = [Host(0, limits), Host(1, limits)] }

    /// The high bit of an operation says which host it is for, the next three for which connection or packet.
    mutating func perform(_ operation: UInt8, _ input: inout FuzzInput) {
        let (index, number) = (Int(operation >> 7), Int(operation >> 4 & 7))
        let id = hosts[index].running(number)
        switch operation & 15 {
        case 0, 1: deliver(index, number)
        case 2: for _ in 0...number { deliver(index, 0) }
        case 3: network[index].remove(number)
        case 4: if let packet = network[index].at(number) { put(index, packet) }
        case 5: if let id { hosts[index].write(id, input.word(), now: now) }
        case 6: if let id { hosts[index].read(id, limit: 1 + input.word(), now: now) }
        case 7: hosts[index].connect(to: Endpoint(address(1 - index), UInt16(80 + number)), now: now)
        case 8: now += .milliseconds(Int(input.byte()))
        case 9: pass(.milliseconds(Int(input.byte()) << number))
        case 10: if let id { hosts[index].finish(id, now: now) }
        case 11: application(index, id, input.byte())
        case 12: flip(index, number, input.word(), input.byte())
        case 13: inject(index, number, &input)
        case 14: exchange(most: 8 * (number + 1), applications: operation & 128 != 0)
        default: sendOther(index, number, input.byte())
        }
        for index in [0, 1] { settle(index) }
    }

    private mutating func settle(_ index: Int) {
        hosts[index].takeEvents(now: now)
        for packet in hosts[index].stack.packets(now: now) {
            checkPacket(packet)
            put(1 - index, packet)
        }
        hosts[index].takeEvents(now: now)
        hosts[index].stack.checkInvariants()
    }

    private mutating func put(_ index: Int, _ packet: [UInt8]) {
        if network[index].count < 4_000 { network[index].append(packet) }
    }

    private mutating func deliver(_ index: Int, _ number: Int) {
        guard let packet = network[index].remove(number) else { return }
        packet.withUnsafeBytes { hosts[index].stack.receive($0, now: now) }
        hosts[index].takeEvents(now: now)
    }

    private mutating func application(_ index: Int, _ id: ConnectionID?, _ choice: UInt8) {
        switch choice & 7 {
        case 0: hosts[index].refuses.toggle()
        case 1:
            hosts[index].stack.reset(peer: address(1 - index))
            hosts[index].takeEvents(now: now)
        case 2: hosts[index].stack.advance(now: .zero)
        case 3:
            // Not never: one whose peer forgot it would never end.
            if let id { hosts[index].stack.setKeepAlive(id, idle: .seconds(1 + Int(choice >> 3))) }
        case 4: if let id { hosts[index].stack.awaitRoom(id) }
        case 5: _ = hosts[index].stack.takeStatistics()
        default: if let id { hosts[index].abort(id, now: now) }
        }
    }

    // MARK: What a network may not do

    private mutating func taint() {
        isTainted = true
        for index in [0, 1] { hosts[index].isTainted = true }
    }

    private mutating func flip(_ index: Int, _ number: Int, _ place: Int, _ xor: UInt8) {
        guard let packet = network[index].at(number), xor != 0 else { return }
        var changed = packet
        changed[place % packet.count] ^= xor
        // One with a wrong checksum is lost, and harms nothing.
        if place & 0x8000 != 0 {
            mendChecksum(&changed)
            taint()
        } else if !isChecked(packet, place % packet.count) {
            taint()
        }
        network[index][number % network[index].count] = changed
    }

    /// Whether the checksum covers a byte: the length and the next header it does not, since they say where it is.
    private func isChecked(_ packet: [UInt8], _ place: Int) -> Bool { place >= 8 && packet[6] != 99 }

    /// A segment of somebody who knows the connection.
    private mutating func inject(_ index: Int, _ number: Int, _ input: inout FuzzInput) {
        guard let id = hosts[index].running(number), let slot = hosts[index].stack.slot(id) else { return }
        taint()
        let packet = segment(for: hosts[index].stack.connections[slot], now: now, &input)
        packet.withUnsafeBytes { hosts[index].stack.receive($0, now: now) }
    }

    private mutating func sendOther(_ index: Int, _ number: Int, _ byte: UInt8) {
        let payload = [UInt8](repeating: byte, count: 9 + number * 100)
        let (local, remote) = (Endpoint(address(index), 1_000 + UInt16(number)), Endpoint(address(1 - index), 53))
        if byte & 1 == 0 {
            hosts[index].stack.sendDatagram(from: local, to: remote, ByteBuffer(bytes: payload), now: now)
            return
        }
        // An echo request, or a ping of TSMP.
        var packet: [UInt8] = [0x60, 0, 0, 0, UInt8(payload.count >> 8), UInt8(payload.count & 255), 58, 64]
        packet += address(index).bytes + address(1 - index).bytes + payload
        if byte & 2 == 0 { packet[6] = 99 }
        packet[40] = packet[6] == 99 ? UInt8(ascii: "p") : 128
        packet[41] = 0
        mendChecksum(&packet)
        put(1 - index, packet)
    }

    // MARK: Time

    private mutating func pass(_ time: Duration) {
        let end = now + time
        var count = 0
        while let next = hosts.compactMap(\.stack.nextDeadline).min(), next <= end, count < 50 {
            count += 1
            advance(to: next)
        }
        advance(to: end)
    }

    private mutating func advance(to time: Duration) {
        now = max(now, time)
        for index in [0, 1] {
            hosts[index].stack.advance(now: now)
            if let next = hosts[index].stack.nextDeadline { check(next > now, "a deadline of the past") }
            settle(index)
        }
    }

    /// Delivers packets in order.
    /// - Returns: whether there were any.
    @discardableResult
    private mutating func exchange(most: Int, applications: Bool) -> Bool {
        var count = 0
        while count < most, !(network[0].isEmpty && network[1].isEmpty) {
            for index in [0, 1] where !network[index].isEmpty {
                deliver(index, 0)
                count += 1
                if applications { read(index) }
                settle(index)
            }
        }
        return count > 0
    }

    private mutating func read(_ index: Int) {
        for id in hosts[index].ids where hosts[index].apps[id]?.isOver == false {
            while hosts[index].read(id, limit: 100_000, now: now) {}
        }
        hosts[index].takeEvents(now: now)
    }

    // MARK: The end

    /// All applications read and end, and nothing is lost any more: all connections end, with what was written.
    mutating func end() {
        for index in [0, 1] { hosts[index].refuses = false }
        var rounds = 0
        let end = now + .seconds(4 * 3_600)
        while true {
            rounds += 1
            // Ends that were told lies may tell each other that they do not believe them, for ever.
            if isTainted, rounds > 300 { return }
            check(rounds < 20_000, "the stacks never stop")
            for index in [0, 1] {
                read(index)
                for id in hosts[index].ids where hosts[index].apps[id]?.isOver == false {
                    hosts[index].finish(id, now: now)
                }
                settle(index)
            }
            if exchange(most: 400, applications: true) { continue }
            guard let next = hosts.compactMap(\.stack.nextDeadline).min(), next <= end else { break }
            advance(to: next)
        }
        for index in [0, 1] {
            let stack = hosts[index].stack
            check(stack.connectionCount == 0 && stack.halfOpenCount == 0, "a connection does not end")
            check(stack.timeWaitCount == 0 && stack.udpFlowCount == 0 && stack.bufferBytes == 0, "something is left")
            check(hosts[index].apps.values.allSatisfy(\.isOver), "an application was not told")
            if !isTainted { checkBytes(index) }
        }
    }

    /// Nothing came that was not written, and all where a connection ended well.
    private func checkBytes(_ index: Int) {
        for app in hosts[index].apps.values {
            let others = hosts[1 - index].apps.values.filter { $0.local == app.remote && $0.remote == app.local }
            check(app.received <= others.map(\.sent).max() ?? 0, "more came than was written")
            guard app.isClosed else { continue }
            check(others.contains { $0.isFinished && $0.sent == app.received }, "not all came")
        }
    }
}

extension [[UInt8]] {
    func at(_ number: Int) -> [UInt8]? { isEmpty ? nil : self[number % count] }

    @discardableResult
    mutating func remove(_ number: Int) -> [UInt8]? { isEmpty ? nil : remove(at: number % count) }
}
