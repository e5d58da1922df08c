import Sodium

/// The state that both ends of a handshake share step by step: Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s (whitepaper, 5.4.2
/// and 5.4.3). An operation that answers nil leaves a state that is of no more use.
struct Noise: Sendable {
    static let initialChain = KeyDerivation.hash(Array("Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s".utf8))
    static let initialHash = KeyDerivation.hash(initialChain, Array("WireGuard v1 zx2c4 Jason@zx2c4.com".utf8))

    private(set) var chain: SecretBytes
    private(set) var hash: [UInt8]

    init(responder: PublicKey) {
        chain = SecretBytes(Self.initialChain)
        hash = KeyDerivation.hash(Self.initialHash, responder.bytes)
    }

    private mutating func mix(_ bytes: [UInt8]) { hash = KeyDerivation.hash(hash, bytes) }

    private mutating func mix(_ secret: SecretBytes) { chain = secret.withBytes { KeyDerivation.kdf1(key: chain, $0) } }

    private mutating func key(mixing secret: SecretBytes) -> SecretBytes {
        let key: SecretBytes
        (chain, key) = secret.withBytes { KeyDerivation.kdf2(key: chain, $0) }
        return key
    }

    private mutating func mix(ephemeral key: PublicKey) {
        chain = key.withBytes { KeyDerivation.kdf1(key: chain, $0) }
        mix(key.bytes)
    }

    private mutating func seal(_ plain: [UInt8], key: SecretBytes) -> [UInt8]? {
        var sealed = plain + [UInt8](repeating: 0, count: AEAD.tagCount)
        let isSealed = sealed.withUnsafeMutableBytes { area in
            hash.withUnsafeBytes {
                AEAD.seal(.init(rebasing: area[..<plain.count]), into: area, counter: 0, aad: $0, key: key)
            }
        }
        guard isSealed else { return nil }
        mix(sealed)
        return sealed
    }

    private mutating func open(_ sealed: [UInt8], key: SecretBytes) -> [UInt8]? {
        guard sealed.count >= AEAD.tagCount else { return nil }
        var plain = [UInt8](repeating: 0, count: sealed.count - AEAD.tagCount)
        let isOpen = plain.withUnsafeMutableBytes { plain in
            hash.withUnsafeBytes { hash in
                sealed.withUnsafeBytes { AEAD.open($0, into: plain, counter: 0, aad: hash, key: key) }
            }
        }
        guard isOpen else { return nil }
        mix(sealed)
        return plain
    }

    // MARK: Initiation

    /// What an initiation says, before its MACs, and the state that its answer needs.
    static func initiation(
        from own: PublicKey, to peer: PublicKey, statics: SecretBytes, ephemeral: PrivateKey, index: UInt32,
        time: TAI64N
    ) -> (message: [UInt8], state: Noise)? {
        var noise = Noise(responder: peer)
        noise.mix(ephemeral: ephemeral.publicKey)
        guard let shared = ephemeral.shared(with: peer),
            let identity = noise.seal(own.bytes, key: noise.key(mixing: shared)),
            let stamp = noise.seal(time.bytes, key: noise.key(mixing: statics))
        else { return nil }
        let head = Message.bytes(Message.initiation, index) + ephemeral.publicKey.bytes
        return (head + identity + stamp, noise)
    }

    /// Reads who sent an initiation; of at least 88 bytes.
    static func initiator(
        of message: [UInt8], own: PrivateKey
    ) throws(DropReason) -> (peer: PublicKey, ephemeral: PublicKey, state: Noise) {
        var noise = Noise(responder: own.publicKey)
        guard message.count >= 88, let ephemeral = PublicKey(message[8..<40]) else { throw .malformed }
        noise.mix(ephemeral: ephemeral)
        guard let shared = own.shared(with: ephemeral) else { throw .lowOrderKey }
        guard let identity = noise.open(Array(message[40..<88]), key: noise.key(mixing: shared)),
            let peer = PublicKey(identity)
        else { throw .notAuthentic }
        return (peer, ephemeral, noise)
    }

    /// Reads the time of an initiation whose sender is known; of at least 116 bytes.
    mutating func time(of message: [UInt8], statics: SecretBytes) -> TAI64N? {
        guard message.count >= 116 else { return nil }
        return open(Array(message[88..<116]), key: key(mixing: statics)).flatMap { TAI64N($0) }
    }

    // MARK: Response

    /// What a response says, before its MACs, to the initiation that this state comes from.
    mutating func response(
        to peer: PublicKey, itsEphemeral: PublicKey, preshared: SecretBytes, ephemeral: PrivateKey, index: UInt32,
        receiver: UInt32
    ) -> [UInt8]? {
        mix(ephemeral: ephemeral.publicKey)
        guard let one = ephemeral.shared(with: itsEphemeral), let two = ephemeral.shared(with: peer) else {
            return nil
        }
        mix(one)
        mix(two)
        guard let empty = seal([], key: key(preshared: preshared)) else { return nil }
        return Message.bytes(Message.response, index, receiver) + ephemeral.publicKey.bytes + empty
    }

    /// Takes a response to the initiation that this state comes from; of at least 60 bytes.
    mutating func take(
        response message: [UInt8], own: PrivateKey, ephemeral: PrivateKey, preshared: SecretBytes
    ) throws(DropReason) {
        guard message.count >= 60, let itsEphemeral = PublicKey(message[12..<44]) else { throw .malformed }
        mix(ephemeral: itsEphemeral)
        guard let one = ephemeral.shared(with: itsEphemeral), let two = own.shared(with: itsEphemeral) else {
            throw .lowOrderKey
        }
        mix(one)
        mix(two)
        guard open(Array(message[44..<60]), key: key(preshared: preshared)) != nil else { throw .notAuthentic }
    }

    private mutating func key(preshared: SecretBytes) -> SecretBytes {
        let (next, mixed, key) = preshared.withBytes { KeyDerivation.kdf3(key: chain, $0) }
        chain = next
        mix(mixed.withBytes { Array($0) })
        return key
    }

    /// The keys for what the initiator sends and for what the responder sends, once the handshake is complete.
    func transportKeys() -> (initiator: SecretBytes, responder: SecretBytes) {
        KeyDerivation.kdf2(key: chain, UnsafeRawBufferPointer(start: nil, count: 0))
    }
}
