import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import Synchronization
import Testing

@testable import ControlPlane

let testToken = "0f9a-SECRET-token"

/// Runs commands with a real shell.
struct ShellRunner: CommandRunner {
    func start(
        _ command: Command, output: @escaping @Sendable (CommandStream, UnsafeRawBufferPointer) -> Void
    ) async throws -> any RunningCommand {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: command.arguments[0])
        process.arguments = Array(command.arguments.dropFirst())
        process.environment = command.environment
        let running = Running(process)
        for (stream, index) in [(CommandStream.stdout, 0), (.stderr, 1)] {
            let pipe = Pipe()
            if index == 0 { process.standardOutput = pipe } else { process.standardError = pipe }
            running.ends.enter()
            pipe.fileHandleForReading.readabilityHandler = { handle in
                let data = handle.availableData
                if data.isEmpty {
                    handle.readabilityHandler = nil
                    running.ends.leave()
                } else {
                    data.withUnsafeBytes { output(stream, $0) }
                }
            }
        }
        running.exits.enter()
        process.terminationHandler = { _ in running.exits.leave() }
        try process.run()
        return running
    }

    private final class Running: RunningCommand {
        let ends = DispatchGroup()
        let exits = DispatchGroup()
        let process: Process
        init(_ process: Process) { self.process = process }
        var pid: Int32 { process.processIdentifier }
        func exit() async -> CommandExit {
            await withCheckedContinuation { continuation in
                exits.notify(queue: .global()) { continuation.resume() }
            }
            let status = process.terminationStatus
            return process.terminationReason == .exit ? .exited(status) : .signalled(status)
        }
        func outputEnd() async {
            await withCheckedContinuation { continuation in
                ends.notify(queue: .global()) { continuation.resume() }
            }
        }
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
    ) -> Link {
        Link(
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
        let received = Mutex("")
        let (channel, version) = try await link.dialler.connectTransport { channel in
            try channel.pipeline.syncOperations.addHandler(Collector { text in received.withLock { $0 += text } })
        }
        try await channel.writeAndFlush(ByteBuffer(string: "hello"))
        try await eventually("the echo") { received.withLock { $0 } == expected + "hello" }
        try await channel.close()
        await link.shutdown()
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
struct Certificates {
    let directory: TemporaryDirectory
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
