import AgentCore
import AgentHTTP
import AgentTestSupport
import Foundation
import Glibc
import Logging
import NIOPosix
import Synchronization
import Testing

@testable import Files

/// The file routes in this process, with what they tell the path store.
private final class RoutesInProcess: PathStore {
    let directory: TemporaryDirectory
    private let told = Mutex<[String: [String]]>([:])
    private let server = Mutex<HTTPServer?>(nil)

    init() async throws {
        directory = try TemporaryDirectory()
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let work = DiskWork(
            clock: AgentClock(ManualClock()), executor: BlockingExecutor.shared, health: HealthRegistry())
        let files = FilesContext(
            work: work, temporaries: TemporaryFiles(directory: nil, logger: logger), paths: self, fileMask: 0o022,
            home: "/home/x", environment: [:])
        let routes = AgentRoutes()
        FilesRoutes(files).add(to: routes)
        let metrics = MetricsRegistry()
        let server = HTTPServer(group: MultiThreadedEventLoopGroup.singleton, metrics: metrics, logger: logger)
        server.start(HTTPService(routes: routes, metrics: metrics, logger: logger))
        let policy = AccessPolicy(tokenRule: .none, ownUID: geteuid())
        try await server.serve(try UnixListener.bind(path: "\(directory.path)/s"), policy: policy)
        self.server.withLock { $0 = server }
    }

    var root: String { "\(directory.path)/root" }

    func connect() throws -> RawConnection { try RawConnection(unix: "\(directory.path)/s") }

    func stop() async { await server.withLock { $0 }?.stop() }

    func add(paths: [String], for chat: ChatIdentity) {
        told.withLock { told in
            for id in chat.lineage { told[id.lowercased, default: []] += paths }
        }
    }

    func notify(_ chat: ChatIdentity) {}

    func take() -> [String: [String]] {
        told.withLock { told in
            defer { told = [:] }
            return told
        }
    }
}

@Suite(.timeLimit(.minutes(5)), .blocking) struct EditRequestTests {
    /// What each recorded request tells of the chat's paths.
    @Test func pathStoresGetWhatWasRecorded() async throws {
        let routes = try await RoutesInProcess()
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Vectors/files_http.json")
        let text = try String(contentsOf: file, encoding: .utf8).replacingOccurrences(of: "$ROOT", with: routes.root)
        let recorded = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
        var compared = 0
        for item in recorded?["cases"] as? [[String: Any]] ?? [] {
            guard let expected = item["path_store"] as? [String: [String]] else { continue }
            let name = item["name"] as? String ?? ""
            try? FileManager.default.removeItem(atPath: routes.root)
            mkdir(routes.root, 0o755)
            for made in item["files"] as? [[String: Any]] ?? [] {
                let path = "\(routes.root)/\(made["path"] ?? "")"
                switch made["type"] as? String {
                case "dir": mkdir(path, 0o755)
                case "symlink": symlink(made["target"] as? String ?? "", path)
                default: try Data((made["content"] as? String ?? "").utf8).write(to: URL(fileURLWithPath: path))
                }
            }
            let request = try #require(item["request"] as? [String: Any])
            let body = request["body"] as? String ?? request["json"].map(RawConnection.json)
            let answer = try routes.connect().request(
                request["method"] as? String ?? "", request["url"] as? String ?? "",
                headers: request["headers"] as? [String: String] ?? [:], body: body)
            let status = (item["response"] as? [String: Any])?["status"] as? Int
            #expect(answer.status == status, "\(name): \(answer.text)")
            let told = routes.take()
            for (chat, paths) in expected { #expect((told[chat] ?? []).sorted() == paths.sorted(), "\(name)") }
            #expect(Set(told.keys).isSubset(of: Set(expected.keys)), "\(name)")
            compared += 1
        }
        #expect(compared == 7)
        await routes.stop()
    }

    @Test func editsAreConditionalAndTriedOut() async throws {
        let routes = try await RoutesInProcess()
        mkdir(routes.root, 0o755)
        let (a, b) = ("\(routes.root)/a", "\(routes.root)/b")
        func write(_ path: String, _ text: String) throws { try Data(text.utf8).write(to: URL(fileURLWithPath: path)) }
        func text(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }
        func edit(_ files: [[String: Any]], _ more: [String: Any] = [:]) throws -> RawConnection.Response {
            try routes.connect().request(
                "POST", "/api/v0/edit-files", headers: ["Coder-Chat-Id": UUID().uuidString],
                body: RawConnection.json(more.merging(["files": files]) { old, _ in old }))
        }
        func file(_ path: String, _ edits: [[String: Any]], _ tag: String? = nil) -> [String: Any] {
            tag.map { ["path": path, "edits": edits, "if_match": $0] } ?? ["path": path, "edits": edits]
        }
        try write(a, "one\ntwo\n")
        try write(b, "one\n")
        let (one, top) = (["search": "one", "replace": "1"], ["insert_line": 0, "text": "top"] as [String: Any])
        let inode = try inode(a)
        // Tried out: the same answer, nothing written, nothing told.
        let tried = try edit([file(a, [one, top])], ["dry_run": true, "include_diff": true])
        #expect(try text(a) == "one\ntwo\n" && routes.take().isEmpty)
        let tags = try edit([file(a, [["search": "two", "replace": "two"]])], ["include_etag": true])
        let tag = try #require((tags.json["files"] as? [[String: Any]])?.first?["etag"] as? String)
        // An edit that changes nothing leaves the file as it is.
        #expect(try self.inode(a) == inode)
        // One wrong tag, and neither is written.
        let refused = try edit([file(b, [one]), file(a, [one], "\"0-0-0\"")])
        #expect(refused.status == 412 && refused.headers["etag"] == tag)
        #expect(try text(a) == "one\ntwo\n" && text(b) == "one\n")
        let done = try edit([file(a, [one, top], tag)], ["include_diff": true])
        let answer = try #require((done.json["files"] as? [[String: Any]])?.first)
        #expect(answer["diff"] as? String == (tried.json["files"] as? [[String: Any]])?.first?["diff"] as? String)
        #expect(answer["etag"] as? String != tag && (answer["edits"] as? [Any])?.count == 2)
        #expect(try text(a) == "top\n1\ntwo\n")
        let both = try edit([file(a, [["insert_line": 0, "text": "x", "search": "1"]])])
        #expect(both.status == 400 && both.text.contains("either insert_line and text, or search and replace"))
        await routes.stop()
    }

    @Test(arguments: [0, 1]) func filesTogetherAreLimited(_ beyond: Int) async throws {
        let routes = try await RoutesInProcess()
        mkdir(routes.root, 0o755)
        let half = FilesLimits.editBytes / 2
        let files = try [half, half + beyond].enumerated().map { index, size in
            let path = "\(routes.root)/\(index)"
            try Data("a".utf8).write(to: URL(fileURLWithPath: path))
            try #require(truncate(path, size) == 0)
            return ["path": path, "edits": [["search": "nowhere", "replace": ""]]] as [String: Any]
        }
        let answer = try routes.connect().request(
            "POST", "/api/v0/edit-files", body: RawConnection.json(["files": files]))
        #expect(answer.status == (beyond == 0 ? 400 : 413), "\(answer.text)")
        await routes.stop()
    }

    /// No lock keeps out another program; what it has written is not written over.
    @Test func aFileThatAnotherProgramChangedIsKept() async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/f"
        try Data("one\n".utf8).write(to: URL(fileURLWithPath: path))
        let body = try JSONDecoder().decode(
            EditRequest.self,
            from: Data(
                RawConnection.json(["files": [["path": path, "edits": [["search": "one", "replace": "1"]]]]]).utf8))
        let target = try #require(try EditTarget.merged(body.files).first)
        let edited = try EditedFile(EditSource(target), withDiff: false)
        try Data("another's\n".utf8).write(to: URL(fileURLWithPath: path))
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let work = DiskWork(
            clock: AgentClock(ManualClock()), executor: BlockingExecutor.shared, health: HealthRegistry())
        let files = FilesContext(
            work: work, temporaries: TemporaryFiles(directory: nil, logger: logger), paths: NoPathStore(),
            fileMask: 0o022, home: "/", environment: [:])
        #expect(throws: FilesError(.conflict, "")) { try edited.write(files) }
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "another's\n")
        #expect(directoryEntries(directory.path) == ["f"])
    }

    @Test(.enabled(if: geteuid() == 0)) func theOwnerIsKept() async throws {
        let routes = try await RoutesInProcess()
        mkdir(routes.root, 0o755)
        let path = "\(routes.root)/f"
        try Data("one\n".utf8).write(to: URL(fileURLWithPath: path))
        chown(path, 12_345, 54_321)
        chmod(path, 0o4755)
        let answer = try routes.connect().request("POST", "/api/v0/write-file?path=\(path)", body: "two\n")
        #expect(answer.status == 200)
        var info = stat()
        #expect(stat(path, &info) == 0 && info.st_uid == 12_345 && info.st_gid == 54_321)
        #expect(info.st_mode & 0o7777 == 0o4755)
        await routes.stop()
    }

    private func inode(_ path: String) throws -> UInt64 {
        var info = stat()
        try #require(stat(path, &info) == 0)
        return UInt64(info.st_ino)
    }
}
