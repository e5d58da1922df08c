import AgentTestSupport
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

/// A TCP segment as a test writes or reads it, with a checksum of its own.
struct RawSegment {
    var sequence: UInt32 = 0
    var acknowledgment: UInt32 = 0
    var flags: TCPFlags = .ack
    var window: UInt16 = 1_000
    var timestamps: (value: UInt32, echo: UInt32)?
    /// Other options, of a length that four divides.
    var options: [UInt8] = []
    var payload: [UInt8] = []
}

/// A peer that says what the test wants it to, on one connection to port 80.
struct RawPeer {
    var stack: NetStack
    var now = Duration.seconds(1)
    var port: UInt16 = 40_000
    var address = theirs
    /// The number of our next byte, and that of the stack's.
    var next: UInt32 = 1_000
    var expected: UInt32 = 0
    var stamp: UInt32 = 100
    var usesTimestamps = true
    /// The stack's last timestamp.
    private(set) var echo: UInt32 = 0
    private(set) var id: ConnectionID?

    init(_ limits: NetStackLimits = .init(), name: String = #function) {
        var random = SeededGenerator(name)
        stack = NetStack(addresses: [ours], limits: limits, random: &random)
    }

    static func sum(_ bytes: [UInt8]) -> UInt16 {
        var sum: UInt32 = 0
        for index in stride(from: 0, to: bytes.count, by: 2) {
            sum += UInt32(bytes[index]) << 8 | (index + 1 < bytes.count ? UInt32(bytes[index + 1]) : 0)
            sum = (sum & 0xffff) + sum >> 16
        }
        return ~UInt16(truncatingIfNeeded: sum)
    }

    static func big(_ value: UInt32) -> [UInt8] {
        (0..<4).map { UInt8(truncatingIfNeeded: value >> UInt32(24 - 8 * $0)) }
    }
    static func big(_ value: UInt16) -> [UInt8] { [UInt8(value >> 8), UInt8(value & 255)] }

    /// An IPv6 packet; the checksum goes to this place of the payload.
    static func packet(
        from: IPAddress, to: IPAddress, next: UInt8, _ payload: [UInt8], checksumAt place: Int? = nil
    ) -> [UInt8] {
        var payload = payload
        if let place {
            let pseudo = from.bytes + to.bytes + big(UInt32(payload.count)) + [0, 0, 0, next]
            let sum = big(sum(pseudo + payload))
            payload.replaceSubrange(place..<place + 2, with: sum)
        }
        return [0x60, 0, 0, 0] + big(UInt16(payload.count)) + [next, 64] + from.bytes + to.bytes + payload
    }

    func packet(_ segment: RawSegment) -> [UInt8] {
        var options = segment.options
        if let stamps = segment.timestamps {
            options += [1, 1, 8, 10] + Self.big(stamps.value) + Self.big(stamps.echo)
        }
        let header =
            Self.big(port) + Self.big(UInt16(80)) + Self.big(segment.sequence) + Self.big(segment.acknowledgment)
            + [UInt8(5 + options.count / 4) << 4, segment.flags.rawValue] + Self.big(segment.window) + [0, 0, 0, 0]
        return Self.packet(from: address, to: ours, next: 6, header + options + segment.payload, checksumAt: 16)
    }

    /// Sends a segment.
    /// - Parameter offset: from the number that is due.
    mutating func send(
        _ flags: TCPFlags = .ack, _ payload: [UInt8] = [], offset: Int = 0, acknowledges: UInt32? = nil,
        window: UInt16 = 1_000, stamp: UInt32? = nil, options: [UInt8] = []
    ) {
        var segment = RawSegment(flags: flags, window: window, options: options, payload: payload)
        segment.sequence = next &+ UInt32(truncatingIfNeeded: offset)
        segment.acknowledgment = flags.contains(.ack) ? acknowledges ?? expected : 0
        if usesTimestamps { segment.timestamps = (stamp ?? self.stamp, echo) }
        if offset == 0, !flags.contains(.rst) {
            next &+= UInt32(payload.count) + (flags.contains(.syn) ? 1 : 0) + (flags.contains(.fin) ? 1 : 0)
        }
        stack.receive(packet(segment), now: now)
    }

    static let synOptions: [UInt8] = [2, 4, 4, 0xc4, 4, 2, 1, 1, 1, 3, 3, 7]

    /// What the stack sends now.
    mutating func replies(_ location: SourceLocation = #_sourceLocation) -> [RawSegment] {
        stack.packets(now: now).compactMap { packet in
            guard packet[6] == 6 else { return nil }
            let pseudo = packet[8..<40] + Self.big(UInt32(packet.count - 40)) + [0, 0, 0, 6]
            #expect(Self.sum(Array(pseudo) + packet[40...]) == 0, sourceLocation: location)
            let bytes = Array(packet[40...])
            return bytes.withUnsafeBytes { raw in
                guard let segment = TCPSegment(raw) else { return nil }
                if let stamps = segment.timestamps { echo = stamps.value }
                if segment.flags.contains(.syn) || !segment.payload.isEmpty || segment.flags.contains(.fin) {
                    expected = max(expected, segment.sequence.value &+ UInt32(segment.length))
                }
                return RawSegment(
                    sequence: segment.sequence.value, acknowledgment: segment.acknowledgment.value,
                    flags: segment.flags, window: segment.window,
                    timestamps: segment.timestamps.map { ($0.value, $0.echo) },
                    options: Array(bytes[20..<Int(bytes[12] >> 4) * 4]), payload: Array(segment.payload))
            }
        }
    }

    /// Moves the time on, in the steps that the stack asks for.
    /// - Returns: what it sent.
    mutating func wait(_ time: Duration) -> [RawSegment] {
        let end = now + time
        var sent: [RawSegment] = []
        while let due = stack.nextDeadline, due <= end {
            now = max(now, due)
            stack.advance(now: now)
            sent += replies()
        }
        now = end
        return sent
    }

    /// SYN, the driver's yes, and the handshake's end.
    @discardableResult
    mutating func establish(_ location: SourceLocation = #_sourceLocation) throws -> ConnectionID {
        send(.syn, options: Self.synOptions)
        let events = stack.allEvents()
        guard case .connectionRequested(let id, _, _)? = events.first else {
            Issue.record("no request but \(events)", sourceLocation: location)
            throw DeadlineExceeded(what: "a request")
        }
        stack.accept(id, now: now)
        let answer = try #require(replies().first, sourceLocation: location)
        #expect(answer.flags == [.syn, .ack], sourceLocation: location)
        expected = answer.sequence &+ 1
        send(.ack)
        #expect(stack.allEvents() == [.established(id)], sourceLocation: location)
        self.id = id
        return id
    }

    mutating func read() -> [UInt8] {
        guard let id, let buffer = stack.read(id, now: now) else { return [] }
        return Array(buffer.readableBytesView)
    }

    mutating func write(_ bytes: [UInt8]) -> Int {
        var buffer = ByteBuffer(bytes: bytes)
        return id.map { stack.write($0, &buffer, now: now) } ?? 0
    }
}
