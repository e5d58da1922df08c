import AgentTestSupport
import Glibc
import Testing

/// Who may use the agent socket, with real users.
@Suite(.serialized, .blocking) struct AgentSocketPeerTests {
    private func ping(_ daemon: DaemonProcess, as wrapper: [String] = []) throws -> CommandResult {
        try CommandResult.of(
            wrapper + [DaemonProcess.binary, "sync", "ping", "--socket-path", "\(daemon.directory.path)/agent.sock"])
    }

    @Test(.enabled(if: Privileges.isRoot, "needs root, to become another user"))
    func aClientOfAnotherUserIsRefused() async throws {
        let daemon = try DaemonProcess()
        let path = "\(daemon.directory.path)/agent.sock"
        let refused = #"agent_socket_connections_total{result="refused_peer"}"#
        let shut = try ping(daemon, as: Privileges.asNobody)
        #expect(shut.errors.hasPrefix("cannot connect to \(path): Permission denied; "), "the file's mode")
        #expect(try daemon.metric(refused) ?? 0 == 0)

        // From here on the kernel lets everybody connect; only the check of credentials refuses.
        #expect(chmod(path, 0o666) == 0)
        let stranger = try ping(daemon, as: Privileges.asNobody)
        #expect(stranger.code == 1)
        #expect(stranger.errors.hasPrefix("lost the agent at \(path): "))
        #expect(stranger.output == "")
        #expect(try daemon.metric(refused) == 1)
        let log = try await daemon.logged("refused a connection of another user to the agent socket")
        #expect(log.contains("uid=\(Privileges.nobody)"))
        #expect(try ping(daemon).output == "Success\n", "its own user")
        #expect(try await daemon.stop() == 0)
    }

    @Test(.enabled(if: Privileges.isRoot, "needs root, to become another user"))
    func rootMayUseTheSocketOfAnybody() async throws {
        let daemon = try DaemonProcess(wrapper: Privileges.asNobody, directory: Privileges.directoryOfNobody())
        let path = "\(daemon.directory.path)/agent.sock"
        // The daemon takes root for its own user; our client, as root, does not trust another user's daemon.
        let accepted = #"agent_socket_connections_total{result="accepted"}"#
        let root = try RawConnection(unix: path)
        try await eventually("root is accepted") { try daemon.metric(accepted) == 1 }
        let refused = try ping(daemon)
        #expect(refused.code == 1)
        #expect(refused.errors.contains("is served by uid \(Privileges.nobody), neither you nor root"))
        withExtendedLifetime(root) {}
        #expect(try ping(daemon, as: Privileges.asNobody).output == "Success\n")
        #expect(chmod("\(daemon.directory.path)/agent.sock", 0o666) == 0)
        let third = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]
        #expect(try ping(daemon, as: third).code == 1)
        #expect(try await daemon.stop() == 0)
    }
}
