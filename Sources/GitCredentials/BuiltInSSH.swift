import AgentCore
import CPlatform
import CSSH2
import Glibc

/// An ssh client for git where there is no other: libssh2's, with OpenSSH's rules for host keys and the part of its
/// options that git uses.
package enum BuiltInSSH {
    /// Bytes of memory that it may take for data, some ten times what it needs. At the limit it ends.
    private static let memory: UInt64 = 512 << 20
    /// The exit code for whatever keeps the command from running to its end.
    static let failure: Int32 = 255

    /// Runs the command that git asked for, on this thread, with this process's stdin, stdout and stderr.
    /// - Parameters:
    ///   - arguments: as ssh gets them.
    ///   - key: tried when the server has accepted none of the user's own.
    /// - Returns: the exit code: the remote program's, or 255 with one or more lines on stderr that say what failed.
    package static func run(_ arguments: [String], key: GitKey?, environment: [String: String]) -> Int32 {
        wa_ignore_sigpipe()
        wa_hide_memory()
        // libssh2 keeps what a server sends without being asked.
        wa_limit_memory(UInt64.max, Self.memory)
        // Or the connection would get the number of one that is closed.
        for descriptor in CInt(0)...2 where fcntl(descriptor, F_GETFD) < 0 { _ = wa_open("/dev/null", O_RDWR, 0) }
        var messages = BuiltInSSHMessages()
        do throws(BuiltInSSHFailure) {
            let arguments = try SSHArguments(arguments)
            messages.isVerbose = arguments.isVerbose
            switch arguments.purpose {
            case .connect:
                let client = BuiltInSSHClient(arguments, key: key, environment: environment, messages: messages)
                return try client.run()
            case .printConfiguration: printConfiguration(arguments, BuiltInSSHUser(environment: environment))
            case .printVersion:
                messages.say("the built-in ssh client, with libssh2 \(try BuiltInSSHLibrary().version)")
            }
            return 0
        } catch {
            for line in error.lines { messages.say(line) }
            return failure
        }
    }

    /// As `ssh -G`, by which git tells OpenSSH from other programs.
    private static func printConfiguration(_ arguments: SSHArguments, _ user: BuiltInSSHUser) {
        print("host \(arguments.host)")
        print("user \(arguments.user ?? user.name)")
        print("hostname \(arguments.address)")
        print("port \(arguments.port ?? 22)")
    }
}

/// One run of the client: connects, looks at the host key, logs in, runs the command.
struct BuiltInSSHClient {
    private let arguments: SSHArguments
    private let key: GitKey?
    private let environment: [String: String]
    private let messages: BuiltInSSHMessages
    private let user: BuiltInSSHUser
    private var port: UInt16 { arguments.port ?? 22 }
    private var login: String { arguments.user ?? user.name }

    init(_ arguments: SSHArguments, key: GitKey?, environment: [String: String], messages: BuiltInSSHMessages) {
        (self.arguments, self.key, self.environment, self.messages) = (arguments, key, environment, messages)
        user = BuiltInSSHUser(environment: environment)
    }

    /// - Returns: the command's exit code.
    func run() throws(BuiltInSSHFailure) -> Int32 {
        let session: BuiltInSSHSession
        do throws(BuiltInSSHFailure) {
            session = try logIn(BuiltInSSHLibrary())
        } catch {
            var error = error
            let config = user.file("config")
            if access(config, F_OK) == 0 {
                error.lines.append(
                    "\(config) was not read: the built-in ssh client does not; \(BuiltInSSHFailure.remedy)")
            }
            throw error
        }
        return try runCommand(session)
    }

    // MARK: Connection

    private func connect(_ library: BuiltInSSHLibrary) throws(BuiltInSSHFailure) -> BuiltInSSHSession {
        let deadline = ContinuousClock.now + .seconds(arguments.connectTimeout ?? 30)
        let session = try BuiltInSSHSession(library, server: "\(arguments.address) port \(port)")
        let files = try KnownHostsFiles(arguments, user)
        let check = BuiltInSSHHostKeyCheck(
            host: arguments.hostKeyAlias ?? arguments.address, port: arguments.hostKeyAlias == nil ? port : nil,
            unknownHosts: arguments.unknownHosts ?? .refuse, files: files,
            known: try files.read(library.matchesHash(session.pointer)), messages: messages)
        let socket = try BuiltInSSHSocket.connect(
            arguments.address, port, family: arguments.family, deadline: deadline, messages)
        try session.handshake(consume socket, knownTypes: check.knownTypes, deadline: deadline)
        let (hostKey, fingerprint) = try session.hostKey()
        messages.step("\(session.server) has shown its host key \(hostKey.type) \(fingerprint)")
        try check.run(hostKey, fingerprint)
        return session
    }

    // MARK: Login

    private func logIn(_ library: BuiltInSSHLibrary) throws(BuiltInSSHFailure) -> BuiltInSSHSession {
        let session = try connect(library)
        let agent = try agentSocket().flatMap { BuiltInSSHAgent(session, socket: $0) }
        var keys = BuiltInSSHKeys()
        if let agent { keys.add(agent) }
        for path in arguments.identityFiles where path != "none" { keys.add(file: try user.path(path), isNamed: true) }
        if arguments.identityFiles.isEmpty {
            for name in ["id_ecdsa", "id_ed25519", "id_rsa"] { keys.add(file: user.file(name), isNamed: false) }
        }
        let last = keys.ofControlPlane(key)
        if keys.keys.isEmpty, last == nil {
            keys.note("there is no key to log in with: none of an agent, of a file or from the control plane")
        }
        let login = BuiltInSSHLogin(session: session, agent: agent, user: login, messages: messages)
        switch try login.run(keys.keys + (last.map { [$0] } ?? [])) {
        case .accepted: return session
        case .refused(let methods): throw refused(methods, keys.notes, wasTried: last != nil)
        case .ended: break
        }
        guard let last else {
            var error = session.ended()
            error.lines.append("name the right key with -i FILE -o IdentitiesOnly=yes")
            error.lines += keys.notes
            throw error
        }
        messages.say(
            "\(session.server) ended the connection before all keys were tried; connecting again with \(last.name)")
        let again = try connect(library)
        switch try BuiltInSSHLogin(session: again, agent: nil, user: self.login, messages: messages).run([last]) {
        case .accepted: return again
        case .refused(let methods): throw refused(methods, keys.notes, wasTried: true)
        case .ended: throw again.ended()
        }
    }

    private func agentSocket() throws(BuiltInSSHFailure) -> String? {
        guard arguments.usesIdentitiesOnly != true else { return nil }
        switch arguments.identityAgent {
        case "none": return nil
        case nil, "SSH_AUTH_SOCK": return environment["SSH_AUTH_SOCK"].flatMap { $0.isEmpty ? nil : $0 }
        case .some(let path): return try user.path(path)
        }
    }

    private func refused(_ methods: String, _ notes: [String], wasTried: Bool) -> BuiltInSSHFailure {
        var failure = BuiltInSSHFailure("\(login)@\(arguments.host): Permission denied (\(methods)).")
        failure.lines += notes
        if wasTried, let key {
            failure.lines += KeyAdvice.lines(publicKey: key.publicKey, user: arguments.user, host: arguments.address)
        }
        return failure
    }

    // MARK: Command

    private func runCommand(_ session: BuiltInSSHSession) throws(BuiltInSSHFailure) -> Int32 {
        let functions = session.functions
        let kind = "session"
        // OpenSSH's client has a window of 2 MiB; a larger one keeps a distant server sending.
        let window: UInt32 = 4 << 20
        let opened = try session.retrying {
            functions.libssh2_channel_open_ex(session.pointer, kind, UInt32(kind.utf8.count), window, 32 << 10, nil, 0)
        }
        guard let channel = opened else {
            throw BuiltInSSHFailure("\(session.server) does not run commands: \(session.farewell ?? session.lastError)")
        }
        for (name, value) in variables() {
            // Servers take those that they are configured to take, and git does without.
            let code = try session.retrying {
                functions.libssh2_channel_setenv_ex(
                    channel, name, UInt32(name.utf8.count), value, UInt32(value.utf8.count))
            }
            messages.step("\(session.server) \(code == 0 ? "took" : "did not take") the variable \(name)")
        }
        let request = arguments.command == nil ? "shell" : "exec"
        let code = try session.retrying {
            functions.libssh2_channel_process_startup(
                channel, request, UInt32(request.utf8.count), arguments.command,
                UInt32(arguments.command?.utf8.count ?? 0))
        }
        guard code == 0 else {
            throw BuiltInSSHFailure(
                "\(session.server) does not run the command: \(session.farewell ?? session.lastError)")
        }
        // All descriptors of this process's own are close-on-exec: with one of them as 0 it was given no stdin.
        let hasInput = fcntl(0, F_GETFD) & FD_CLOEXEC == 0
        var transfer = BuiltInSSHTransfer(session, channel, readsInput: arguments.readsInput && hasInput)
        try transfer.run()
        return try exitCode(session, channel)
    }

    private func variables() -> [(String, String)] {
        let sent = environment.filter { variable in
            arguments.sendEnv.contains { WildcardPattern.matches($0, variable.key) }
        }
        return sent.sorted { $0.key < $1.key } + arguments.setEnv.map { ($0.name, $0.value) }
    }

    private func exitCode(_ session: BuiltInSSHSession, _ channel: OpaquePointer) throws(BuiltInSSHFailure) -> Int32 {
        var signal: UnsafeMutablePointer<CChar>?
        _ = session.functions.libssh2_channel_get_exit_signal(channel, &signal, nil, nil, nil, nil, nil)
        if let signal {
            defer { session.functions.libssh2_free(session.pointer, signal) }
            throw BuiltInSSHFailure(
                "the command on \(session.server) was ended by the signal \(String(cString: signal))")
        }
        return session.functions.libssh2_channel_get_exit_status(channel)
    }
}
