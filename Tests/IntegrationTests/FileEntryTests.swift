import AgentTestSupport
import Foundation
import Glibc
import Testing

/// file-info, move, delete, make-directory and set-mode through the built daemon.
@Suite(.timeLimit(.minutes(5)), .sharedDaemon, .blocking) struct FileEntryTests {
    private let scratch: TemporaryDirectory
    private let connection: RawConnection

    init() throws {
        scratch = try TemporaryDirectory()
        connection = try shared().connection
    }

    private func path(_ name: String) -> String { "\(scratch.path)/\(name)" }

    private func make(_ name: String, _ text: String = "x") throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path(name)))
    }

    private func post(_ route: String, _ body: [String: Any]) throws -> RawConnection.Response {
        try connection.request("POST", "/api/v0/\(route)", body: RawConnection.json(body))
    }

    private func exists(_ name: String) -> Bool {
        var info = stat()
        return lstat(path(name), &info) == 0
    }

    private func info(_ path: String) throws -> [String: Any] {
        try connection.request("GET", "/api/v0/file-info?path=\(path)").json
    }

    @Test func infoTellsWhatAPathIs() throws {
        try make("a.txt", "text")
        chmod(path("a.txt"), 0o640)
        let file = try info(path("a.txt"))
        #expect(file["type"] as? String == "file" && file["size"] as? Int == 4 && file["mode"] as? String == "0640")
        #expect(file["mime"] as? String == "text/plain; charset=utf-8" && file["binary"] as? Bool == false)
        let read = try connection.request("GET", "/api/v0/read-file?path=\(path("a.txt"))")
        #expect(file["etag"] as? String == read.headers["etag"])
        let owner = try #require(file["owner"] as? [String: Any])
        #expect(owner["uid"] as? UInt32 == geteuid() && owner["user"] is String)
        #expect((file["modified_at"] as? String)?.wholeMatch(of: /20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z/) != nil)
        try make("b.bin", "a\0b")
        #expect(try info(path("b.bin"))["binary"] as? Bool == true)
        symlink("a.txt", path("l"))
        let link = try info(path("l"))
        #expect(link["type"] as? String == "symlink" && link["target"] as? String == "a.txt")
        #expect(link["etag"] == nil)
        mkfifo(path("p"), 0o600)
        #expect(try info(path("p"))["type"] as? String == "fifo")
        #expect(try info(scratch.path)["type"] as? String == "directory")
        #expect(try info("/dev/null")["type"] as? String == "char_device")
        #expect(try connection.request("GET", "/api/v0/file-info?path=\(path("none"))").status == 404)
        #expect(try connection.request("GET", "/api/v0/file-info?path=a").status == 400)
    }

    @Test func moveTakesNothingThatIsInTheWay() throws {
        try make("a", "a")
        try make("b", "b")
        #expect(try post("move", ["from": path("a"), "to": path("b")]).status == 409)
        #expect(try post("move", ["from": path("a"), "to": path("b"), "overwrite": true]).status == 200)
        #expect(!exists("a"))
        #expect(try String(contentsOfFile: path("b"), encoding: .utf8) == "a")
        mkdir(path("d"), 0o755)
        #expect(try post("move", ["from": path("b"), "to": path("d"), "overwrite": true]).status == 409)
        #expect(try post("move", ["from": path("d"), "to": path("b"), "overwrite": true]).status == 409)
        #expect(try post("move", ["from": path("d"), "to": path("d/e")]).status == 400)
        #expect(try post("move", ["from": path("none"), "to": path("x")]).status == 404)
        #expect(try post("move", ["from": path("b"), "to": path("no/x")]).status == 404)
        #expect(try post("move", ["from": "b", "to": path("x")]).status == 400)
        #expect(try post("move", ["from": path("b")]).status == 400)
        #expect(try post("move", ["from": path("b"), "to": path("d/b")]).status == 200 && exists("d/b"))
        // A link is moved, not what it leads to.
        symlink("d/b", path("l"))
        #expect(try post("move", ["from": path("l"), "to": path("m")]).status == 200)
        #expect(exists("m") && exists("d/b") && !exists("l"))
    }

    @Test(.enabled(if: Privileges.isRoot)) func movesBetweenFileSystems() throws {
        mkdir(path("t"), 0o755)
        try #require(mount("none", path("t"), "tmpfs", 0, "size=1m") == 0)
        defer { umount2(path("t"), Int32(MNT_DETACH)) }
        try make("a", "content")
        chmod(path("a"), 0o751)
        chown(path("a"), 12345, 54321)
        #expect(try post("move", ["from": path("a"), "to": path("t/a")]).status == 200)
        #expect(!exists("a"))
        let info = try info(path("t/a"))
        #expect(info["mode"] as? String == "0751" && info["size"] as? Int == 7)
        try make("a", "other")
        #expect(try post("move", ["from": path("a"), "to": path("t/a")]).status == 409)
        mkdir(path("d"), 0o755)
        let refused = try post("move", ["from": path("d"), "to": path("t/d")])
        #expect(refused.status == 400 && refused.text.contains("another file system"))
        // The disk fills up in the middle.
        try make("large", String(repeating: "x", count: 2 << 20))
        #expect(try post("move", ["from": path("large"), "to": path("t/large")]).status == 500)
        #expect(exists("large") && !exists("t/large"))
        #expect(try FileManager.default.contentsOfDirectory(atPath: path("t")) == ["a"])
    }

    @Test func deleteFollowsNoLink() throws {
        mkdir(path("keep"), 0o755)
        try make("keep/f")
        mkdir(path("d"), 0o755)
        mkdir(path("d/e"), 0o755)
        try make("d/e/f")
        symlink("../keep", path("d/l"))
        symlink("keep", path("l"))
        #expect(try post("delete", ["path": path("d")]).status == 409)
        #expect(try post("delete", ["path": path("d"), "recursive": true]).status == 200)
        #expect(!exists("d") && exists("keep/f"))
        #expect(try post("delete", ["path": path("l"), "recursive": true]).status == 200)
        #expect(!exists("l") && exists("keep/f"))
        #expect(try post("delete", ["path": path("none")]).status == 404)
        #expect(try post("delete", ["path": path("keep/f")]).status == 200)
        #expect(try post("delete", ["path": path("keep")]).status == 200)
        let home = ProcessInfo.processInfo.environment["HOME"] ?? "/root"
        for kept in ["/", "/..", home, home + "/", "/tmp/../\(home)", "/proc/self/root"] {
            let answer = try post("delete", ["path": kept, "recursive": true])
            #expect(
                answer.status == 400 || kept == "/proc/self/root" && answer.status != 200, "\(kept): \(answer.text)")
        }
        #expect(try post("delete", ["path": "/proc/self/cwd/../..", "recursive": true]).status != 200)
    }

    @Test func directoriesAndModes() throws {
        let mask = umask(0)
        umask(mask)
        #expect(try post("make-directory", ["path": path("a/b/c")]).status == 200)
        var info = stat()
        stat(path("a/b/c"), &info)
        #expect(info.st_mode & 0o7777 == 0o755 & ~mask)
        #expect(try post("make-directory", ["path": path("a/b/c")]).status == 200)
        #expect(try post("make-directory", ["path": path("a/b/c"), "parents": false]).status == 409)
        #expect(try post("make-directory", ["path": path("x/y"), "parents": false]).status == 404)
        #expect(try post("make-directory", ["path": path("s"), "mode": "0700"]).status == 200)
        stat(path("s"), &info)
        #expect(info.st_mode & 0o7777 == 0o700)
        try make("f")
        #expect(try post("make-directory", ["path": path("f/g")]).status == 400)
        // A file is in the way, or a link, wherever it leads.
        symlink("f", path("link"))
        symlink("nowhere", path("dangling"))
        symlink("s", path("s-link"))
        for name in ["f", "link", "dangling"] {
            for parents in [true, false] {
                let answer = try post("make-directory", ["path": path(name), "parents": parents])
                #expect(answer.status == 409 && answer.text.contains("file exists"), "\(name): \(answer.text)")
            }
        }
        #expect(try post("make-directory", ["path": path("s-link")]).status == 200)
        #expect(try post("set-mode", ["path": path("f"), "mode": "0751"]).status == 200)
        stat(path("f"), &info)
        #expect(info.st_mode & 0o7777 == 0o751)
        for bad in ["", "9", "rwx", "77777"] {
            #expect(try post("set-mode", ["path": path("f"), "mode": bad]).status == 400, "\(bad)")
        }
        #expect(try post("set-mode", ["path": path("none"), "mode": "0600"]).status == 404)
    }
}
