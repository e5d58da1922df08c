import Glibc

/// A socket that carries a descriptor beside its bytes (SCM_RIGHTS).
enum DescriptorPassing {
    private static let rights: CInt = 1
    /// Of a control message with one descriptor: the header, which ends on a multiple of its alignment, and it.
    private static let header = MemoryLayout<cmsghdr>.size
    private static let length = header + MemoryLayout<CInt>.size
    private static let room = 64

    /// Sends bytes and, with the first of them, a descriptor, which stays ours.
    /// - Returns: the bytes sent; negative, with errno, when none could be.
    static func send(_ socket: CInt, _ bytes: UnsafeRawBufferPointer, descriptor: CInt) -> Int {
        exchange(bytes) { control, message in
            control.storeBytes(of: length, as: Int.self)
            control.storeBytes(of: SOL_SOCKET, toByteOffset: 8, as: CInt.self)
            control.storeBytes(of: rights, toByteOffset: 12, as: CInt.self)
            control.storeBytes(of: descriptor, toByteOffset: header, as: CInt.self)
            message.msg_controllen = (length + 7) & ~7
            return sendmsg(socket, &message, CInt(MSG_NOSIGNAL))
        }
    }

    /// Receives bytes, and a descriptor when one comes with them, which the caller closes.
    /// - Returns: the bytes received; 0 at the end, negative with errno on failure.
    static func receive(_ socket: CInt, _ area: UnsafeMutableRawBufferPointer) -> (count: Int, descriptor: CInt?) {
        var descriptor: CInt?
        let count = exchange(UnsafeRawBufferPointer(area)) { control, message in
            message.msg_controllen = room
            let count = recvmsg(socket, &message, CInt(MSG_CMSG_CLOEXEC))
            if count > 0, message.msg_controllen >= length, control.load(as: Int.self) == length,
                control.load(fromByteOffset: 8, as: CInt.self) == SOL_SOCKET,
                control.load(fromByteOffset: 12, as: CInt.self) == rights
            {
                descriptor = control.load(fromByteOffset: header, as: CInt.self)
            }
            return count
        }
        return (count, descriptor)
    }

    private static func exchange(
        _ bytes: UnsafeRawBufferPointer, _ body: (UnsafeMutableRawBufferPointer, inout msghdr) -> Int
    ) -> Int {
        var piece = iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
        return withUnsafeMutablePointer(to: &piece) { piece in
            withUnsafeTemporaryAllocation(byteCount: room, alignment: 8) { control in
                control.initializeMemory(as: UInt8.self, repeating: 0)
                var message = msghdr()
                message.msg_iov = piece
                message.msg_iovlen = 1
                message.msg_control = control.baseAddress
                while true {
                    let count = body(control, &message)
                    if count >= 0 || errno != EINTR { return count }
                }
            }
        }
    }
}
