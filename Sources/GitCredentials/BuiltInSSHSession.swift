import AgentCore
import CSSH2
import FoundationEssentials
import Glibc

/// A connection to a server, encrypted once ``handshake(_:_:deadline:)`` has returned.
final class BuiltInSSHSession {
    /// How long the server may take for an answer, until the command runs.
    private static let patience = Duration.seconds(120)
    /// Methods that OpenSSH's client takes, too, best first: no SHA-1 in signatures, no ciphers that are broken.
    private static let methods: [(kind: CInt, names: String)] = [
        (
            LIBSSH2_METHOD_KEX,
            "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521,"
                + "diffie-hellman-group-exchange-sha256,diffie-hellman-group16-sha512,diffie-hellman-group18-sha512,"
                + "diffie-hellman-group14-sha256"
        ),
        (LIBSSH2_METHOD_CRYPT_CS, "aes128-ctr,aes192-ctr,aes256-ctr"),
        (LIBSSH2_METHOD_CRYPT_SC, "aes128-ctr,aes192-ctr,aes256-ctr"),
        (LIBSSH2_METHOD_MAC_CS, "hmac-sha2-256,hmac-sha2-512,hmac-sha1"),
        (LIBSSH2_METHOD_MAC_SC, "hmac-sha2-256,hmac-sha2-512,hmac-sha1"),
    ]
    private static let hostKeyTypes = [
        "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    ]

    let library: BuiltInSSHLibrary
    let pointer: OpaquePointer
    /// The server, for messages.
    let server: String
    private(set) var descriptor: CInt = -1
    /// What the server said when it ended the connection.
    fileprivate(set) var farewell: String?
    /// Whether the server has ended the connection, and all that it sent is with libssh2.
    fileprivate(set) var isAtEnd = false
    /// Bytes that the socket did not take yet: some of a packet, or a few.
    private var backlog: [UInt8] = []
    var hasBacklog: Bool { !backlog.isEmpty }
    private var socket: OwnedDescriptor?
    var functions: ssh2_api { library.functions }

    init(_ library: BuiltInSSHLibrary, server: String) throws(BuiltInSSHFailure) {
        guard let pointer = library.functions.libssh2_session_init_ex(nil, nil, nil, nil) else {
            throw BuiltInSSHFailure("libssh2 has no memory for a connection")
        }
        (self.library, self.pointer, self.server) = (library, pointer, server)
        library.functions.libssh2_session_set_blocking(pointer, 0)
        ssh2_set_callbacks(pointer, Unmanaged.passUnretained(self).toOpaque(), noteFarewell, noteEnd, sendBytes)
    }

    deinit {
        // A farewell that would have to wait is not said.
        if descriptor >= 0 {
            _ = functions.libssh2_session_disconnect_ex(pointer, SSH_DISCONNECT_BY_APPLICATION, "done", "")
        }
        _ = functions.libssh2_session_free(pointer)
    }

    /// Agrees on encryption over a new connection.
    /// - Parameter knownTypes: of keys that are known for the host, which it is asked for first.
    func handshake(
        _ socket: consuming OwnedDescriptor, knownTypes: [String], deadline: ContinuousClock.Instant
    ) throws(BuiltInSSHFailure) {
        descriptor = socket.number
        self.socket = consume socket
        for (kind, names) in Self.methods { _ = functions.libssh2_session_method_pref(pointer, kind, names) }
        let known = Self.hostKeyTypes.filter { knownTypes.contains($0) }
        let order = known + Self.hostKeyTypes.filter { !knownTypes.contains($0) }
        _ = functions.libssh2_session_method_pref(pointer, LIBSSH2_METHOD_HOSTKEY, order.joined(separator: ","))
        let code = try retrying(until: deadline) { functions.libssh2_session_handshake(pointer, descriptor) }
        switch code {
        case 0: return
        case LIBSSH2_ERROR_KEX_FAILURE, LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE, LIBSSH2_ERROR_METHOD_NONE:
            throw BuiltInSSHFailure(
                "\(server) and the built-in ssh client know no common encryption or type of host key (\(lastError));"
                    + " host keys may be of the types Ed25519 and ECDSA here, not RSA",
                BuiltInSSHFailure.remedy)
        case LIBSSH2_ERROR_BANNER_RECV,
            _ where !isOfSSH:
            throw BuiltInSSHFailure("\(server) does not answer as an ssh server does")
        default: throw ended()
        }
    }

    /// Whether the first line from the server was one of the protocol.
    private var isOfSSH: Bool {
        functions.libssh2_session_banner_get(pointer).map { String(cString: $0).hasPrefix("SSH-") } ?? false
    }

    /// The key that the server has shown to be its own, and its fingerprint.
    func hostKey() throws(BuiltInSSHFailure) -> (key: KnownHosts.HostKey, fingerprint: String) {
        var count = 0
        guard let start = functions.libssh2_session_hostkey(pointer, &count, nil),
            let digest = functions.libssh2_hostkey_hash(pointer, LIBSSH2_HOSTKEY_HASH_SHA256)
        else { throw BuiltInSSHFailure("\(server) has shown no host key (\(lastError))") }
        let blob = Array(UnsafeRawBufferPointer(start: start, count: count))
        guard let type = SSHFields.all(blob)?.first else {
            throw BuiltInSSHFailure("the host key of \(server) is malformed")
        }
        let key = KnownHosts.HostKey(
            type: String(decoding: type, as: UTF8.self), base64: Data(blob).base64EncodedString())
        let fingerprint = BuiltInSSHLibrary.fingerprint(digest: Array(UnsafeRawBufferPointer(start: digest, count: 32)))
        return (key, fingerprint)
    }

    /// Calls it until it has a result, waiting for the server meanwhile.
    func retrying(
        until deadline: ContinuousClock.Instant? = nil, _ call: () -> CInt
    ) throws(BuiltInSSHFailure) -> CInt {
        while true {
            let began = ContinuousClock.now
            let code = call()
            guard code == LIBSSH2_ERROR_EAGAIN else { return code }
            guard !isAtEnd else { return LIBSSH2_ERROR_SOCKET_DISCONNECT }
            try wait(until: deadline ?? began + Self.patience)
        }
    }

    /// As ``retrying(until:_:)`` for what returns a pointer; nil for a failure.
    func retrying<T>(_ call: () -> T?) throws(BuiltInSSHFailure) -> T? {
        while true {
            let began = ContinuousClock.now
            if let value = call() { return value }
            let code = functions.libssh2_session_last_error(pointer, nil, nil, 0)
            guard code == LIBSSH2_ERROR_EAGAIN, !isAtEnd else { return nil }
            try wait(until: began + Self.patience)
        }
    }

    private func wait(until deadline: ContinuousClock.Instant) throws(BuiltInSSHFailure) {
        let events = Int16(hasBacklog ? POLLIN | POLLOUT : POLLIN)
        guard BuiltInSSHSocket.wait(descriptor, events, until: deadline) else {
            throw BuiltInSSHFailure("\(server) does not answer")
        }
        flush()
    }

    // MARK: Sending

    /// Sends what libssh2 has to send; what the socket does not take is kept for ``flush()``.
    fileprivate func send(_ bytes: UnsafeRawBufferPointer) {
        let count = backlog.isEmpty ? sendNow(bytes) : 0
        backlog += bytes.dropFirst(count)
    }

    /// Sends what is kept, or a part of it.
    func flush() {
        guard hasBacklog else { return }
        backlog.removeFirst(backlog.withUnsafeBytes { sendNow($0) })
    }

    private func sendNow(_ bytes: UnsafeRawBufferPointer) -> Int {
        let count = Glibc.send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
        if count >= 0 { return count }
        // A server that is gone takes no more. That shows when all is read from it.
        return errno == EAGAIN || errno == EINTR ? 0 : bytes.count
    }

    // MARK: End

    /// Whether the server has ended the connection.
    func isEnded(_ code: CInt) -> Bool {
        if farewell != nil || isAtEnd || code == LIBSSH2_ERROR_SOCKET_DISCONNECT { return true }
        var byte: UInt8 = 0
        let count = recv(descriptor, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)
    }

    func ended() -> BuiltInSSHFailure {
        BuiltInSSHFailure("the connection to \(server) ended: \(farewell ?? lastError)")
    }

    /// libssh2's words for what failed last.
    var lastError: String {
        guard !isAtEnd else { return "closed by the server" }
        var text: UnsafeMutablePointer<CChar>?
        let code = functions.libssh2_session_last_error(pointer, &text, nil, 0)
        guard let text, text.pointee != 0 else { return "error \(-code) of libssh2" }
        return String(cString: text)
    }
}

/// Called by libssh2 with what the server says at the end.
private func noteFarewell(
    _ session: UnsafeMutableRawPointer?, _ text: UnsafePointer<CChar>?, _ count: CInt
) {
    guard let session, let text, count > 0 else { return }
    let bytes = UnsafeRawBufferPointer(start: text, count: Int(count))
    Unmanaged<BuiltInSSHSession>.fromOpaque(session).takeUnretainedValue().farewell =
        String(decoding: bytes, as: UTF8.self)
}

/// Called by libssh2's reads when a connection has ended.
private func noteEnd(_ context: UnsafeMutableRawPointer?, _ socket: CInt) -> Bool {
    guard let session = session(context), session.descriptor == socket else { return false }
    session.isAtEnd = true
    return true
}

/// Called by libssh2 to send.
private func sendBytes(
    _ context: UnsafeMutableRawPointer?, _ socket: CInt, _ bytes: UnsafeRawPointer?, _ count: Int
) -> Bool {
    guard let session = session(context), session.descriptor == socket else { return false }
    session.send(UnsafeRawBufferPointer(start: bytes, count: count))
    return true
}

private func session(_ context: UnsafeMutableRawPointer?) -> BuiltInSSHSession? {
    context.map { Unmanaged<BuiltInSSHSession>.fromOpaque($0).takeUnretainedValue() }
}
