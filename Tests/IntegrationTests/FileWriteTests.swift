import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Writing and reading files through the built daemon: what the recorded requests do not show.
@Suite(.timeLimit(.minutes(10)), .sharedDaemon, .blocking) struct FileWriteTests {
    private let scratch: TemporaryDirectory
    private let connection: RawConnection
    private let daemon: DaemonProcess

    init() throws {
        scratch = try TemporaryDirectory()
        (daemon, connection) = try shared()
    }

    private var path: String { "\(scratch.path)/f" }

    private func write(_ text: String, _ query: String = "", _ headers: [String: String] = [:]) throws
        -> RawConnection.Response
    {
        try connection.request("POST", "/api/v0/write-file?path=\(path)\(query)", headers: headers, body: text)
    }

    private func read(_ headers: [String: String] = [:], _ query: String = "") throws -> RawConnection.Response {
        try connection.request("GET", "/api/v0/read-file?path=\(path)\(query)", headers: headers)
    }

    private func content(_ path: String? = nil) throws -> String {
        try String(contentsOfFile: path ?? self.path, encoding: .utf8)
    }

    /// Names that begin with a dot, as those of temporary files do.
    private func hidden() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: scratch.path).filter { $0.hasPrefix(".") }
    }

    @Test func writesAreConditional() throws {
        let made = try write("one", "", ["If-None-Match": "*"])
        let tag = try #require(made.json["etag"] as? String)
        #expect(made.status == 200)
        let again = try write("two", "", ["If-None-Match": "*"])
        #expect(again.status == 412 && again.headers["etag"] == tag)
        #expect(try write("two", "", ["If-Match": "\"0-0-0\", \"x\""]).status == 412)
        #expect(try content() == "one")
        let changed = try write("two!", "", ["If-Match": "\"x\", \(tag)"])
        #expect(changed.status == 200 && changed.json["etag"] as? String != tag)
        #expect(try write("three", "", ["If-Match": tag]).status == 412)
        #expect(try write("three", "", ["If-Match": "*"]).status == 200)
        unlink(path)
        #expect(try write("four", "", ["If-Match": "*"]).status == 412)
        #expect(access(path, F_OK) != 0)
        #expect(try hidden().isEmpty)
    }

    @Test func readsAreConditionalAndPartial() throws {
        let tag = try #require(try write("0123456789").json["etag"] as? String)
        let whole = try read()
        #expect(whole.headers["etag"] == tag && whole.headers["accept-ranges"] == "bytes")
        #expect(try read(["If-None-Match": tag]).status == 304)
        #expect(try read(["If-None-Match": "\"other\""]).status == 200)
        for (range, text) in [("bytes=2-4", "234"), ("bytes=7-", "789"), ("bytes=-2", "89"), ("bytes=5-100", "56789")] {
            let part = try read(["Range": range])
            #expect(part.status == 206 && part.text == text, "\(range)")
        }
        let past = try read(["Range": "bytes=10-"])
        #expect(past.status == 416 && past.headers["content-range"] == "bytes */10")
        for ignored in ["bytes=0-1,3-4", "lines=0-1", "bytes=4-2", "bytes=x-"] {
            #expect(try read(["Range": ignored]).text == "0123456789", "\(ignored)")
        }
        #expect(try read(["Range": "bytes=0-1", "If-Range": tag]).status == 206)
        #expect(try read(["Range": "bytes=0-1", "If-Range": "\"old\""]).text == "0123456789")
        try connection.send("HEAD", "/api/v0/read-file?path=\(path)")
        let head = try connection.head()
        #expect(head.headers["content-length"] == "10" && head.headers["etag"] == tag)
        #expect(try read([:], "&offset=3&limit=2").text == "34")
    }

    @Test func appendAddsAndModeIsSet() throws {
        #expect(try write("a\n", "&append=true&mode=0640").status == 200)
        var info = stat()
        stat(path, &info)
        #expect(info.st_mode & 0o7777 == 0o640)
        let inode = info.st_ino
        #expect(try write("b\n", "&append=true").status == 200)
        #expect(try write("", "&append=true").status == 200)
        #expect(try content() == "a\nb\n")
        stat(path, &info)
        #expect(info.st_ino == inode && info.st_mode & 0o7777 == 0o640)
        #expect(try write("c", "&mode=755").status == 200)
        stat(path, &info)
        #expect(info.st_mode & 0o7777 == 0o755)
        for bad in ["8", "rw", "17777", "-1"] { #expect(try write("d", "&mode=\(bad)").status == 400, "\(bad)") }
        #expect(try write("d", "&append=maybe").status == 400)
        let tag = try #require(try write("x", "&append=true").json["etag"] as? String)
        #expect(try write("y", "&append=true", ["If-Match": "\"no\""]).status == 412)
        #expect(try write("y", "&append=true", ["If-Match": tag]).status == 200)
        #expect(try content() == "cxy")
    }

    @Test func aCutUploadLeavesNothing() async throws {
        _ = try write("old")
        for ending in ["half-closed", "gone"] {
            var client: RawConnection? = try daemon.connect()
            try client?.send(
                "POST /api/v0/write-file?path=\(path) HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
                    + String(repeating: "x", count: 300_000))
            try await eventually("the temporary file is there") { try hidden().count == 1 }
            if ending == "half-closed" {
                client?.closeSending()
                #expect(try client?.response().status == 400)
            }
            client = nil
            try await eventually("it is gone") { try hidden().isEmpty }
            #expect(try content() == "old")
        }
    }

    @Test func aCutUploadTakesItsDirectoriesAlong() async throws {
        var client: RawConnection? = try daemon.connect()
        try client?.send(
            "POST /api/v0/write-file?path=\(scratch.path)/a/b/f HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        try await eventually("the directories are there") { access("\(scratch.path)/a/b", F_OK) == 0 }
        client = nil
        try await eventually("they are gone") { access("\(scratch.path)/a", F_OK) != 0 }
    }

    @Test func aFullDiskKeepsTheOldFile() throws {
        guard Privileges.isRoot, mount("none", scratch.path, "tmpfs", 0, "size=1m") == 0 else { return }
        defer { umount2(scratch.path, Int32(MNT_DETACH)) }
        // Each on a connection of its own: an answer before the body's end ends it.
        func write(_ text: String) throws -> RawConnection.Response {
            try daemon.connect().request("POST", "/api/v0/write-file?path=\(path)", body: text)
        }
        _ = try write("old")
        let answer = try write(String(repeating: "x", count: 3 << 20))
        #expect(answer.status == 500 && answer.text.contains("no space left on device"), "\(answer.text)")
        #expect(try content() == "old")
        #expect(try hidden().isEmpty)
        let edit: [String: Any] = [
            "path": path, "edits": [["search": "old", "replace": String(repeating: "y", count: 2 << 20)]],
        ]
        let edited = try connection.request(
            "POST", "/api/v0/edit-files", body: RawConnection.json(["files": [edit]]))
        #expect(edited.status == 500 && edited.text.contains("no space left on device"))
        #expect(try content() == "old")
        #expect(try hidden().isEmpty)
        // A read-only mount.
        let remounted = mount("none", scratch.path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil)
        try #require(remounted == 0)
        let refused = try write("new")
        #expect(refused.status == 500 && refused.text.contains("read-only file system"))
        #expect(try content() == "old")
    }

    @Test(arguments: ["fifo", "device", "socket"]) func whatIsNoFileIsNotTouched(_ kind: String) throws {
        switch kind {
        case "fifo": mkfifo(path, 0o644)
        case "device": symlink("/dev/zero", path)
        default:
            let listener = try CommandResult.of([
                "/usr/bin/python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", path,
            ])
            try #require(listener.code == 0)
        }
        let edit: [String: Any] = ["path": path, "edits": [["search": "a", "replace": "b"]]]
        let answers = [
            try read(), try write("x"), try write("x", "&append=true"),
            try connection.request("GET", "/api/v0/read-file-lines?path=\(path)"),
            try connection.request("POST", "/api/v0/edit-files", body: RawConnection.json(["files": [edit]])),
        ]
        let shown = kind == "device" ? ["\(path)", "/dev/zero"] : [path]
        for answer in answers {
            #expect(answer.status == 400, "\(answer.text)")
            #expect(shown.contains { answer.json["message"] as? String == "open \($0): not a regular file" })
        }
        let list = try connection.request("POST", "/api/v0/list-directory?path=\(path)", body: "{}")
        #expect(list.status == 400 && list.text.contains("is not a directory"))
        var info = stat()
        #expect(lstat(path, &info) == 0 && info.st_mode & S_IFMT != S_IFREG)
        #expect(try hidden().isEmpty)
    }

    @Test func longNamesAndBadBytesInNames() throws {
        let name = String(repeating: "n", count: 255)
        let long = try connection.request(
            "POST", "/api/v0/write-file?path=\(scratch.path)/\(name)", headers: [:], body: "x")
        #expect(long.status == 200)
        #expect(try content("\(scratch.path)/\(name)") == "x")
        let over = try connection.request("POST", "/api/v0/write-file?path=\(scratch.path)/\(name)n", body: "x")
        #expect(over.status == 400 && over.text.contains("file name too long"))
        // A path is raw bytes in a query; in JSON its text comes and goes.
        let bad = try connection.request("POST", "/api/v0/write-file?path=\(scratch.path)/b%FFd+e%20f", body: "bytes")
        #expect(bad.status == 200)
        let list = try connection.request("POST", "/api/v0/list-directory?path=\(scratch.path)", body: "{}")
        let names = (list.json["contents"] as? [[String: Any]] ?? []).compactMap { $0["name"] as? String }
        #expect(names.contains("b\u{10FEFF}d e f"))
        let escaped = "b%F4%8F%BB%BFd%20e%20f"
        #expect(try connection.request("GET", "/api/v0/read-file?path=\(scratch.path)/\(escaped)").text == "bytes")
        let edit: [String: Any] = [
            "path": "\(scratch.path)/b\u{10FEFF}d e f", "edits": [["search": "bytes", "replace": "edited"]],
        ]
        #expect(
            try connection.request("POST", "/api/v0/edit-files", body: RawConnection.json(["files": [edit]])).status
                == 200)
        #expect(try connection.request("GET", "/api/v0/read-file?path=\(scratch.path)/b%FFd%20e%20f").text == "edited")
        let deep = String(repeating: "/d", count: 2_100)
        #expect(try connection.request("GET", "/api/v0/read-file?path=\(deep)").status == 400)
        #expect(try connection.request("GET", "/api/v0/read-file?path=/a%zz").status == 400)
    }

    @Test func manyEntriesAreListed() throws {
        let made = try CommandResult.of([
            "/usr/bin/python3", "-c",
            "import os,sys\nfor i in range(100000): os.close(os.open(f'{sys.argv[1]}/{i:06}', os.O_CREAT))",
            scratch.path,
        ])
        try #require(made.code == 0)
        let list = try connection.request("POST", "/api/v0/list-directory?path=\(scratch.path)", body: "{}")
        #expect((list.json["contents"] as? [Any])?.count == 100_000)
        let answer = try connection.request(
            "POST", "/api/v0/delete", body: RawConnection.json(["path": scratch.path, "recursive": true]))
        #expect(answer.status == 200 && access(scratch.path, F_OK) != 0)
    }

    @Test func aSparseFileIsReadInLittleMemory() throws {
        let descriptor = open(path, O_WRONLY | O_CREAT, 0o644)
        try #require(ftruncate(descriptor, 5 << 30) == 0)
        close(descriptor)
        // Of its own: others use memory, too.
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        try connection.send("GET", "/api/v0/read-file?path=\(path)")
        #expect(try connection.head().headers["content-length"] == String(5 << 30))
        let before = ProcFS.residentKiB(daemon.pid)
        for _ in 0..<200 { _ = try connection.receive(exactly: 1 << 20) }
        #expect(ProcFS.residentKiB(daemon.pid) - before < 8 << 10)
        // The end of it, at once.
        let other = try daemon.connect()
        let tail = try other.request("GET", "/api/v0/read-file?path=\(path)&offset=\(5 << 30 - 3)")
        #expect(tail.body == Data(count: 3))
    }
}
