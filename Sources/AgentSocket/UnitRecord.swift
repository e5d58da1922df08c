import NIOCore

/// One entry of the journal of units. Units are numbered in the order of their names' records.
///
/// A record is its payload's length and checksum, 4 bytes each, and the payload: a byte that says what it is, then
/// numbers of fixed size, all little-endian. A journal is only read by the same machine.
enum UnitRecord: Equatable, Sendable {
    /// The next number's name.
    case name(String)
    /// The unit has this state, since a time that is not known any more.
    case state(Int, UnitState)
    /// The unit wants the other.
    case wants(Int, Int)
    /// The unit got this state, which is an event of the timeline.
    case event(Int, UnitState, UnitInstant)

    /// Bytes in front of a payload.
    static let headerBytes = 8

    func write(into bytes: inout ByteBuffer) {
        let header = bytes.writerIndex
        bytes.writeInteger(UInt64(0))
        switch self {
        case .name(let name):
            bytes.writeInteger(UInt8(1))
            bytes.writeString(name)
        case .state(let unit, let state):
            bytes.writeInteger(UInt8(2))
            write(unit, state, &bytes)
        case .wants(let unit, let dependency):
            bytes.writeInteger(UInt8(3))
            bytes.writeInteger(UInt32(clamping: unit), endianness: .little)
            bytes.writeInteger(UInt32(clamping: dependency), endianness: .little)
        case .event(let unit, let state, let at):
            bytes.writeInteger(UInt8(4))
            write(unit, state, &bytes)
            bytes.writeInteger(at.seconds, endianness: .little)
            bytes.writeInteger(at.nanoseconds, endianness: .little)
        }
        let payload = header + Self.headerBytes
        bytes.setInteger(UInt32(clamping: bytes.writerIndex - payload), at: header, endianness: .little)
        let sum = Self.checksum(bytes.readableBytesView[payload...])
        bytes.setInteger(sum, at: header + 4, endianness: .little)
    }

    private func write(_ unit: Int, _ state: UnitState, _ bytes: inout ByteBuffer) {
        bytes.writeInteger(UInt32(clamping: unit), endianness: .little)
        bytes.writeInteger(Self.code(state))
    }

    /// Takes the next record.
    /// - Returns: nil for what is not a whole record; nothing is taken then.
    static func read(from bytes: inout ByteBuffer) -> UnitRecord? {
        var rest = bytes
        guard let length = rest.readInteger(endianness: .little, as: UInt32.self),
            let sum = rest.readInteger(endianness: .little, as: UInt32.self),
            var payload = rest.readSlice(length: Int(length)), sum == checksum(payload.readableBytesView),
            let record = UnitRecord(payload: &payload), payload.readableBytes == 0
        else { return nil }
        bytes = rest
        return record
    }

    private init?(payload: inout ByteBuffer) {
        func number() -> Int? { payload.readInteger(endianness: .little, as: UInt32.self).map { Int($0) } }
        func state() -> UnitState? { payload.readInteger(as: UInt8.self).flatMap(Self.state) }
        switch payload.readInteger(as: UInt8.self) {
        case 1:
            guard let name = String(validating: payload.readableBytesView, as: UTF8.self) else { return nil }
            payload.moveReaderIndex(to: payload.writerIndex)
            self = .name(name)
        case 2:
            guard let unit = number(), let state = state() else { return nil }
            self = .state(unit, state)
        case 3:
            guard let unit = number(), let dependency = number() else { return nil }
            self = .wants(unit, dependency)
        case 4:
            guard let unit = number(), let state = state(),
                let seconds = payload.readInteger(endianness: .little, as: Int64.self),
                let nanoseconds = payload.readInteger(endianness: .little, as: Int32.self),
                (0..<1_000_000_000).contains(nanoseconds)
            else { return nil }
            self = .event(unit, state, UnitInstant(seconds: seconds, nanoseconds: nanoseconds))
        default: return nil
        }
    }

    private static func code(_ state: UnitState) -> UInt8 {
        switch state {
        case .pending: 0
        case .started: 1
        case .completed: 2
        }
    }

    private static func state(_ code: UInt8) -> UnitState? { UnitState.allCases.first { self.code($0) == code } }

    /// FNV-1a: it finds what a write left half done or a disk spoiled, and need not stop anyone who may write the file.
    private static func checksum(_ bytes: ByteBufferView) -> UInt32 {
        bytes.reduce(2_166_136_261) { ($0 ^ UInt32($1)) &* 16_777_619 }
    }
}
