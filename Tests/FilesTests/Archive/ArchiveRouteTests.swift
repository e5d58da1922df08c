import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Files

/// The routes of a running daemon.
@Suite(.serialized, .timeLimit(.minutes(10)), .blocking) struct ArchiveRouteTests {
    private let directory: TemporaryDirectory
    private let daemon: DaemonProcess

    init() throws {
        directory = try TemporaryDirectory()
        daemon = try DaemonProcess()
    }

    private func path(_ name: String = "") -> String { "/api/v0/archive?path=\(directory.path)\(name)" }

    private func put(
        _ name: String, _ archive: [UInt8], _ headers: [String: String] = [:]
    ) throws -> RawConnection.Response {
        let connection = try daemon.connect()
        var head = "PUT \(path(name)) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(archive.count)\r\n"
        for (key, value) in headers { head += "\(key): \(value)\r\n" }
        try connection.send(head + "\r\n")
        // A refusal may come before the end of it.
        try? connection.send(Data(archive))
        return try connection.response()
    }

    private func get(_ target: String, _ headers: String = "") throws -> RawConnection.Response {
        try daemon.connect().exchange(
            "GET \(target) HTTP/1.1\r\nHost: localhost\r\n\(headers)Connection: close\r\n\r\n")
    }

    @Test(.timeLimit(.minutes(5))) func outAndIn() async throws {
        mkdir("\(directory.path)/t", 0o755)
        let big = (0..<3_000_000).map { _ in UInt8.random(in: 0...255) }
        try directory.write("t/big", big)
        try directory.write("t/a", Array("a".utf8))
        symlink("a", "\(directory.path)/t/l")
        let plain = try get(path("/t"))
        #expect(plain.status == 200)
        #expect(plain.headers["content-type"] == "application/x-tar")
        #expect(plain.headers["content-encoding"] == nil)
        #expect(plain.headers["vary"] == "accept-encoding")
        #expect(
            try FilesTests.members(of: Array(plain.body)).map(\.entry.name)
                == ["t/", "t/a", "t/big", "t/l"].map { Array($0.utf8) })
        let packed = try get(path("/t/."), "Accept-Encoding: gzip\r\n")
        #expect(packed.headers["content-encoding"] == "gzip")

        let answer = try put("/new/deep", Array(packed.body), ["Content-Encoding": "gzip"])
        #expect(answer.status == 200)
        #expect(
            answer.text
                == #"{"bytes":3000001,"directories":0,"files":2,"links":1,"message":"Successfully extracted "#
                + #"the archive to \"\#(directory.path)/new/deep\""}"#)
        #expect(try directory.read("new/deep/big") == big)
        #expect(directory.text("new/deep/l") == "a")
        // Without a word about it.
        #expect(try put("/again", Array(packed.body)).status == 200)
        #expect(try directory.read("again/big") == big)
        #expect(try await daemon.stop() == 0)
    }

    @Test func refusals() async throws {
        try directory.write("file", [])
        mkfifo("\(directory.path)/fifo", 0o600)
        func refusal(_ response: RawConnection.Response) -> String {
            "\(response.status) \((response.json["message"] as? String ?? "").replacing(directory.path, with: ""))"
        }
        #expect(refusal(try get(path("/none"))) == "404 open /none: no such file or directory")
        #expect(refusal(try get(path("/fifo"))) == "400 open /fifo: not a regular file")
        #expect(refusal(try get("/api/v0/archive?path=a")) == "400 file path must be absolute: \"a\"")
        #expect(refusal(try get("/api/v0/archive")) == "400 Query parameters have invalid values.")
        #expect(refusal(try get(path("/file") + "&x=1")) == "400 Query parameters have invalid values.")
        let whole = archive([.file("a", "a")])
        #expect(refusal(try put("/file", whole)) == "400 mkdir /file: not a directory")
        #expect(refusal(try put("/x", whole, ["Content-Encoding": "br"])).hasPrefix("415 Content-Encoding \"br\""))
        #expect(
            refusal(try put("/x", archive([.file("../a")]))) == "400 archive entry \"../a\": the name has \"..\" in it")
        #expect(refusal(try put("/x", [])) == "400 the archive is empty: not even the end of one is there")
        #expect(refusal(try put("/x", archive([.special("f", .fifo)]))).hasPrefix("400 archive entry \"f\": FIFOs"))
        let link = archive([.directory("d"), .link("l", "d"), .file("l/x")])
        #expect(refusal(try put("/x", link)).hasPrefix("409 extract /x/l/x: a symbolic link or a file"))
        #expect(directory.tree.filter { $0.contains(".tmp.") } == [])
        #expect(try await daemon.stop() == 0)
    }

    @Test func aCutUploadLeavesNoTemporaryFile() async throws {
        let whole = archive([.file("a", "a"), .file("b", String(repeating: "b", count: 2_000_000))])
        var connection: RawConnection? = try daemon.connect()
        try connection?.send(
            "PUT \(path("/cut")) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(whole.count)\r\n\r\n")
        try connection?.send(Data(whole.prefix(1_000_000)))
        try await eventually("a temporary file") { directory.tree.contains { $0.contains(".tmp.") } }
        #expect(directory.text("cut/a") == "a")
        connection = nil
        try await eventually("no temporary file") { !directory.tree.contains { $0.contains(".tmp.") } }
        #expect(directory.tree == ["cut", "cut/a"])
        #expect(try await daemon.stop() == 0)
    }

    @Test func aKilledDaemonsTemporaryFileGoesAtTheNextStart() async throws {
        let whole = archive([.file("b", String(repeating: "b", count: 2_000_000))])
        let connection = try daemon.connect()
        try connection.send("PUT \(path("/cut")) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(whole.count)\r\n\r\n")
        try connection.send(Data(whole.prefix(1_000_000)))
        try await eventually("a temporary file") { directory.tree.contains { $0.contains(".tmp.") } }
        daemon.signal(SIGKILL)
        _ = try await daemon.wait()
        #expect(directory.tree.contains { $0.contains(".tmp.") })
        let next = try DaemonProcess(directory: daemon.directory)
        #expect(directory.tree == ["cut"])
        #expect(try await next.stop() == 0)
    }

    @Test func bundleRefusesWhatIsNoList() async throws {
        func post(_ body: String) throws -> RawConnection.Response {
            try daemon.connect().exchange(
                "POST /api/v0/bundle-files HTTP/1.1\r\nHost: localhost\r\n"
                    + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
            )
        }
        #expect(try post("x").status == 400)
        #expect(try post("x").json["message"] as? String == "Request body must be valid JSON.")
        let large = try post(String(repeating: " ", count: 65_537))
        #expect(large.status == 413)
        #expect(large.json["message"] as? String == "Request body too large.")
        let most = #"{"paths":[]}"# + String(repeating: " ", count: 65_524)
        let empty = try post(most)
        #expect(empty.status == 200)
        #expect(empty.headers["content-length"] == "2048")
        #expect(empty.headers["content-type"] == "application/x-tar")
        #expect(try await daemon.stop() == 0)
    }
}
