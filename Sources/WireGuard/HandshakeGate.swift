import Sodium

/// Decides which handshake messages are worth their Diffie-Hellman operations (whitepaper, 5.3 and 5.4.7). It keeps
/// nothing of a source that has not proved with a cookie that it is where it says.
struct HandshakeGate: Sendable {
    enum Verdict { case take, demandCookie, drop(DropReason) }

    private let limits: WireGuardLimits
    private let cost: Duration
    // What came and what is taken, as the times at which all of it would be worked off.
    private var arrivals = Duration.zero
    private var work = Duration.zero
    private var loadedUntil: Duration?
    private var secret: (bytes: SecretBytes, madeAt: Duration)?
    /// The time at which a source has its whole burst again.
    private var sources: [Source: Duration] = [:]
    private var sweptAt: Duration?

    init(limits: WireGuardLimits) {
        self.limits = limits
        cost = .seconds(1) / max(1, limits.handshakesPerSecond)
    }

    var watchedSources: Int { sources.count }

    func isUnderLoad(now: Duration) -> Bool { loadedUntil.map { now < $0 } ?? false }

    /// Judges a handshake message whose first MAC is right.
    mutating func judge(_ message: UnsafeRawBufferPointer, from source: Source, now: Duration) -> Verdict {
        let whole = cost * limits.handshakeBacklog
        arrivals = min(max(arrivals, now) + cost, now + whole)
        if arrivals - now > whole / 2 { loadedUntil = now + WireGuardTimes.loadLasts }
        if isUnderLoad(now: now) {
            guard hasCookie(message, from: source, now: now) else { return .demandCookie }
            if let reason = refusal(of: source, now: now) { return .drop(reason) }
        }
        work = max(work, now)
        guard work + cost - now <= whole else { return .drop(.tooManyHandshakes) }
        work += cost
        return .take
    }

    private mutating func refusal(of source: Source, now: Duration) -> DropReason? {
        let interval = Duration.seconds(1) / max(1, limits.handshakesPerSourceAndSecond)
        if sources[source] == nil, sources.count >= limits.sources {
            // Not at each message of a flood.
            if sweptAt.map({ now - $0 >= interval }) ?? true {
                sources = sources.filter { $0.value > now }
                sweptAt = now
            }
            guard sources.count < limits.sources else { return .tooManySources }
        }
        let whole = max(sources[source] ?? now, now)
        guard whole - now <= interval * (limits.handshakeBurstPerSource - 1) else { return .sourceTooFast }
        sources[source] = whole + interval
        return nil
    }

    // MARK: Cookies

    private func hasCookie(_ message: UnsafeRawBufferPointer, from source: Source, now: Duration) -> Bool {
        let end = message.count - MAC.count
        guard end >= 0, let secret, now - secret.madeAt < WireGuardTimes.cookieLife else { return false }
        return Self.cookie(for: source, secret: secret.bytes).withBytes { cookie in
            KeyDerivation.mac(key: cookie, .init(rebasing: message[..<end]))
                .isSame(as: .init(rebasing: message[end...]))
        }
    }

    static func cookie(for source: Source, secret: SecretBytes) -> MAC {
        secret.withBytes { secret in source.withBytes { KeyDerivation.mac(key: secret, $0) } }
    }

    /// The answer to a handshake message without a cookie.
    mutating func reply(
        to message: UnsafeRawBufferPointer, from source: Source, key: SecretBytes,
        random: inout any RandomNumberGenerator & Sendable, now: Duration
    ) -> [UInt8]? {
        let end = message.count - Message.macsCount
        guard end >= 0 else { return nil }
        if secret.map({ now - $0.madeAt >= WireGuardTimes.cookieLife }) ?? true {
            let bytes = SecretBytes(count: 32) { bytes in
                for index in bytes.indices { bytes[index] = random.next() }
            }
            secret = (bytes, now)
        }
        guard let secret else { return nil }
        let nonce = (0..<24).map { _ in random.next() as UInt8 }
        return Self.reply(
            receiver: Message.uint32(message, at: 4), mac1: Array(message[end..<end + MAC.count]), nonce: nonce,
            cookie: Self.cookie(for: source, secret: secret.bytes), key: key)
    }

    static func reply(receiver: UInt32, mac1: [UInt8], nonce: [UInt8], cookie: MAC, key: SecretBytes) -> [UInt8]? {
        AEAD.xseal(cookie.withBytes { Array($0) }, nonce: nonce, aad: mac1, key: key).map {
            Message.bytes(Message.cookieReply, receiver) + nonce + $0
        }
    }

    /// The cookie in a reply to the message with this first MAC.
    static func open(reply: [UInt8], mac1: MAC, key: SecretBytes) -> MAC? {
        guard reply.count == Message.cookieReplyCount else { return nil }
        let cookie = AEAD.xopen(
            Array(reply[32...]), nonce: Array(reply[8..<32]), aad: mac1.withBytes { Array($0) }, key: key)
        return cookie.flatMap { $0.withUnsafeBytes { MAC($0) } }
    }
}
