import NIOCore

/// One running call as its handler sees it, in bytes.
public final class ServerStream: Sendable {
    let id: UInt64
    let pipe: MessagePipe
    private let loop: any EventLoop
    private let write: @Sendable (ByteBuffer) throws -> Void

    /// - Parameter write: appends a message to the connection; called on the loop.
    init(
        id: UInt64, loop: any EventLoop, hasRoom: @escaping @Sendable () -> Void,
        write: @escaping @Sendable (ByteBuffer) throws -> Void
    ) {
        self.id = id
        self.loop = loop
        self.write = write
        pipe = MessagePipe(loop: loop, hasRoom: hasRoom)
    }

    /// The next message of the client, nil after its last.
    public func receive() async throws -> ByteBuffer? { try await pipe.next() }

    /// Sends a message. Waits while the client doesn't read what was sent before.
    public func send(_ data: ByteBuffer) async throws {
        try await pipe.waitWritable()
        if loop.inEventLoop {
            try write(data)
        } else {
            try await loop.submit { [write] in try write(data) }.get()
        }
    }

    func requireRequest() async throws -> ByteBuffer {
        guard let data = try await receive() else { throw DRPCError.endOfStream }
        return data
    }
}
