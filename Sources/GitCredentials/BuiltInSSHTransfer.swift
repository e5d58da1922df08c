import AgentCore
import CPlatform
import CSSH2
import Glibc

/// Moves bytes between this process's stdin, stdout and stderr and a command on the server, until that has ended.
///
/// The three are shared with git, so they stay as they are, blocking: each is touched only when poll(2) says that it is
/// ready, and no more is written than it takes at once.
struct BuiltInSSHTransfer {
    /// F_GETPIPE_SZ, which the Glibc module leaves out.
    private static let getPipeSize: CInt = 1032
    /// Bytes that are read at once.
    private static let chunk = 64 << 10

    /// Bytes on their way to stdout or stderr.
    private struct Output {
        let descriptor: CInt
        /// Of the ssh channel: 0, or 1 for stderr.
        let stream: CInt
        var area = [CChar](repeating: 0, count: BuiltInSSHTransfer.chunk)
        var pending = 0..<0
    }

    private let session: BuiltInSSHSession
    private let channel: OpaquePointer
    private var functions: ssh2_api { session.functions }
    private var outputs = [Output(descriptor: 1, stream: 0), Output(descriptor: 2, stream: 1)]
    private var input = [CChar](repeating: 0, count: BuiltInSSHTransfer.chunk)
    private var unsent = 0..<0
    private var hasInput: Bool
    private var hasSentEnd = false

    init(_ session: BuiltInSSHSession, _ channel: OpaquePointer, readsInput: Bool) {
        (self.session, self.channel, hasInput) = (session, channel, readsInput)
    }

    /// Returns once the server has closed the channel and all of its output is written.
    mutating func run() throws(BuiltInSSHFailure) {
        while true {
            let wasAtEnd = session.isAtEnd
            let isSendingEnd = try send()
            for index in outputs.indices { try receive(index) }
            if try isClosed() { return }
            // What came with the end may be of the stream that was read first.
            guard session.isAtEnd == wasAtEnd else { continue }
            guard !wasAtEnd || outputs.contains(where: { !$0.pending.isEmpty }) else { throw session.ended() }
            try wait(isSendingEnd: isSendingEnd)
        }
    }

    /// Sends what stdin had, or that it has ended.
    /// - Returns: whether the end is still to be sent.
    private mutating func send() throws(BuiltInSSHFailure) -> Bool {
        // No more than the socket takes.
        while !unsent.isEmpty, !session.hasBacklog {
            let range = unsent
            let count = input.withUnsafeBufferPointer {
                functions.libssh2_channel_write_ex(
                    channel, 0, $0.baseAddress.map { $0 + range.lowerBound }, range.count)
            }
            // None is sent while the server has no room for it.
            if count == 0 || count == Int(LIBSSH2_ERROR_EAGAIN) { return false }
            if count < 0 {
                // A command may end, or close its stdin, before it has read everything.
                guard [LIBSSH2_ERROR_CHANNEL_CLOSED, LIBSSH2_ERROR_CHANNEL_EOF_SENT].contains(CInt(count)) else {
                    throw session.ended()
                }
                (unsent, hasInput, hasSentEnd) = (0..<0, false, true)
                return false
            }
            unsent = unsent.lowerBound + count..<unsent.upperBound
        }
        guard unsent.isEmpty, !hasInput, !hasSentEnd else { return false }
        let code = functions.libssh2_channel_send_eof(channel)
        hasSentEnd = code != LIBSSH2_ERROR_EAGAIN
        return !hasSentEnd
    }

    private mutating func receive(_ index: Int) throws(BuiltInSSHFailure) {
        guard outputs[index].pending.isEmpty else { return }
        let (stream, channel, functions) = (outputs[index].stream, channel, functions)
        let count = outputs[index].area.withUnsafeMutableBufferPointer {
            functions.libssh2_channel_read_ex(channel, stream, $0.baseAddress, $0.count)
        }
        if count > 0 {
            outputs[index].pending = 0..<count
        } else if count < 0, count != Int(LIBSSH2_ERROR_EAGAIN), functions.libssh2_channel_eof(channel) != 1 {
            throw session.ended()
        }
    }

    /// Whether the server has closed the channel and nothing of its output is left.
    private func isClosed() throws(BuiltInSSHFailure) -> Bool {
        guard functions.libssh2_channel_eof(channel) == 1, outputs.allSatisfy({ $0.pending.isEmpty }) else {
            return false
        }
        switch functions.libssh2_channel_wait_closed(channel) {
        case 0: return true
        case LIBSSH2_ERROR_EAGAIN: return false
        default: throw session.ended()
        }
    }

    /// Waits until one of the descriptors is ready, and serves those of this process that are.
    private mutating func wait(isSendingEnd: Bool) throws(BuiltInSSHFailure) {
        // The server's permission to send more comes in, too.
        let isWaiting = isSendingEnd || !unsent.isEmpty && !session.hasBacklog
        let isReceiving = isWaiting || outputs.contains { $0.pending.isEmpty }
        let events = Int16((isReceiving ? POLLIN : 0) | (session.hasBacklog ? POLLOUT : 0))
        // For no events it would still tell of the end, again and again.
        let isOver = events == 0 || session.isAtEnd
        var items = [pollfd(fd: isOver ? -1 : session.descriptor, events: events, revents: 0)]
        items.append(pollfd(fd: hasInput && unsent.isEmpty ? 0 : -1, events: Int16(POLLIN), revents: 0))
        for output in outputs {
            items.append(
                pollfd(fd: output.pending.isEmpty ? -1 : output.descriptor, events: Int16(POLLOUT), revents: 0))
        }
        guard poll(&items, nfds_t(items.count), -1) > 0 else { return }
        session.flush()
        if items[1].revents != 0 { read() }
        for index in outputs.indices where items[2 + index].revents != 0 { try write(index) }
    }

    private mutating func read() {
        let count = wa_read(0, &input, input.count)
        if count > 0 { unsent = 0..<count }
        hasInput = count > 0 || count == -Int(EINTR) || count == -Int(EAGAIN)
    }

    private mutating func write(_ index: Int) throws(BuiltInSSHFailure) {
        let output = outputs[index]
        let room = min(Self.room(output.descriptor), output.pending.count)
        let count = output.area.withUnsafeBufferPointer {
            wa_write(output.descriptor, $0.baseAddress.map { $0 + output.pending.lowerBound } ?? $0.baseAddress, room)
        }
        if count > 0 {
            outputs[index].pending = output.pending.lowerBound + count..<output.pending.upperBound
        } else if count != -Int(EINTR), count != -Int(EAGAIN) {
            throw BuiltInSSHFailure("cannot write what the server sends: \(errnoText(CInt(-count)))")
        }
    }

    /// Bytes that a descriptor takes without blocking, now that poll(2) says that it takes some: of a pipe all that it
    /// holds when it is empty, and PIPE_BUF otherwise.
    private static func room(_ descriptor: CInt) -> Int {
        let capacity = fcntl(descriptor, Self.getPipeSize)
        guard capacity > 0, wa_readable_bytes(descriptor) == 0 else { return Int(PIPE_BUF) }
        return Int(capacity)
    }
}
