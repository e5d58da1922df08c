import CSSH2
import FoundationEssentials

/// libssh2, loaded when it is first needed.
struct BuiltInSSHLibrary {
    let functions: ssh2_api

    /// - Throws: ``BuiltInSSHFailure`` when it is not installed.
    init() throws(BuiltInSSHFailure) {
        var why = [CChar](repeating: 0, count: 256)
        guard let loaded = ssh2_load(&why, why.count) else {
            let reason = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw BuiltInSSHFailure(
                "there is no ssh program, and the built-in ssh client cannot load libssh2: \(reason)",
                "install openssh-client, or libssh2-1")
        }
        functions = loaded.pointee
    }

    var version: String { functions.libssh2_version(0).map { String(cString: $0) } ?? "of unknown version" }

    /// Tests a hashed name of known_hosts: looks for it in a list of that one entry. The key of both is of no interest.
    func matchesHash(_ session: OpaquePointer) -> KnownHosts.HashTest {
        { name, salt, hash in
            let key = "AAAA"
            guard let list = functions.libssh2_knownhost_init(session) else { return false }
            defer { functions.libssh2_knownhost_free(list) }
            let kind = LIBSSH2_KNOWNHOST_KEYENC_BASE64 | LIBSSH2_KNOWNHOST_KEY_ED25519
            guard
                functions.libssh2_knownhost_add(
                    list, hash, salt, key, key.utf8.count, LIBSSH2_KNOWNHOST_TYPE_SHA1 | kind, nil) == 0
            else { return false }
            return functions.libssh2_knownhost_check(
                list, name, key, key.utf8.count, LIBSSH2_KNOWNHOST_TYPE_PLAIN | kind, nil)
                == LIBSSH2_KNOWNHOST_CHECK_MATCH
        }
    }

    /// A key's fingerprint as OpenSSH prints it; nil where libssh2 uses a library without OpenSSL's functions.
    static func fingerprint(_ blob: [UInt8]) -> String? {
        var digest = [UInt8](repeating: 0, count: 32)
        guard ssh2_sha256(blob, blob.count, &digest) else { return nil }
        return fingerprint(digest: digest)
    }

    static func fingerprint(digest: [UInt8]) -> String {
        "SHA256:\(Data(digest).base64EncodedString().prefix { $0 != "=" })"
    }
}
