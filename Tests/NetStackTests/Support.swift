import AgentTestSupport
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

let ours = IPAddress(high: 0xfd7a_115c_a1e0_4111, low: 0x8111_1111_1111_1111)
let theirs = IPAddress(high: 0xfd7a_115c_a1e0_4295, low: 0x83b1_d446_93e8_0128)

func other(_ number: Int) -> IPAddress { IPAddress(high: 0xfd7a_115c_a1e0_0000, low: UInt64(number) + 1) }

/// The byte at a place of a stream.
func pattern(_ offset: Int, salt: Int) -> UInt8 {
    UInt8(truncatingIfNeeded: (offset &* 0x9e37 &+ salt &* 77) >> 3 ^ offset >> 11)
}

func patternBytes(_ offset: Int, _ count: Int, salt: Int) -> [UInt8] {
    (offset..<offset + count).map { pattern($0, salt: salt) }
}

extension NetStack {
    mutating func receive(_ packet: [UInt8], now: Duration) { packet.withUnsafeBytes { receive($0, now: now) } }

    mutating func packet(now: Duration) -> [UInt8]? {
        var packet = [UInt8](repeating: 0xaa, count: 1_280)
        let count = packet.withUnsafeMutableBytes { nextPacket(into: $0, now: now)?.count }
        return count.map { Array(packet.prefix($0)) }
    }

    mutating func packets(now: Duration) -> [[UInt8]] {
        var packets: [[UInt8]] = []
        while let packet = packet(now: now) { packets.append(packet) }
        return packets
    }

    mutating func allEvents() -> [NetStackEvent] {
        var events: [NetStackEvent] = []
        while let event = nextEvent() { events.append(event) }
        return events
    }

    /// What must hold at any time.
    func checkInvariants(_ place: SourceLocation = #_sourceLocation) {
        var bytes = 0
        var (used, half) = (0, 0)
        for connection in connections where connection.state != .free {
            used += 1
            if connection.isCountedHalfOpen { half += 1 }
            bytes += connection.send.ring.capacity + connection.receive.ring.capacity
            let send = connection.send
            #expect(send.unacknowledged <= send.next, sourceLocation: place)
            #expect(send.segments.bytes == send.next - send.unacknowledged, sourceLocation: place)
            var (sacked, lost, start) = (0, 0, send.unacknowledged)
            for id in send.segments.first..<send.segments.end {
                let segment = send.segments[id]
                #expect(segment.start == start && segment.length > 0, sourceLocation: place)
                #expect(!(segment.isLost && segment.isSacked), sourceLocation: place)
                if segment.isSacked { sacked += Int(segment.length) }
                if segment.isLost { lost += Int(segment.length) }
                start = segment.end
            }
            #expect(sacked == send.segments.sackedBytes && lost == send.segments.lostBytes, sourceLocation: place)
            #expect(send.congestion.window >= 0, sourceLocation: place)
            #expect(send.ring.capacity <= limits.sendBytes, sourceLocation: place)
            let receive = connection.receive
            #expect(receive.ring.count <= limits.receiveBytes + 128, sourceLocation: place)
            #expect(receive.ring.capacity <= limits.receiveBytes + 128, sourceLocation: place)
            #expect(receive.held.count <= limits.outOfOrderRanges, sourceLocation: place)
            #expect(receive.edge - receive.next <= limits.receiveBytes + 128, sourceLocation: place)
        }
        #expect(bytes == bufferBytes && bufferBytes <= limits.bufferBytes, sourceLocation: place)
        #expect(used == connectionCount && half == halfOpenCount, sourceLocation: place)
        #expect(acknowledging.count <= connections.count && sending.count <= connections.count, sourceLocation: place)
    }
}

/// One end of a connection, with an application that writes a pattern and checks what it reads.
struct App {
    var id: ConnectionID
    var salt: Int
    var peerSalt: Int
    var toSend = 0
    var sent = 0
    var received = 0
    /// Bytes of a write.
    var piece = 65_536
    var finishes = true
    /// Finish only when the peer has.
    var finishesAfterPeer = false
    /// Bytes that may still be read; nil for all.
    var readBudget: Int?
    var isEstablished = false
    var sawEnd = false
    var isClosed = false
    var failure: ConnectionFailure?
    var finished = false
    var isOver: Bool { isClosed || failure != nil }
}

/// A stack with its applications.
final class Host {
    var stack: NetStack
    var apps: [ConnectionID: App] = [:]
    var datagrams: [(local: Endpoint, remote: Endpoint, payload: [UInt8])] = []
    /// Makes the application of a connection that a peer asks for; nil refuses it.
    var accept: (ConnectionID, Endpoint, Endpoint) -> App? = { _, _, _ in nil }
    /// Whether data was wrong.
    var isCorrupt = false

    init(_ address: IPAddress, _ random: inout SeededGenerator, limits: NetStackLimits = NetStackLimits()) {
        stack = NetStack(addresses: [address], limits: limits, random: &random)
    }

    func drain(now: Duration) {
        while let event = stack.nextEvent() { handle(event, now: now) }
    }

    private func handle(_ event: NetStackEvent, now: Duration) {
        switch event {
        case .connectionRequested(let id, let local, let remote):
            if let app = accept(id, local, remote) {
                apps[id] = app
                stack.accept(id, now: now)
            } else {
                stack.refuse(id)
            }
        case .established(let id):
            apps[id]?.isEstablished = true
            write(id, now: now)
        case .readable(let id): read(id, now: now)
        case .writable(let id): write(id, now: now)
        case .endOfInput(let id):
            apps[id]?.sawEnd = true
            write(id, now: now)
        case .closed(let id): apps[id]?.isClosed = true
        case .failed(let id, let failure): apps[id]?.failure = failure
        case .datagram(let local, let remote, let payload):
            datagrams.append((local, remote, Array(payload.readableBytesView)))
        case .flowEnded: break
        }
    }

    func read(_ id: ConnectionID, now: Duration) {
        guard var app = apps[id] else { return }
        while app.readBudget != 0 {
            let taken = stack.read(id, now: now) { bytes in
                let count = min(bytes.count, app.readBudget ?? .max)
                for index in 0..<count where bytes[index] != pattern(app.received + index, salt: app.peerSalt) {
                    isCorrupt = true
                }
                return count
            }
            guard taken > 0 else { break }
            app.received += taken
            if let budget = app.readBudget { app.readBudget = budget - taken }
        }
        apps[id] = app
    }

    func write(_ id: ConnectionID, now: Duration) {
        guard var app = apps[id], !app.finished else { return }
        while app.sent < app.toSend {
            let count = min(app.piece, app.toSend - app.sent)
            var buffer = ByteBuffer(bytes: patternBytes(app.sent, count, salt: app.salt))
            let taken = stack.write(id, &buffer, now: now)
            app.sent += taken
            if taken < count { break }
        }
        if app.sent == app.toSend, app.finishes, !app.finishesAfterPeer || app.sawEnd {
            app.finished = true
            stack.finish(id, now: now)
        }
        apps[id] = app
    }
}

/// Two hosts and what lies between them, in virtual time.
final class Link {
    struct Path {
        var delay = Duration.milliseconds(5)
        /// Added at random, so that packets overtake each other.
        var jitter = Duration.zero
        var loss = 0.0
        var duplication = 0.0
        var corruption = 0.0
        /// Bytes per second; nil without limit.
        var rate: Double?
        /// Bytes that wait for the rate; more are dropped.
        var queue = 1 << 20
    }

    private struct Flight {
        var at: Duration
        var serial: Int
        var to: Int
        var packet: [UInt8]
    }

    var now = Duration.seconds(1)
    let hosts: [Host]
    var path: Path
    var random: SeededGenerator
    var lost = 0
    /// Sees each packet that a host sends; false drops it.
    var filter: (Int, [UInt8]) -> Bool = { _, _ in true }
    private var flights: [Flight] = []
    private var serial = 0
    private var freeAt: [Duration] = [.zero, .zero]

    init(_ a: Host, _ b: Host, _ path: Path = Path(), random: SeededGenerator) {
        (hosts, self.path, self.random) = ([a, b], path, random)
    }

    func chance(_ probability: Double) -> Bool {
        probability > 0 && Double.random(in: 0..<1, using: &random) < probability
    }

    /// Puts a packet on its way.
    func inject(_ packet: [UInt8], to: Int, at: Duration? = nil) {
        serial += 1
        insert(Flight(at: at ?? now, serial: serial, to: to, packet: packet))
    }

    private func insert(_ flight: Flight) {
        var index = flights.count
        flights.append(flight)
        while index > 0 {
            let parent = (index - 1) / 2
            guard (flights[index].at, flights[index].serial) < (flights[parent].at, flights[parent].serial) else {
                break
            }
            flights.swapAt(index, parent)
            index = parent
        }
    }

    private func popFirst() -> Flight? {
        guard let first = flights.first, let last = flights.popLast() else { return nil }
        guard !flights.isEmpty else { return first }
        flights[0] = last
        var index = 0
        while true {
            var child = 2 * index + 1
            guard child < flights.count else { break }
            func key(_ index: Int) -> (Duration, Int) { (flights[index].at, flights[index].serial) }
            if child + 1 < flights.count, key(child + 1) < key(child) { child += 1 }
            guard key(child) < key(index) else { break }
            flights.swapAt(index, child)
            index = child
        }
        return first
    }

    private func send(_ packet: [UInt8], from: Int) {
        guard filter(from, packet) else { return }
        if chance(path.loss) {
            lost += 1
            return
        }
        var leaves = now
        if let rate = path.rate {
            let start = max(now, freeAt[from])
            let waiting = (start - now) / .seconds(1) * rate
            if waiting > Double(path.queue) {
                lost += 1
                return
            }
            leaves = start + .seconds(Double(packet.count) / rate)
            freeAt[from] = leaves
        }
        for _ in 0..<(chance(path.duplication) ? 2 : 1) {
            var packet = packet
            if chance(path.corruption) {
                let index = Int.random(in: 0..<packet.count, using: &random)
                packet[index] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            }
            let jitter = path.jitter * Double.random(in: 0...1, using: &random)
            inject(packet, to: 1 - from, at: leaves + path.delay + jitter)
        }
    }

    func pump() {
        for host in hosts { host.drain(now: now) }
        for (index, host) in hosts.enumerated() {
            var count = 0
            while let packet = host.stack.packet(now: now) {
                send(packet, from: index)
                count += 1
                if count % 16 == 0 { host.drain(now: now) }
            }
            host.drain(now: now)
        }
    }

    /// Moves on to what happens next.
    /// - Returns: false when nothing will.
    func step(until end: Duration) -> Bool {
        let deadlines = hosts.compactMap { $0.stack.nextDeadline } + (flights.first.map { [$0.at] } ?? [])
        guard let next = deadlines.min(), next <= end else {
            now = max(now, end)
            return false
        }
        now = max(now, next)
        while let first = flights.first, first.at <= now, let flight = popFirst() {
            hosts[flight.to].stack.receive(flight.packet, now: now)
        }
        for host in hosts {
            if let deadline = host.stack.nextDeadline, deadline <= now { host.stack.advance(now: now) }
        }
        pump()
        return true
    }

    /// Runs until the condition holds.
    /// - Returns: whether it came to hold in time.
    @discardableResult
    func run(_ time: Duration, until isDone: () -> Bool = { false }) -> Bool {
        let end = now + time
        pump()
        while !isDone() {
            if !step(until: end) { return isDone() }
        }
        return true
    }
}
