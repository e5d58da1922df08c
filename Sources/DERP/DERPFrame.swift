import NIOCore
import Sodium

/// Why a relay says that a peer is gone.
package enum PeerGoneReason: Hashable, Sendable {
    case disconnected, notHere
    case other(UInt8)

    package init(_ byte: UInt8) {
        switch byte {
        case 0: self = .disconnected
        case 1: self = .notHere
        default: self = .other(byte)
        }
    }

    var byte: UInt8 {
        switch self {
        case .disconnected: 0
        case .notHere: 1
        case .other(let byte): byte
        }
    }
}

/// A frame of either direction: type 1 byte, length of the payload 4 bytes big-endian, payload
/// (docs/contracts/derp.md#frames). The types that only relays of a mesh send each other (09, 0a, 10, 11) have no case:
/// they are skipped.
package enum DERPFrame: Hashable, Sendable {
    case serverKey(PublicKey)
    case clientInfo(PublicKey, nonce: [UInt8], box: [UInt8])
    case serverInfo(nonce: [UInt8], box: [UInt8])
    case send(to: PublicKey, ByteBuffer)
    case received(from: PublicKey, ByteBuffer)
    case keepAlive
    /// Whether the relay is the client's home.
    case notePreferred(Bool)
    case peerGone(PublicKey, PeerGoneReason)
    /// Eight bytes as a big-endian number.
    case ping(UInt64)
    case pong(UInt64)
    /// What is wrong; empty when all is well again.
    case health(String)
    /// Milliseconds until clients may dial again, and for how long they should try.
    case restarting(reconnectIn: UInt32, tryFor: UInt32)

    package static let headerCount = 5
    /// "DERP" and the key in UTF-8, before a relay's public key.
    package static let magic: [UInt8] = [0x44, 0x45, 0x52, 0x50, 0xf0, 0x9f, 0x94, 0x91]

    /// The least payload of the type; nil for one that is skipped.
    static func leastPayload(_ type: UInt8) -> Int? {
        switch type {
        case 0x01: magic.count + PublicKey.count
        case 0x02: PublicKey.count + Box.nonceCount + Box.overhead
        case 0x03: Box.nonceCount + Box.overhead
        case 0x04, 0x05, 0x08: PublicKey.count
        case 0x06, 0x14: 0
        case 0x07: 1
        case 0x12, 0x13, 0x15: 8
        default: nil
        }
    }

    /// nil for a type that is skipped, and a payload that is too short.
    package init?(type: UInt8, payload: ByteBuffer) {
        guard let least = Self.leastPayload(type), payload.readableBytes >= least else { return nil }
        var rest = payload
        switch type {
        case 0x01:
            guard rest.readBytes(length: Self.magic.count) == Self.magic, let key = rest.readKey() else { return nil }
            self = .serverKey(key)
        case 0x02:
            guard let key = rest.readKey(), let nonce = rest.readBytes(length: Box.nonceCount) else { return nil }
            self = .clientInfo(key, nonce: nonce, box: Array(rest.readableBytesView))
        case 0x03:
            guard let nonce = rest.readBytes(length: Box.nonceCount) else { return nil }
            self = .serverInfo(nonce: nonce, box: Array(rest.readableBytesView))
        case 0x04, 0x05:
            guard let key = rest.readKey() else { return nil }
            self = type == 0x04 ? .send(to: key, rest) : .received(from: key, rest)
        case 0x06: self = .keepAlive
        case 0x07: self = .notePreferred(rest.readInteger(as: UInt8.self) == 1)
        case 0x08:
            guard let key = rest.readKey() else { return nil }
            // Older relays leave the reason out.
            self = .peerGone(key, PeerGoneReason(rest.readInteger() ?? 0))
        case 0x12, 0x13:
            guard let data: UInt64 = rest.readInteger() else { return nil }
            self = type == 0x12 ? .ping(data) : .pong(data)
        case 0x14:
            self = .health(String(decoding: rest.readableBytesView.prefix(DERPLimits.healthBytes), as: UTF8.self))
        case 0x15:
            guard let (reconnectIn, tryFor) = rest.readMultipleIntegers(as: (UInt32, UInt32).self) else { return nil }
            self = .restarting(reconnectIn: reconnectIn, tryFor: tryFor)
        default: return nil
        }
    }

    package func write(into out: inout ByteBuffer) {
        switch self {
        case .serverKey(let key):
            out.writeFrameHeader(0x01, Self.magic.count + PublicKey.count)
            out.writeBytes(Self.magic)
            out.writeKey(key)
        case .clientInfo(let key, let nonce, let box):
            out.writeFrameHeader(0x02, PublicKey.count + nonce.count + box.count)
            out.writeKey(key)
            out.writeBytes(nonce)
            out.writeBytes(box)
        case .serverInfo(let nonce, let box):
            out.writeFrameHeader(0x03, nonce.count + box.count)
            out.writeBytes(nonce)
            out.writeBytes(box)
        case .send(let key, let packet): out.writePacket(0x04, key, packet)
        case .received(let key, let packet): out.writePacket(0x05, key, packet)
        case .keepAlive: out.writeFrameHeader(0x06, 0)
        case .notePreferred(let isHome):
            out.writeFrameHeader(0x07, 1)
            out.writeInteger(isHome ? 1 : 0, as: UInt8.self)
        case .peerGone(let key, let reason):
            out.writeFrameHeader(0x08, PublicKey.count + 1)
            out.writeKey(key)
            out.writeInteger(reason.byte)
        case .ping(let data):
            out.writeFrameHeader(0x12, 8)
            out.writeInteger(data)
        case .pong(let data):
            out.writeFrameHeader(0x13, 8)
            out.writeInteger(data)
        case .health(let text):
            out.writeFrameHeader(0x14, text.utf8.count)
            out.writeString(text)
        case .restarting(let reconnectIn, let tryFor):
            out.writeFrameHeader(0x15, 8)
            out.writeMultipleIntegers(reconnectIn, tryFor)
        }
    }
}

extension ByteBuffer {
    mutating func readKey() -> PublicKey? {
        let key = withUnsafeReadableBytes { bytes in
            bytes.count >= PublicKey.count
                ? PublicKey(UnsafeRawBufferPointer(rebasing: bytes[..<PublicKey.count])) : nil
        }
        if key != nil { moveReaderIndex(forwardBy: PublicKey.count) }
        return key
    }

    mutating func writeKey(_ key: PublicKey) { key.withBytes { _ = writeBytes($0) } }

    mutating func writeFrameHeader(_ type: UInt8, _ count: Int) {
        writeMultipleIntegers(type, UInt32(clamping: count))
    }

    mutating func writePacket(_ type: UInt8, _ key: PublicKey, _ packet: ByteBuffer) {
        writeFrameHeader(type, PublicKey.count + packet.readableBytes)
        writeKey(key)
        writeImmutableBuffer(packet)
    }
}

/// Splits a relay's or a client's bytes, cut anywhere, into frames. Packets are slices of what came in.
package struct DERPFrameReader: Sendable {
    private var pending = ByteBuffer()
    /// Bytes still to come of a payload that is skipped. They are not kept.
    private var skipping = 0
    /// Frames that were of unknown type, or too short for theirs.
    package private(set) var skipped: UInt64 = 0

    package init() {}

    /// Bytes that wait for the rest of their frame; at most ``DERPLimits/frameBytes``, a header and one read.
    package var buffered: Int { pending.readableBytes }

    package mutating func append(_ bytes: ByteBuffer) {
        if pending.readableBytes == 0 {
            pending = bytes
        } else {
            // What was read before is left behind, not copied along.
            if pending.readerIndex > 0 { pending = pending.slice() }
            pending.writeImmutableBuffer(bytes)
        }
    }

    /// The next frame; nil when more bytes are needed. Not to be called again once it has thrown.
    package mutating func next() throws(DERPError) -> DERPFrame? {
        while true {
            if skipping > 0 {
                let count = min(skipping, pending.readableBytes)
                pending.moveReaderIndex(forwardBy: count)
                skipping -= count
                if skipping > 0 { return nil }
            }
            let start = pending.readerIndex
            guard let type: UInt8 = pending.getInteger(at: start),
                let length: UInt32 = pending.getInteger(at: start + 1)
            else { return nil }
            let count = Int(length)
            guard count <= DERPLimits.frameBytes else { throw .frameTooLong(type: type, bytes: count) }
            guard let least = DERPFrame.leastPayload(type), count >= least else {
                skipped &+= 1
                pending.moveReaderIndex(forwardBy: DERPFrame.headerCount)
                skipping = count
                continue
            }
            guard pending.readableBytes >= DERPFrame.headerCount + count else { return nil }
            pending.moveReaderIndex(forwardBy: DERPFrame.headerCount)
            guard let payload = pending.readSlice(length: count) else { return nil }
            if pending.readableBytes == 0 { pending = ByteBuffer() }
            if let frame = DERPFrame(type: type, payload: payload) { return frame }
            skipped &+= 1
        }
    }
}
