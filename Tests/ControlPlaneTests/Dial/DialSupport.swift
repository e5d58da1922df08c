import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization
import ControlPlaneAPI
import Testing

@testable import ControlPlane

let testToken = "0f9a-SECRET-token"

/// Runs commands with a real shell; their output is passed on when they have ended.
struct ShellRunner: CommandRunner {
    func start(
        _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) async throws -> any RunningCommand {
        let directory = try TemporaryDirectory()
        let files = ["\(directory.path)/out", "\(directory.path)/err"]
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        for (index, file) in files.enumerated() {
            posix_spawn_file_actions_addopen(&actions, CInt(1 + index), file, O_WRONLY | O_CREAT, 0o600)
        }
        closeInChild(&actions, from: 3)
        var argv: [UnsafeMutablePointer<CChar>?] = command.arguments.map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = command.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in argv + envp { free(pointer) } }
        var pid = pid_t()
        let rc = posix_spawn(&pid, command.arguments[0], &actions, nil, &argv, &envp)
        guard rc == 0 else { throw CoreError.system(rc, command.arguments[0]) }
        let running = Running(pid: pid)
        let child = pid
        Thread.detachNewThread {
            var status: Int32 = 0
            while waitpid(child, &status, 0) < 0 && errno == EINTR {}
            for (stream, file) in zip([CommandStream.stdout, .stderr], files) {
                (try? Data(contentsOf: URL(fileURLWithPath: file)))?.withUnsafeBytes { output(stream, $0) }
            }
            withExtendedLifetime(directory) {}
            let signal = status & 0x7f
            running.end.succeed(signal == 0 ? .exited((status >> 8) & 0xff) : .signalled(signal))
        }
        return running
    }

    private final class Running: RunningCommand {
        let pid: Int32
        let end = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: CommandExit.self)
        init(pid: Int32) { self.pid = pid }
        func exit() async -> CommandExit { (try? await end.futureResult.get()) ?? .exited(255) }
        func outputEnd() async { _ = await exit() }
        func signal(_ number: Int32) { kill(pid, number) }
        func abandonOutput() {}
    }
}

enum DialTest {
    static let pool = BlockingPool(threads: 2)

    static func configuration(
        _ url: String, _ change: (inout LinkConfiguration) throws -> Void = { _ in }
    ) throws -> LinkConfiguration {
        var configuration = LinkConfiguration(
            url: try ServerAddress(url, what: "url"), authentication: .token(Secret(testToken)))
        try change(&configuration)
        return configuration
    }

    static func link(
        _ configuration: LinkConfiguration, clock: AgentClock = AgentClock(ContinuousClock()),
        logger: Logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    ) -> ControlPlaneAccess {
        ControlPlaneAccess(
            configuration, group: MultiThreadedEventLoopGroup.singleton, pool: pool, clock: clock,
            runner: ShellRunner(), environment: ["PATH": "/usr/bin:/bin"], logger: logger)
    }

    /// The error of a dial, which must fail and whose text must hold no secret.
    static func dialError(_ configuration: LinkConfiguration) async throws -> ControlPlaneError {
        let link = link(configuration)
        do {
            let (channel, _) = try await link.dialler.connectTransport { _ in }
            try? await channel.close()
            throw DeadlineExceeded(what: "the dial failed")
        } catch let error as ControlPlaneError {
            #expect(!"\(error)".contains("SECRET") && !String(reflecting: error).contains("SECRET"), "\(error)")
            await link.shutdown()
            return error
        }
    }

    /// Opens the link, sends bytes and waits for their echo behind `expected`.
    static func echo(
        _ configuration: LinkConfiguration, expected: String = ""
    ) async throws -> APIVersion {
        let link = link(configuration)
        let version = try await echo(over: link.dialler, expected: expected)
        await link.shutdown()
        return version
    }

    static func echo(over dialler: WebSocketDialler, expected: String = "") async throws -> APIVersion {
        let received = Mutex("")
        let (channel, version) = try await dialler.connectTransport { channel in
            try channel.pipeline.syncOperations.addHandler(Collector { text in received.withLock { $0 += text } })
        }
        try await channel.writeAndFlush(ByteBuffer(string: "hello"))
        try await eventually("the echo") { received.withLock { $0 } == expected + "hello" }
        try await channel.close()
        return version
    }

    private final class Collector: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        let collect: @Sendable (String) -> Void
        init(_ collect: @escaping @Sendable (String) -> Void) { self.collect = collect }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            collect(String(buffer: unwrapInboundIn(data)))
        }
    }
}

/// A CA of its own and certificates that it signed, made with the openssl command.
struct Certificates: Sendable {
    /// The CA of most tests, and one that knows nothing of it. Making them takes processor time that the
    /// tests beside have to wait for, so they are made once.
    static let shared = Result { try Certificates() }
    static let other = Result { try Certificates() }

    let directory: TemporaryDirectory
    /// By what they are for; made one after the other, since the CA counts what it signs in a file.
    private let contexts = Contexts()

    private final class Contexts: Sendable { let made = Mutex<[String: NIOSSLContext]>([:]) }

    var ca: String { "\(directory.path)/ca.pem" }

    init() throws {
        directory = try TemporaryDirectory()
        try Self.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca "
                + "-keyout \(directory.path)/ca.key -out \(ca)")
    }

    private static func openssl(_ arguments: String) throws {
        let result = try CommandResult.of(["openssl"] + arguments.split(separator: " ").map(String.init))
        try #require(result.code == 0, "\(result.errors)")
    }

    /// A server's context for these names, such as `DNS:localhost`.
    func server(_ names: String, isExpired: Bool = false) throws -> NIOSSLContext {
        try contexts.made.withLock { made in
            let key = "\(names) \(isExpired)"
            if let context = made[key] { return context }
            let context = try make(names, isExpired: isExpired)
            made[key] = context
            return context
        }
    }

    private func make(_ names: String, isExpired: Bool) throws -> NIOSSLContext {
        let base = "\(directory.path)/\(UUID().uuidString)"
        try Data("subjectAltName=\(names)\n".utf8).write(to: URL(fileURLWithPath: base + ".ext"))
        try Self.openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout \(base).key -out \(base).csr"
        )
        if isExpired {
            let settings = """
                [ca]
                default_ca = d
                [d]
                database = \(base).db
                serial = \(base).srl
                new_certs_dir = \(directory.path)
                default_md = sha256
                policy = p
                [p]
                commonName = supplied
                """
            try Data(settings.utf8).write(to: URL(fileURLWithPath: base + ".conf"))
            try Data().write(to: URL(fileURLWithPath: base + ".db"))
            try Data("01\n".utf8).write(to: URL(fileURLWithPath: base + ".srl"))
            try Self.openssl(
                "ca -batch -config \(base).conf -cert \(ca) -keyfile \(directory.path)/ca.key -in \(base).csr "
                    + "-out \(base).pem -notext -startdate 20200101000000Z -enddate 20200201000000Z -extfile \(base).ext"
            )
        } else {
            try Self.openssl(
                "x509 -req -in \(base).csr -CA \(ca) -CAkey \(directory.path)/ca.key -CAcreateserial -days 2 "
                    + "-extfile \(base).ext -out \(base).pem")
        }
        return try NIOSSLContext(
            configuration: .makeServerConfiguration(
                certificateChain: NIOSSLCertificate.fromPEMFile(base + ".pem").map { .certificate($0) },
                privateKey: .privateKey(NIOSSLPrivateKey(file: base + ".key", format: .pem))))
    }
}
