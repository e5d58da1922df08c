import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// What `workspace-agent doctor` says of the way to a control plane.
@Suite("Doctor: control plane", .blocking, .timeLimit(.minutes(5))) struct DoctorLinkTests {
    @Test func theTokenIsTried() async throws {
        let world = try await LinkWorld { _, _ in }
        chmod(world.tokenFile, 0o600)
        let arguments = ["--agent-url", world.url, "--agent-token-file", world.tokenFile]
        let good = try DoctorRun(arguments, in: world.directory)
        #expect(good["control-plane-url"].detail == "\(world.url) answers")
        #expect(good["tls"].status == "ok")
        #expect(good["token"].status == "ok" && good["token"].detail == "that of \(world.tokenFile) is accepted")
        #expect(!good.text.contains(LinkWorld.token))
        #expect(world.requests("gitsshkey").count == 1)

        chmod(world.tokenFile, 0o644)
        let open = try DoctorRun(arguments, in: world.directory)
        #expect(open["token"].status == "warning" && open["token"].fix == "chmod 0600 \(world.tokenFile)")

        let secret = "another-secret"
        let wrong = try DoctorRun(["--agent-url", world.url, "--agent-token", secret], in: world.directory)
        #expect(wrong["control-plane-url"].status == "ok")
        #expect(wrong["token"].status == "error" && wrong["token"].detail.contains("401"))
        #expect(wrong.code == 1 && !wrong.text.contains(secret))

        let none = try DoctorRun(["--agent-url", world.url], in: world.directory)
        #expect(none["token"].status == "error" && none["token"].fix?.contains("--agent-token-file") == true)
        await world.stop()
    }

    /// It would hold whoever reads it.
    @Test func aFIFOInThePlaceOfTheTokenFile() async throws {
        let world = try await LinkWorld { _, _ in }
        unlink(world.tokenFile)
        mkfifo(world.tokenFile, 0o600)
        let report = try DoctorRun(
            ["--agent-url", world.url, "--agent-token-file", world.tokenFile], in: world.directory)
        #expect(report["token"].status == "error" && report["token"].detail.contains("is a named pipe"))
        #expect(report["control-plane-url"].status == "ok")
        unlink(world.tokenFile)
        let missing = try DoctorRun(
            ["--agent-url", world.url, "--agent-token-file", world.tokenFile], in: world.directory)
        #expect(missing["token"].detail.contains("No such file"))
        await world.stop()
    }

    @Test func aCertificateThatIsNotTrusted() async throws {
        let authority = try LinkTLSTests.Authority()
        let certificate = try authority.issue()
        let world = try await LinkWorld(server: { $0.tls = certificate }) { _, _ in }
        let arguments = [
            "--agent-url", "https://localhost:\(world.server.address?.port ?? 0)", "--agent-token-file",
            world.tokenFile,
        ]
        let report = try DoctorRun(arguments, in: world.directory)
        #expect(report["control-plane-url"].status == "ok")
        #expect(report["tls"].status == "error" && report["tls"].detail.contains("its certificate is not trusted"))
        #expect(report["tls"].fix?.contains("--agent-ca-file") == true)
        let mended = try DoctorRun(arguments + ["--agent-ca-file", authority.ca], in: world.directory)
        #expect(mended["tls"].status == "ok" && mended["tls"].detail.contains(authority.ca))
        #expect(mended["token"].status != "error")
        let absent = try DoctorRun(arguments + ["--agent-ca-file", "/nonexistent/ca"], in: world.directory)
        #expect(absent["tls"].status == "error" && absent["tls"].detail.contains("/nonexistent/ca"))
        await world.stop()
    }

    @Test(arguments: ["http://", "ftp://x", "http://a b"]) func anAddressThatIsNone(url: String) throws {
        let directory = try TemporaryDirectory()
        let report = try DoctorRun(["--agent-url", url, "--agent-token", "x"], in: directory)
        #expect(report["control-plane-url"].status == "error")
        #expect(report["control-plane-url"].detail.hasPrefix("--agent-url: "))
    }

    @Test func anAddressWhereNobodyAnswers() throws {
        let directory = try TemporaryDirectory()
        func check(_ url: String) throws -> DoctorRun.Check {
            try DoctorRun(["--agent-url", url, "--agent-token", "x"], in: directory)["control-plane-url"]
        }
        #expect(try check("http://127.0.0.1:1").detail.contains("Connection refused"))
        #expect(try check("http://unknown.invalid").detail.contains("the host name unknown.invalid is not known"))
        // Takes connections and never answers.
        let silent = try LoopbackSocket(backlog: 16)
        let hanging = try check("http://user:hidden@127.0.0.1:\(silent.port)")
        #expect(hanging.status == "error" && hanging.detail.contains("gave no answer within 5 s"), "\(hanging)")
        #expect(!hanging.detail.contains("hidden"))
    }

    @Test func theClockAndAnAddressOfAnotherServer() throws {
        let directory = try TemporaryDirectory()
        func report(_ date: String, status: String) throws -> DoctorRun {
            let server = try CannedServer(
                "HTTP/1.1 \(status)\r\nDate: \(date)\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            return try DoctorRun(
                ["--agent-url", "http://127.0.0.1:\(server.port)", "--agent-token", "x"], in: directory)
        }
        let old = try report("Sun, 06 Nov 1994 08:49:37 GMT", status: "200 OK")
        #expect(old["clock"].status == "error" && old["clock"].detail.contains("ahead of the control plane"))
        #expect(old["clock"].fix?.contains("NTP") == true)
        var now = time(nil)
        var fields = tm()
        gmtime_r(&now, &fields)
        var text = [CChar](repeating: 0, count: 64)
        strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &fields)
        let date = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let right = try report(date, status: "404 Not Found")
        #expect(right["clock"].status == "ok" && right["clock"].detail.contains(" s ahead of"))
        #expect(right["control-plane-url"].status == "error" && right["control-plane-url"].detail.contains("404"))
    }
}

/// Answers one request after the other with the same bytes.
private final class CannedServer {
    let port: Int
    private let listener: LoopbackSocket

    init(_ answer: String) throws {
        let listener = try LoopbackSocket(backlog: 16)
        (self.listener, port) = (listener, listener.port)
        let descriptor = listener.descriptor
        _ = startThread("canned server") {
            while case let client = accept(descriptor, nil, nil), client >= 0 {
                var area = [UInt8](repeating: 0, count: 4_096)
                _ = read(client, &area, area.count)
                _ = write(client, answer, answer.utf8.count)
                close(client)
            }
        }
    }

    /// accept() of the thread ends.
    deinit { shutdown(listener.descriptor, CInt(SHUT_RDWR)) }
}
