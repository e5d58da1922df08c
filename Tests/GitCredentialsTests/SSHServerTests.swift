import AgentTestSupport
import Testing

@testable import GitCredentials

@Suite("A real sshd", .timeLimit(.minutes(2))) struct SSHServerTests {
    @Test(arguments: ["ed25519", "ecdsa-384", "rsa-2048"])
    func letsAKeyInAndSaysWhich(type: String) async throws {
        let directory = try TemporaryDirectory()
        let key = try SSHKeyPair.make(type: type, in: directory.path)
        let server = try await SSHServer(hostKeys: [type], authorized: [key.publicKey])
        defer { server.stop() }
        let result = try CommandResult.of([
            "ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-i", key.path,
            "-p", "\(server.port)", "\(server.user)@127.0.0.1", "echo there",
        ])
        #expect(result.code == 0 && result.output == "there\n", "\(result.errors)")
        try await server.logged(key.fingerprint)
        #expect(server.hostKeyLines[0].hasPrefix("[127.0.0.1]:\(server.port) "))
    }
}
