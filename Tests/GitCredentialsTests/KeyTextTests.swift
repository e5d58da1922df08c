import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import GitCredentials

@Suite("Private keys", .timeLimit(.minutes(2))) struct KeyTextTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// The public key as the file beside it has it.
    private func blob(_ key: SSHKeyPair) -> [UInt8]? {
        key.publicKey.split(separator: " ").last.flatMap { Data(base64Encoded: String($0)) }.map { Array($0) }
    }

    @Test func keysOfSSHKeygenAreTold() throws {
        for type in ["ed25519", "ecdsa-256", "ecdsa-384", "ecdsa-521"] {
            let key = try SSHKeyPair.make(type: type, in: directory.path)
            #expect(BuiltInSSHKeyText(key.privateKey) == .usable(publicKey: blob(key)))
            let locked = try SSHKeyPair.make(type: type, passphrase: "secret", in: directory.path)
            #expect(BuiltInSSHKeyText(locked.privateKey) == .encrypted)
        }
        #expect(BuiltInSSHKeyText(try SSHKeyPair.make(type: "rsa-2048", in: directory.path).privateKey) == .rsa)
        for (type, format, passphrase, kind) in [
            ("rsa-2048", "PEM", "", BuiltInSSHKeyText.rsa), ("rsa-2048", "PEM", "secret", .rsa),
            ("ecdsa-256", "PEM", "", .usable(publicKey: nil)), ("ecdsa-256", "PEM", "secret", .encrypted),
            ("ecdsa-256", "PKCS8", "", .usable(publicKey: nil)), ("ecdsa-256", "PKCS8", "secret", .encrypted),
        ] {
            let key = try SSHKeyPair.make(type: type, in: directory.path)
            let changed = try CommandResult.of([
                "ssh-keygen", "-q", "-p", "-m", format, "-N", passphrase, "-f", key.path,
            ])
            #expect(changed.code == 0, "\(changed.errors)")
            #expect(BuiltInSSHKeyText(ProcFS.text(key.path)) == kind, "\(type) \(format)")
        }
    }

    @Test func otherTextsAreNoKeys() throws {
        let key = try SSHKeyPair.make(type: "ed25519", in: directory.path).privateKey
        let lines = key.split(separator: "\n")
        let texts = ["", "x", "\(lines[0])\n\(lines[lines.count - 1])", lines.dropLast().joined(separator: "\n")]
        for text in texts { #expect(BuiltInSSHKeyText(text) == .unknown, "\(text)") }
        // Cut anywhere, it does not trap.
        let bytes = Array(Data(base64Encoded: lines.dropFirst().dropLast().joined()) ?? Data())
        for count in bytes.indices {
            let text = [
                String(lines[0]), Data(bytes.prefix(count)).base64EncodedString(), String(lines[lines.count - 1]),
            ]
            _ = BuiltInSSHKeyText(text.joined(separator: "\n"))
        }
    }

    /// Which files are tried, and what is said of the others.
    @Test func filesOfOthersAndForOthersAreLeftOut() throws {
        let key = try SSHKeyPair.make(type: "ed25519", in: directory.path)
        var keys = BuiltInSSHKeys()
        keys.add(file: key.path, isNamed: true)
        keys.add(file: key.path, isNamed: true)
        #expect(keys.keys.count == 1 && keys.notes == [])
        keys = BuiltInSSHKeys()
        chmod(key.path, 0o644)
        keys.add(file: key.path, isNamed: true)
        keys.add(file: "\(directory.path)/none", isNamed: false)
        keys.add(file: "\(directory.path)/none", isNamed: true)
        mkfifo("\(directory.path)/pipe", 0o600)
        keys.add(file: "\(directory.path)/pipe", isNamed: false)
        #expect(keys.keys.isEmpty)
        let reasons = ["run chmod 600", "No such file or directory", "is a named pipe"]
        #expect(keys.notes.count == reasons.count)
        for (note, reason) in zip(keys.notes, reasons) { #expect(note.contains(reason), "\(note)") }
    }

    @Test func theControlPlanesKeyIsUsedUnlessItIsRSA() throws {
        for (type, isUsed) in [("ed25519", true), ("ecdsa-256", true), ("rsa-2048", false)] {
            let pair = try SSHKeyPair.make(type: type, in: directory.path)
            for publicKey in [pair.publicKey, ""] {
                var keys = BuiltInSSHKeys()
                let key = keys.ofControlPlane(GitKey(publicKey: publicKey, privateKey: Secret(pair.privateKey)))
                #expect((key != nil) == isUsed && keys.notes.isEmpty == isUsed, "\(type) \(keys.notes)")
            }
        }
    }
}
