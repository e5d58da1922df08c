import FoundationEssentials

/// The host keys that known_hosts files hold, by OpenSSH's rules. No I/O: bytes go in, a verdict comes out.
struct KnownHosts {
    /// A key as the files and the protocol have it.
    struct HostKey: Equatable {
        /// `ssh-ed25519`, `ecdsa-sha2-nistp256` …
        var type: String
        /// The public key in base64.
        var base64: String

        /// The public key; nil when the text is none of this type.
        var blob: [UInt8]? {
            guard let data = Data(base64Encoded: base64) else { return nil }
            let blob = Array(data)
            guard let fields = SSHFields.all(blob), fields.count > 1, fields[0].elementsEqual(type.utf8) else {
                return nil
            }
            return blob
        }
    }

    /// A line of a file.
    struct Entry: Equatable {
        var key: HostKey
        var isRevoked: Bool
        var file: String
        /// From 1.
        var line: Int
        /// The names as the file has them.
        fileprivate var names: String

        var place: String { "\(file):\(line)" }
    }

    enum Verdict: Equatable {
        case known
        /// No key is known for the host.
        case unknown
        /// Only others are: of the same type, or else of another. A server that shows a new type may be another machine.
        case changed(Entry)
        case revoked(Entry)
    }

    /// Whether a host's name is the one behind a salt and a hash, both in base64. HMAC-SHA1 is not ours to compute.
    typealias HashTest = (_ name: String, _ salt: String, _ hash: String) -> Bool

    private var entries: [Entry] = []
    private let matchesHash: HashTest

    init(matchesHash: @escaping HashTest) { self.matchesHash = matchesHash }

    /// Adds a file's lines. Those without a name and a key are skipped, and so are authorities of certificates, which
    /// are not known here.
    mutating func add(_ bytes: [UInt8], file: String) {
        for (index, line) in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            var fields = line.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: "\r") }[
                ...]
            let isRevoked = fields.first.map { $0.elementsEqual("@revoked".utf8) } ?? false
            if isRevoked { fields.removeFirst() }
            guard fields.count >= 3 else { continue }
            let texts = fields.prefix(3).map { String(decoding: $0, as: UTF8.self) }
            let key = HostKey(type: texts[1], base64: texts[2])
            guard !texts[0].hasPrefix("@"), !texts[0].hasPrefix("#"), key.blob != nil else { continue }
            entries.append(Entry(key: key, isRevoked: isRevoked, file: file, line: index + 1, names: texts[0]))
        }
    }

    /// What is known of the key that a host has shown.
    /// - Parameters:
    ///   - host: its name or address; an alias has no port (nil).
    func verdict(on key: HostKey, of host: String, port: UInt16?) -> Verdict {
        let bare = host.lowercased()
        let name = Self.name(host, port: port)
        // OpenSSH looks at the bare name only where it knows no key for the port. A revoked key is bad at each of them.
        let revoked = entries.filter { $0.isRevoked && $0.key == key }
        if let entry = revoked.first(where: { matches($0, name) || matches($0, bare) }) { return .revoked(entry) }
        let verdict = verdict(on: key, name)
        // A server that moved to another port, or has several, shows the same key.
        guard verdict == .unknown, name != bare else { return verdict }
        return self.verdict(on: key, bare) == .known ? .known : .unknown
    }

    private func verdict(on key: HostKey, _ name: String) -> Verdict {
        let known = entries(of: name)
        if known.contains(where: { $0.key == key }) { return .known }
        return (known.first { $0.key.type == key.type } ?? known.first).map { .changed($0) } ?? .unknown
    }

    /// The types of the host's known keys, in the order of the files.
    func types(of host: String, port: UInt16?) -> [String] {
        entries(of: Self.name(host, port: port)).map(\.key.type)
    }

    /// The keys that are known under a name, but for revoked ones.
    func entries(of name: String) -> [Entry] { entries.filter { !$0.isRevoked && matches($0, name) } }

    /// A host's name in the files.
    static func name(_ host: String, port: UInt16?) -> String {
        guard let port, port != 22 else { return host.lowercased() }
        return "[\(host.lowercased())]:\(port)"
    }

    private func matches(_ entry: Entry, _ name: String) -> Bool {
        guard entry.names.hasPrefix("|") else { return WildcardPattern.matches(list: entry.names, name) }
        let parts = entry.names.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 4, parts[1] == "1" else { return false }
        return matchesHash(name, parts[2], parts[3])
    }
}
