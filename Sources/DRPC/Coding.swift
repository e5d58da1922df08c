import NIOCore
import SwiftProtobuf

/// Between messages and the bytes of a packet.
enum Coding {
    static func encode(_ message: some Message) throws(DRPCError) -> ByteBuffer {
        do {
            let bytes: [UInt8] = try message.serializedBytes()
            return bytes.isEmpty ? ByteBuffer() : ByteBuffer(bytes: bytes)
        } catch {
            throw DRPCError(.undecodable, "cannot encode \(type(of: message).protoMessageName)", cause: error)
        }
    }

    static func decode<M: Message>(_ type: M.Type, _ data: ByteBuffer) throws(DRPCError) -> M {
        do {
            return try data.withUnsafeReadableBytes { try M(serializedBytes: RawSpan(_unsafeBytes: $0)) }
        } catch {
            // The text that the reference's protobuf library has for the same bytes.
            throw DRPCError(.undecodable, "proto: cannot parse invalid wire-format data")
        }
    }
}
