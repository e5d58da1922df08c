import AgentCore
import AgentTestSupport
import Glibc
import NIOCore
import NIOPosix
import ControlPlaneAPI
import Testing
import WebSockets

@testable import ControlPlane

@Suite struct DialTests {
    @Test func theRequestIsTheSpecsAndTheChannelCarriesBytes() async throws {
        let server = try await StandIn { $1.upgrade($0) }
        let configuration = try DialTest.configuration("http://127.0.0.1:\(server.port)/coder/") {
            $0.headers = ["X-Extra": "1"]
            $0.headerCommand = "echo X-Made=by command; echo; echo X-Other=a=b"
        }
        #expect(try await DialTest.echo(configuration) == APIVersion(2, 9))
        let request = try #require(server.requests.first)
        #expect(request.method == "GET")
        #expect(request.uri == "/coder/api/v2/workspaceagents/me/rpc?version=2.9&role=agent")
        for (name, value) in [
            "Coder-Session-Token": testToken, "Host": "127.0.0.1:\(server.port)", "X-Extra": "1",
            "X-Made": "by command",
            "X-Other": "a=b", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        ] { #expect(request.headers[name] == [value]) }
        #expect(!request.headers.contains(name: "Sec-WebSocket-Extensions"))
        #expect(!request.headers.contains(name: "Sec-WebSocket-Protocol"))
    }

    @Test func bytesThatComeWithThe101AreNotLost() async throws {
        var frames = ByteBuffer()
        for text in ["first ", "second "] {
            WebSocketFrameHeader(opcode: .binary, mask: nil, length: text.utf8.count).write(into: &frames)
            frames.writeString(text)
        }
        let behind = frames
        let server = try await StandIn { $1.upgrade($0, behind: behind) }
        for _ in 0..<20 {
            let configuration = try DialTest.configuration("http://127.0.0.1:\(server.port)")
            _ = try await DialTest.echo(configuration, expected: "first second ")
        }
    }

    @Test func anIPv6AddressIsDialled() async throws {
        let server = try await StandIn(host: "::1") { $1.upgrade($0) }
        _ = try await DialTest.echo(try DialTest.configuration("http://[::1]:\(server.port)"))
        #expect(server.requests.first?.headers["Host"] == ["[::1]:\(server.port)"])
        await server.stop()
    }

    /// Of a host's addresses one does not answer: the other one is taken, and its channel is the one that is
    /// handed out.
    @Test func anAddressThatDoesNotAnswerIsPassedOver() async throws {
        var (server, silent) = (try await StandIn { $1.upgrade($0) }, SilentListener?.none)
        // Of IPv6 the port may be another test's.
        for _ in 0..<10 where silent == nil {
            server = try await StandIn { $1.upgrade($0) }
            silent = SilentListener(port: server.port)
        }
        _ = try #require(silent, "::1 cannot be had")
        let configuration = try DialTest.configuration("http://control-plane.test:\(server.port)")
        for _ in 0..<3 {
            let dialler = WebSocketDialler(
                configuration, tokens: StaticToken(Secret(testToken)),
                headers: HeaderSource(
                    configuration, runner: ShellRunner(), environment: [:], clock: AgentClock(ContinuousClock())),
                group: MultiThreadedEventLoopGroup.singleton, pool: DialTest.pool, logger: quiet,
                resolver: TwoAddresses())
            _ = try await DialTest.echo(over: dialler)
        }
        #expect(server.requests.count == 3)
        withExtendedLifetime(silent) {}
    }

    /// Every host is at ::1 and 127.0.0.1.
    private struct TwoAddresses: Resolver, Sendable {
        private func answer(_ address: String, _ port: Int) -> EventLoopFuture<[SocketAddress]> {
            MultiThreadedEventLoopGroup.singleton.any().makeCompletedFuture {
                [try SocketAddress(ipAddress: address, port: port)]
            }
        }
        func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> { answer("127.0.0.1", port) }
        func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> { answer("::1", port) }
        func cancelQueries() {}
    }

    /// Listens on ::1 and takes nobody in: its queue is full, so that the kernel leaves SYNs unanswered.
    private final class SilentListener {
        private var descriptors: [CInt] = []

        init?(port: Int) {
            var address = sockaddr_in6()
            address.sin6_family = sa_family_t(AF_INET6)
            address.sin6_port = in_port_t(port).bigEndian
            address.sin6_addr = in6addr_loopback
            func each(_ call: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
                let flags = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
                let descriptor = socket(AF_INET6, flags, 0)
                descriptors.append(descriptor)
                return withUnsafePointer(to: &address) {
                    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        call(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in6>.size))
                    }
                }
            }
            guard each(bind) == 0, listen(descriptors[0], 0) == 0 else { return nil }
            for _ in 0..<3 {
                _ = each(connect)
                // The queue has room for one, and that must not be the test's.
                guard descriptors.count == 2 else { continue }
                var first = pollfd(fd: descriptors[1], events: Int16(POLLOUT), revents: 0)
                poll(&first, 1, 10_000)
            }
        }

        deinit { for descriptor in descriptors { close(descriptor) } }
    }

    @Test func aRefusalsBodyIsInTheError() async throws {
        let body = #"{"message":"Agent is gone.","detail":"really","validations":[{"field":"f","detail":"bad"}]}"#
        for status in [400, 401, 403, 404, 409, 500, 503] {
            let server = try await StandIn { $1.answer(status, body) }
            let error = try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
            #expect(error.code == .http(status))
            #expect(error.isPermanent == [401, 403, 404].contains(status))
            for text in ["\(status)", "Agent is gone.", "really", "f: bad", "/api/v2/workspaceagents/me/rpc"] {
                #expect(error.message.contains(text), "\(error.message)")
            }
            #expect(server.requests.count == 1)
        }
    }

    @Test func aRefusalWithAnotherBodyKeepsItsStatus() async throws {
        for body in ["", "<html>Bad gateway</html>", "{", "[]", "null", String(repeating: "x", count: 1 << 20)] {
            let server = try await StandIn { $1.answer(502, body, type: "text/html") }
            let error = try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
            #expect(error.code == .http(502))
            #expect(error.message.utf8.count < 2_000)
        }
        // A body that ends too soon.
        let server = try await StandIn { _, connection in
            connection.send("HTTP/1.1 403 X\r\nContent-Length: 100\r\n\r\n{\"mess")
            connection.close()
        }
        #expect(
            try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(server.port)")).code
                == .http(403))
    }

    @Test func anUnknownVersionFallsBackToTheNextOlder() async throws {
        let refusal = #"{"message":"Unknown version","validations":[{"field":"version","detail":"no"}]}"#
        for known in ["2.9", "2.8", "2.7"] {
            let server = try await StandIn { request, connection in
                if request.uri.contains("version=\(known)&") {
                    connection.upgrade(request)
                } else {
                    connection.answer(400, refusal)
                }
            }
            let version = try await DialTest.echo(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
            #expect(version.description == known)
        }
        let none = try await StandIn { $1.answer(400, refusal) }
        let error = try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(none.port)"))
        #expect(error.code == .version && error.isPermanent)
        #expect(error.description.contains("Unknown version"))
        #expect(none.requests.map { $0.uri.contains("version=2.") } == [true, true, true])
    }

    @Test func redirectsAreNotFollowed() async throws {
        let other = try await StandIn { $1.upgrade($0) }
        let server = try await StandIn { _, connection in
            connection.answer(302, "", ["Location: http://u:SECRET@127.0.0.1:\(other.port)/x?y=SECRET"])
        }
        let error = try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
        #expect(error.code == .http(302) && error.message.contains("http://127.0.0.1:\(other.port)"))
        #expect(other.requests.isEmpty)
    }

    @Test func whatIsNoHTTPOrNoWebSocketIsAViolation() async throws {
        let answers = [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n", "\u{0}\u{1}\u{2}",
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n\r\n",
            "HTTP/1.1 101 X\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: \(String(repeating: "x", count: 70_000))\r\n\r\n",
        ]
        for answer in answers {
            let server = try await StandIn { $1.send(answer) }
            let error = try await DialTest.dialError(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
            #expect(error.code == .protocolViolation, "\(answer.prefix(20)): \(error)")
        }
    }

    @Test func aServerThatHangsIsGivenUpAtTheDeadline() async throws {
        let tls = try Certificates.shared.get().server("DNS:localhost")
        let silent = try await StandIn(onConnect: { _ in true }) { _, _ in }
        let midHead = try await StandIn { $1.send("HTTP/1.1 101 Switching Protocols\r\nUpg") }
        let midBody = try await StandIn { $1.send("HTTP/1.1 400 X\r\nContent-Length: 10\r\n\r\n{") }
        let afterTLS = try await StandIn(tls: tls) { _, _ in }
        for (scheme, server) in [
            ("http", silent), ("https", silent), ("http", midHead), ("http", midBody), ("https", afterTLS),
        ] {
            let error = try await DialTest.dialError(
                try DialTest.configuration("\(scheme)://127.0.0.1:\(server.port)") {
                    $0.times.dial = .milliseconds(150)
                })
            #expect(error.code == .timeout || scheme == "https" && error.code == .tls, "\(error)")
        }
    }

    @Test func aConnectionThatDropsIsUnreachable() async throws {
        let atOnce = try await StandIn(onConnect: { connection in
            connection.channel.eventLoop.execute { connection.close() }
            return true
        }) { _, _ in }
        let midHead = try await StandIn { _, connection in
            connection.send("HTTP/1.1 101 Swi")
            connection.close()
        }
        for url in ["http://127.0.0.1:\(atOnce.port)", "http://127.0.0.1:\(midHead.port)", "http://127.0.0.1:1"] {
            let error = try await DialTest.dialError(try DialTest.configuration(url))
            #expect([.unreachable, .protocolViolation].contains(error.code), "\(error)")
            #expect(error.message.contains("127.0.0.1"))
        }
        let secure = try await DialTest.dialError(try DialTest.configuration("https://127.0.0.1:\(atOnce.port)"))
        #expect([.unreachable, .tls].contains(secure.code))
    }

    @Test func aDialThatIsCancelledEndsAtOnce() async throws {
        let silent = try await StandIn { _, _ in }
        let link = DialTest.link(try DialTest.configuration("http://127.0.0.1:\(silent.port)"))
        let dial = Task { try await link.dialler.connectTransport { _ in }.version }
        try await eventually("the request") { silent.requests.count == 1 }
        dial.cancel()
        await #expect(throws: CancellationError.self) { try await dial.value }
    }

    @Test func anInitializerThatFailsFailsTheDial() async throws {
        struct Failure: Error {}
        let server = try await StandIn { $1.upgrade($0) }
        let link = DialTest.link(try DialTest.configuration("http://127.0.0.1:\(server.port)"))
        await #expect(throws: Failure.self) { try await link.dialler.connectTransport { _ in throw Failure() } }
    }

    @Test func headerCommandsThatFailSayWhy() async throws {
        for (command, text) in [
            ("echo X-A=SECRET; echo oops >&2; exit 3", "exited with 3;"), ("echo no-equals-SECRET", "name=value"),
            ("echo Host=SECRET", "Host cannot be set"), ("kill -9 $$", "signal 9"),
            ("head -c 70000 /dev/zero", "more than 65536 bytes"),
        ] {
            let error = try await DialTest.dialError(
                try DialTest.configuration("http://127.0.0.1:1") {
                    ($0.headerCommand, $0.times.headerCommand) = (command, .seconds(60))
                })
            #expect(error.code == .configuration && error.description.contains(text), "\(error)")
            #expect(!error.description.contains("SECRET") && !error.description.contains("oops"))
        }
    }

    @Test func aHeaderCommandThatHangsIsEnded() async throws {
        let time = ManualClock()
        let link = DialTest.link(
            try DialTest.configuration("http://127.0.0.1:1") { $0.headerCommand = "exec sleep 1000" },
            clock: AgentClock(time))
        let dial = Task { try await link.dialler.connectTransport { _ in }.version }
        await time.sleepers(1)
        time.advance(by: .seconds(10))
        await #expect(throws: ControlPlaneError(.timeout, "")) { try await dial.value }
    }
}
