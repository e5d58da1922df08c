import AgentCore
import CSSH2
import FoundationEssentials
import Glibc

/// What the text of a private key is, by its first lines.
enum BuiltInSSHKeyText: Equatable {
    /// With its public key, where the format has that in the clear.
    case usable(publicKey: [UInt8]?)
    case encrypted
    /// libssh2 makes RSA signatures with SHA-1, which servers refuse.
    case rsa
    case unknown

    init(_ text: String) {
        let markers: [(String, Self)] = [
            ("-----BEGIN RSA PRIVATE KEY-----", .rsa), ("-----BEGIN ENCRYPTED PRIVATE KEY-----", .encrypted),
            ("-----BEGIN EC PRIVATE KEY-----", .usable(publicKey: nil)),
            ("-----BEGIN PRIVATE KEY-----", .usable(publicKey: nil)),
        ]
        let begin = "-----BEGIN OPENSSH PRIVATE KEY-----"
        if let (marker, kind) = markers.first(where: { text.contains($0.0) }) {
            // In the lines behind the marker.
            self = text.contains("Proc-Type: 4,ENCRYPTED") && marker != markers[0].0 ? .encrypted : kind
        } else if let start = text.firstRange(of: begin)?.upperBound,
            let end = text[start...].firstRange(of: "-----END")?.lowerBound,
            let data = Data(base64Encoded: String(text[start..<end].filter { !$0.isWhitespace }))
        {
            self = Self.openSSH(Array(data))
        } else {
            self = .unknown
        }
    }

    /// `openssh-key-v1`, a NUL, then the names of cipher and derivation, its options, the number of keys, public keys.
    private static func openSSH(_ bytes: [UInt8]) -> Self {
        let magic = Array("openssh-key-v1".utf8) + [0]
        guard bytes.starts(with: magic) else { return .unknown }
        var rest = bytes.dropFirst(magic.count)
        guard let cipher = SSHFields.next(&rest), SSHFields.next(&rest) != nil, SSHFields.next(&rest) != nil,
            rest.count >= 4
        else { return .unknown }
        rest = rest.dropFirst(4)
        guard let key = SSHFields.next(&rest) else { return .unknown }
        var fields = key
        guard let type = SSHFields.next(&fields).map({ String(decoding: $0, as: UTF8.self) }) else { return .unknown }
        if type == "ssh-rsa" { return .rsa }
        guard BuiltInSSHKeys.types.contains(type) else { return .unknown }
        return cipher.elementsEqual("none".utf8) ? .usable(publicKey: Array(key)) : .encrypted
    }
}

/// A key to log in with.
struct BuiltInSSHKey {
    enum Material {
        /// One that the user's agent signs with; valid as long as the agent's list.
        case agent(UnsafeMutablePointer<libssh2_agent_publickey>)
        case memory(Secret<String>)
    }

    /// For messages.
    let name: String
    let material: Material
}

/// The keys that a user may have, in the order in which they are tried.
struct BuiltInSSHKeys {
    /// Those that libssh2 signs with as servers want it.
    static let types: Set<String> = [
        "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    ]
    /// Bytes of a file with a key.
    private static let limit = 64 << 10

    private(set) var keys: [BuiltInSSHKey] = []
    /// Why others are not tried: said when no key was accepted.
    private(set) var notes: [String] = []
    /// Public keys of those that are tried: an agent often has the same ones as the files.
    private var seen: Set<[UInt8]> = []

    /// Adds the keys of the agent.
    mutating func add(_ agent: BuiltInSSHAgent) {
        for identity in agent.identities {
            let comment = identity.pointee.comment.map { String(cString: $0) } ?? ""
            guard let start = identity.pointee.blob else { continue }
            let blob = Array(UnsafeRawBufferPointer(start: start, count: identity.pointee.blob_len))
            let type = SSHFields.all(blob)?.first.map { String(decoding: $0, as: UTF8.self) } ?? "unknown"
            guard Self.types.contains(type) else {
                notes.append("the agent's key \(comment) was not tried: \(Self.cannotUse(type))")
                continue
            }
            guard seen.insert(blob).inserted else { continue }
            keys.append(BuiltInSSHKey(name: "the agent's key \(comment)", material: .agent(identity)))
        }
    }

    /// Adds the key in a file.
    /// - Parameter isNamed: by the user, who is told when it is missing.
    mutating func add(file path: String, isNamed: Bool) {
        let text: String
        do {
            let (bytes, isOpenToOthers) = try OwnFile.readNamed(path, limit: Self.limit)
            // As ssh has it: of another owner's file, such as a mounted secret, the mode is not the user's affair.
            var info = stat()
            let isOwn = stat(path, &info) == 0 && info.st_uid == geteuid()
            guard !isOwn || !isOpenToOthers else {
                notes.append("the key \(path) was not tried: other users may read it; run chmod 600 \(path)")
                return
            }
            text = String(decoding: bytes, as: UTF8.self)
        } catch {
            if isNamed || error.code != .system(ENOENT) && error.code != .system(ENOTDIR) {
                notes.append("the key \(path) was not tried: \(error)")
            }
            return
        }
        switch BuiltInSSHKeyText(text) {
        case .usable(let publicKey):
            if let publicKey, !seen.insert(publicKey).inserted { return }
            keys.append(BuiltInSSHKey(name: "the key \(path)", material: .memory(Secret(text))))
        case .encrypted: notes.append("the key \(path) was not tried: it has a passphrase; run ssh-add \(path)")
        case .rsa: notes.append("the key \(path) was not tried: \(Self.cannotUse("ssh-rsa"))")
        case .unknown:
            notes.append("the key \(path) was not tried: it holds no private key of a type that is known here")
        }
    }

    mutating func note(_ note: String) { notes.append(note) }

    private static func cannotUse(_ type: String) -> String {
        "the built-in ssh client cannot use keys of the type \(type); \(BuiltInSSHFailure.remedy)"
    }

    /// The control plane's key; nil when it cannot be used, which is then noted.
    mutating func ofControlPlane(_ key: GitKey?) -> BuiltInSSHKey? {
        guard let key else { return nil }
        let name = "the key from the control plane"
        let type = String(key.publicKey.prefix { $0 != " " })
        switch type == "ssh-rsa" ? .rsa : BuiltInSSHKeyText(key.privateKey.reveal()) {
        case .usable: return BuiltInSSHKey(name: name, material: .memory(key.privateKey))
        case .encrypted: notes.append("\(name) was not tried: it has a passphrase")
        case .rsa: notes.append("\(name) was not tried: \(Self.cannotUse("ssh-rsa"))")
        case .unknown: notes.append("\(name) was not tried: it is of no type that is known here")
        }
        return nil
    }
}

/// The user's ssh-agent and its keys, which are there as long as this is.
final class BuiltInSSHAgent {
    fileprivate private(set) var identities: [UnsafeMutablePointer<libssh2_agent_publickey>] = []
    private let pointer: OpaquePointer
    private let session: BuiltInSSHSession

    /// nil when none answers at the socket.
    init?(_ session: BuiltInSSHSession, socket: String) {
        let functions = session.functions
        guard let pointer = functions.libssh2_agent_init(session.pointer) else { return nil }
        (self.pointer, self.session) = (pointer, session)
        functions.libssh2_agent_set_identity_path(pointer, socket)
        guard functions.libssh2_agent_connect(pointer) == 0, functions.libssh2_agent_list_identities(pointer) == 0
        else {
            return nil
        }
        var last: UnsafeMutablePointer<libssh2_agent_publickey>?
        var next: UnsafeMutablePointer<libssh2_agent_publickey>?
        while functions.libssh2_agent_get_identity(pointer, &next, last) == 0, let identity = next {
            identities.append(identity)
            last = identity
        }
    }

    deinit {
        _ = session.functions.libssh2_agent_disconnect(pointer)
        session.functions.libssh2_agent_free(pointer)
    }

    /// As libssh2's functions to log in.
    func logIn(_ user: String, _ identity: UnsafeMutablePointer<libssh2_agent_publickey>) -> CInt {
        session.functions.libssh2_agent_userauth(pointer, user, identity)
    }
}
