import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import GitCredentials

@Suite("Known hosts", .timeLimit(.minutes(2))) struct KnownHostsTests {
    private typealias Key = KnownHosts.HostKey

    /// A key that a server could have: its fields are of no use otherwise.
    private static func key(_ type: String, _ content: String) -> Key {
        let fields = [type, content].map { text in [0, 0, 0, UInt8(text.utf8.count)] + Array(text.utf8) }
        return Key(type: type, base64: Data(fields.joined()).base64EncodedString())
    }

    private static let old = key("ssh-ed25519", "old")
    private static let new = key("ssh-ed25519", "new")
    private static let p256 = key("ecdsa-sha2-nistp256", "x")
    private static let p384 = key("ecdsa-sha2-nistp384", "x")

    private static func line(_ names: String, _ key: Key, _ rest: String = "") -> String {
        "\(names) \(key.type) \(key.base64)\(rest)"
    }

    private enum Expected: Equatable { case known, unknown, changed(Int), revoked(Int) }

    private static func verdict(_ text: String, _ host: String, _ port: UInt16?, _ key: Key) -> Expected {
        var hosts = KnownHosts { _, _, _ in false }
        hosts.add(Array(text.utf8), file: "f")
        switch hosts.verdict(on: key, of: host, port: port) {
        case .known: return .known
        case .unknown: return .unknown
        case .changed(let entry): return .changed(entry.line)
        case .revoked(let entry): return .revoked(entry.line)
        }
    }

    @Test func verdictsFollowOpenSSH() {
        let (old, new) = (Self.old, Self.new)
        let cases: [(text: String, host: String, port: UInt16?, key: Key, expected: Expected)] = [
            ("", "h", 22, new, .unknown),
            (Self.line("h", new), "h", 22, new, .known),
            (Self.line("h", new, " a comment"), "H", 22, new, .known),
            (Self.line("H.Example", new), "h.example", 22, new, .known),
            ("\n# h\n" + Self.line("h", old), "h", 22, new, .changed(3)),
            (Self.line("h", old) + "\n" + Self.line("h", new), "h", 22, new, .known),
            (Self.line("h", new) + "\r\n", "h", 22, new, .known),
            ("  \t" + Self.line("h", new), "h", 22, new, .known),
            // Types.
            (Self.line("h", Self.p256), "h", 22, new, .changed(1)),
            (Self.line("h", Self.p256) + "\n" + Self.line("h", old), "h", 22, new, .changed(2)),
            (Self.line("h", Self.p256), "h", 23, new, .unknown),
            (Self.line("h", Self.p256), "h", 22, Self.p384, .changed(1)),
            // Lists, patterns and what is taken out of them.
            (Self.line("a,h,b", new), "h", 22, new, .known),
            (Self.line("*.example", new), "h.example", 22, new, .known),
            (Self.line("*.example,!h.example", new), "h.example", 22, new, .unknown),
            (Self.line("!h.example,*.example", new), "h.example", 22, new, .unknown),
            (Self.line("?", new), "hh", 22, new, .unknown),
            // Ports.
            (Self.line("[h]:23", new), "h", 23, new, .known),
            (Self.line("[h]:23", new), "h", 22, new, .unknown),
            (Self.line("[h]:24", new), "h", 23, new, .unknown),
            (Self.line("h", new), "h", 23, new, .known),
            (Self.line("h", old), "h", 23, new, .unknown),
            (Self.line("[h]:23", old) + "\n" + Self.line("h", new), "h", 23, new, .changed(1)),
            (Self.line("alias", new), "alias", nil, new, .known),
            (Self.line("::1", new), "::1", 22, new, .known),
            (Self.line("[::1]:23", new), "::1", 23, new, .known),
            // Markers.
            ("@revoked " + Self.line("*", new) + "\n" + Self.line("h", new), "h", 22, new, .revoked(1)),
            (Self.line("h", new) + "\n@revoked " + Self.line("h", new), "h", 23, new, .revoked(2)),
            ("@revoked " + Self.line("h", old) + "\n" + Self.line("h", new), "h", 22, new, .known),
            ("@revoked " + Self.line("h", old), "h", 22, new, .unknown),
            ("@cert-authority " + Self.line("h", new), "h", 22, new, .unknown),
            ("@cert-authority " + Self.line("h", old), "h", 22, new, .unknown),
            // Lines that say nothing.
            ("h ssh-ed25519", "h", 22, new, .unknown), ("h", "h", 22, new, .unknown),
            ("h ssh-ed25519 AAAA", "h", 22, new, .unknown), ("h ssh-ed25519 !", "h", 22, new, .unknown),
            ("h ssh-rsa \(new.base64)", "h", 22, new, .unknown), ("# " + Self.line("h", new), "h", 22, new, .unknown),
            ("|1|AAAA " + "ssh-ed25519 \(new.base64)", "h", 22, new, .unknown),
            ("h 1024 35 12345", "h", 22, new, .unknown),
            ("h ssh-ed25519 \(old.base64.dropLast(4))", "h", 22, new, .unknown),
        ]
        for (text, host, port, key, expected) in cases {
            #expect(Self.verdict(text, host, port, key) == expected, "\(text) \(host) \(port ?? 0)")
        }
    }

    @Test func typesOfKnownKeysComeFirst() {
        var hosts = KnownHosts { _, _, _ in false }
        hosts.add(
            Array(
                (Self.line("[h]:23", Self.p384) + "\n" + Self.line("h", Self.new) + "\n@revoked "
                    + Self.line("h", Self.p256)).utf8),
            file: "f")
        #expect(hosts.types(of: "h", port: 23) == ["ecdsa-sha2-nistp384"])
        #expect(hosts.types(of: "h", port: 24) == [])
        #expect(hosts.types(of: "H", port: nil) == ["ssh-ed25519"])
        #expect(hosts.types(of: "i", port: 22) == [])
    }

    /// Random files, of which ssh-keygen says which lines are for a name.
    @Test func linesForANameAreThoseOfSSHKeygen() throws {
        var generator = SeededGenerator("known hosts")
        let directory = try TemporaryDirectory()
        let session = try BuiltInSSHSession(BuiltInSSHLibrary(), server: "none")
        defer { withExtendedLifetime(session) {} }
        let keys = try ["ed25519", "ecdsa-256", "ecdsa-384"].map {
            try SSHKeyPair.make(type: $0, in: directory.path).publicKey
        }
        let names = [
            "a", "b", "ab", "a.b", "[a]:23", "[b]:23", "*", "*b", "a*", "?", "a?", "!a", "!*b", "A.B", "::1", "*.b",
            "[*]:23",
        ]
        var found = 0
        for round in 0..<25 {
            let path = "\(directory.path)/\(round)"
            for part in ["plain", "hashed"] {
                let lines = (0..<Int.random(in: 0...6, using: &generator)).map { _ in
                    let count = Int.random(in: 1...3, using: &generator)
                    let list = (0..<count).compactMap { _ in names.randomElement(using: &generator) }
                    let key = keys.randomElement(using: &generator) ?? ""
                    return [list.joined(separator: ","), key].joined(
                        separator: Bool.random(using: &generator) ? " " : "\t")
                }
                try Data((lines.map { $0 + "\n" } + ["# a comment\n", "\n"]).joined().utf8).write(
                    to: URL(fileURLWithPath: "\(path).\(part)"))
            }
            let hashed = try CommandResult.of(["ssh-keygen", "-H", "-f", "\(path).hashed"])
            #expect(hashed.code == 0, "\(hashed.errors)")
            let text = ProcFS.text("\(path).plain") + ProcFS.text("\(path).hashed")
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            var hosts = KnownHosts(matchesHash: session.library.matchesHash(session.pointer))
            hosts.add(Array(text.utf8), file: path)
            for name in ["a", "b", "ab", "a.b", "[a]:23", "[b]:23", "::1", "c"] {
                let theirs = try CommandResult.of(["ssh-keygen", "-F", name, "-f", path]).output.split(separator: "\n")
                    .filter { $0.hasPrefix("# Host ") }
                    .compactMap { $0.split(separator: " ").last.flatMap { Int($0) } }
                #expect(hosts.entries(of: name).map(\.line) == theirs, "\(name) in\n\(text)")
                found += theirs.count
            }
        }
        #expect(found > 100)
    }
}

@Suite("Known hosts files", .timeLimit(.minutes(2))) struct KnownHostsFilesTests {
    private let directory: TemporaryDirectory
    private var path: String { "\(directory.path)/.ssh/known_hosts" }

    init() throws { directory = try TemporaryDirectory() }

    private func mode(_ path: String) -> mode_t {
        var info = stat()
        return stat(path, &info) == 0 ? info.st_mode & 0o7777 : 0
    }

    private func read() throws -> KnownHosts {
        var arguments = try SSHArguments(["h"])
        arguments.globalKnownHosts = ["none"]
        let files = try KnownHostsFiles(arguments, BuiltInSSHUser(environment: ["HOME": directory.path]))
        return try files.read { _, _, _ in false }
    }

    @Test func aFileIsMadeAndItsLastLineEnded() throws {
        try KnownHostsFiles.append("one", to: path)
        #expect(mode(path) == 0o600 && mode("\(directory.path)/.ssh") == 0o700)
        try KnownHostsFiles.append("two", to: path)
        #expect(ProcFS.text(path) == "one\ntwo\n")
        try Data("three".utf8).write(to: URL(fileURLWithPath: path))
        try KnownHostsFiles.append("four", to: path)
        #expect(ProcFS.text(path) == "three\nfour\n")
    }

    @Test func aLinkOfTheUsersIsFollowed() throws {
        mkdir("\(directory.path)/.ssh", 0o700)
        symlink("\(directory.path)/elsewhere", path)
        try Data("one\n".utf8).write(to: URL(fileURLWithPath: "\(directory.path)/elsewhere"))
        try KnownHostsFiles.append("two", to: path)
        #expect(ProcFS.text("\(directory.path)/elsewhere") == "one\ntwo\n")
        _ = try read()
    }

    @Test func whatIsNoFileIsNeitherWrittenNorWaitedFor() throws {
        mkdir("\(directory.path)/.ssh", 0o700)
        mkfifo(path, 0o600)
        #expect(throws: (any Error).self) { try KnownHostsFiles.append("one", to: path) }
        var failure = #expect(throws: BuiltInSSHFailure.self) { _ = try read() }
        #expect(
            failure?.lines.first == "cannot tell which host keys are known: \(path) is a named pipe, not a regular file"
        )
        unlink(path)
        mkdir(path, 0o700)
        failure = #expect(throws: BuiltInSSHFailure.self) { _ = try read() }
        #expect(failure?.lines.first?.hasSuffix("\(path) is a directory, not a regular file") == true)
        rmdir(path)
        _ = try read()
    }

    @Test func aHugeFileIsRefused() throws {
        mkdir("\(directory.path)/.ssh", 0o700)
        try Data().write(to: URL(fileURLWithPath: path))
        truncate(path, 16 << 20)
        _ = try read()
        truncate(path, 16 << 20 + 1)
        let failure = #expect(throws: BuiltInSSHFailure.self) { _ = try read() }
        #expect(failure?.lines.first?.hasSuffix("\(path) is larger than 16777216 bytes") == true)
    }
}
