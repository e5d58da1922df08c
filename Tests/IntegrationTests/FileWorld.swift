import AgentTestSupport
import Foundation
import Glibc
import Testing

/// A daemon that runs as an ordinary user and the directory that recorded file requests are about.
final class FileWorld {
    let root: String
    let daemon: DaemonProcess
    private let scratch: TemporaryDirectory
    private let connection: RawConnection

    init() throws {
        scratch = try Privileges.isRoot ? Privileges.directoryOfNobody() : TemporaryDirectory()
        root = "\(scratch.path)/root"
        let wrapper = Privileges.isRoot ? Privileges.asNobody : []
        let directory = try Privileges.isRoot ? Privileges.directoryOfNobody() : TemporaryDirectory()
        let mask = umask(0o022)
        defer { umask(mask) }
        daemon = try DaemonProcess(
            environment: ["HOME": "\(root)/home", "USER": "nobody"], wrapper: wrapper, directory: directory)
        connection = try daemon.connect()
    }

    static func cases() throws -> [[String: Any]] {
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../FilesTests/Vectors/files_http.json")
        let recorded = try JSONSerialization.jsonObject(with: Data(contentsOf: file)) as? [String: Any]
        let cases = try #require(recorded?["cases"] as? [[String: Any]])
        try #require(cases.count == 229)
        return cases
    }

    /// A part of a recorded case with our directory's name in it.
    func part(_ item: [String: Any], _ key: String) throws -> [String: Any] {
        try #require(try substituted(item[key] ?? [String: Any]()) as? [String: Any])
    }

    func list(_ item: [String: Any], _ key: String) throws -> [[String: Any]] {
        try #require(try substituted(item[key] ?? [[String: Any]]()) as? [[String: Any]])
    }

    private func substituted(_ value: Any) throws -> Any {
        let data = try JSONSerialization.data(withJSONObject: value, options: [.withoutEscapingSlashes])
        let parts = root.split(separator: "/").map { "\"\($0)\"" }.joined(separator: ",")
        let text = String(decoding: data, as: UTF8.self)
            .replacingOccurrences(of: "\"$ROOT_PARTS\"", with: parts)
            .replacingOccurrences(of: "$ROOT_WITHOUT_SLASH", with: String(root.dropFirst()))
            .replacingOccurrences(of: "$ROOT", with: root)
        return try JSONSerialization.jsonObject(with: Data(text.utf8))
    }

    /// Makes the directory anew, with what was there before the request.
    func set(_ item: [String: Any]) throws {
        _ = try CommandResult.of(["/bin/sh", "-c", "chmod -R u+rwx \"$0\" 2>/dev/null; rm -rf \"$0\"", root])
        try own(root) { mkdir(root, 0o755) }
        let mask = umask(0)
        defer { umask(mask) }
        let files = try list(item, "files")
        for file in files where file["type"] as? String != "hardlink" { try make(file) }
        for file in files where file["type"] as? String == "hardlink" { try make(file) }
        // Modes last: some keep out even their owner.
        for file in files {
            guard let mode = (file["mode"] as? String).flatMap({ mode_t($0, radix: 8) }) else { continue }
            try #require(chmod("\(root)/\(file["path"] ?? "")", mode) == 0)
        }
    }

    private func make(_ file: [String: Any]) throws {
        let path = "\(root)/\(try #require(file["path"] as? String))"
        var parent = root
        for element in path.dropFirst(root.count + 1).split(separator: "/").dropLast() {
            parent += "/\(element)"
            if access(parent, F_OK) != 0 { try own(parent) { mkdir(parent, 0o755) } }
        }
        let target = file["target"] as? String ?? ""
        switch file["type"] as? String ?? "file" {
        case "dir": if access(path, F_OK) != 0 { try own(path) { mkdir(path, 0o755) } }
        case "symlink": try own(path) { symlink(target, path) }
        case "hardlink": try #require(link("\(root)/\(target)", path) == 0)
        case "fifo": try own(path) { mkfifo(path, 0o644) }
        default:
            try Self.bytes(file["content"] ?? "").write(to: URL(fileURLWithPath: path))
            try own(path) { chmod(path, 0o644) }
        }
    }

    private func own(_ path: String, _ make: () -> CInt) throws {
        try #require(make() == 0, "\(path): errno \(errno)")
        if Privileges.isRoot { lchown(path, Privileges.nobody, Privileges.nobody) }
    }

    /// Recorded bytes: a text, `hex`, or `repeat` and `times`.
    static func bytes(_ value: Any) throws -> Data {
        if let text = value as? String { return Data(text.utf8) }
        let parts = try #require(value as? [String: Any])
        if let text = parts["repeat"] as? String, let times = parts["times"] as? Int {
            return Data(String(repeating: text, count: times).utf8)
        }
        let digits = Array(try #require(parts["hex"] as? String))
        return Data(
            stride(from: 0, to: digits.count, by: 2).compactMap { UInt8(String(digits[$0...$0 + 1]), radix: 16) })
    }

    func send(_ request: [String: Any]) throws -> RawConnection.Response {
        let request = try #require(try substituted(request) as? [String: Any])
        var headers = request["headers"] as? [String: String] ?? [:]
        var body: Data?
        if let json = request["json"] { body = try JSONSerialization.data(withJSONObject: json) }
        if let bytes = request["body"] { body = try Self.bytes(bytes) }
        headers["Host"] = "localhost"
        if let body { headers["Content-Length"] = String(body.count) }
        if request["json"] != nil { headers["Content-Type"] = "application/json" }
        let method = try #require(request["method"] as? String)
        let lines = headers.map { "\($0): \($1)\r\n" }.joined()
        // One each: some answers close it.
        let connection = try daemon.connect()
        try connection.send(Data("\(method) \(request["url"] ?? "") HTTP/1.1\r\n\(lines)\r\n".utf8) + (body ?? Data()))
        return method == "HEAD" ? try connection.head() : try connection.response()
    }

    struct Item: Equatable {
        var type: String
        var mode: String
        var content: Data
        var inode: UInt64
    }

    /// Everything below the directory.
    func snapshot() throws -> [String: Item] {
        var found: [String: Item] = [:]
        for case let path as String in FileManager.default.enumerator(atPath: root) ?? .init() {
            let (full, mode) = ("\(root)/\(path)", try Self.stat("\(root)/\(path)"))
            switch mode.st_mode & S_IFMT {
            case S_IFREG:
                found[path] = Item(
                    type: "file", mode: Self.octal(mode.st_mode),
                    content: (try? Data(contentsOf: URL(fileURLWithPath: full))) ?? Data(), inode: UInt64(mode.st_ino))
            case S_IFDIR: found[path] = Item(type: "dir", mode: Self.octal(mode.st_mode), content: Data(), inode: 0)
            default: found[path] = Item(type: "other", mode: "", content: Data(), inode: UInt64(mode.st_ino))
            }
        }
        return found
    }

    private static func stat(_ path: String) throws -> stat {
        var info = Glibc.stat()
        try #require(lstat(path, &info) == 0)
        return info
    }

    private static func octal(_ mode: mode_t) -> String {
        let text = String(mode & 0o7777, radix: 8)
        return String(repeating: "0", count: 4 - text.count) + text
    }

    /// Compares what a request has changed with what was recorded.
    func compare(_ before: [String: Item], _ changed: [[String: Any]], _ name: String) {
        guard let after = try? snapshot() else {
            Issue.record("\(name): no snapshot")
            return
        }
        var wanted = before
        for change in changed {
            guard let path = change["path"] as? String else { continue }
            guard let now = after[path] else {
                Issue.record("\(name): \(path) is missing")
                continue
            }
            wanted[path] = now
            #expect(now.type == change["type"] as? String ?? "file", "\(name) \(path)")
            #expect(now.mode == change["mode"] as? String, "\(name) \(path)")
            if let content = change["content"] { try? Self.matches(now.content, content, "\(name) \(path)") }
            if change["new_inode"] as? Bool == true, let old = before[path] {
                #expect(now.inode != old.inode, "\(name) \(path): the same inode")
            }
        }
        for path in Set(after.keys).union(wanted.keys).sorted() where after[path] != wanted[path] {
            Issue.record("\(name): \(path) is \(String(describing: after[path]?.mode)), unexpectedly")
        }
    }

    /// Compares bytes with recorded ones: as ``bytes(_:)`` has them, or `bytes`, `sha256`.
    static func matches(_ data: Data, _ expected: Any, _ what: String) throws {
        guard let parts = expected as? [String: Any], let sum = parts["sha256"] as? String else {
            let wanted = try bytes(expected)
            #expect(data == wanted, "\(what): \(String(decoding: data.prefix(200), as: UTF8.self))")
            return
        }
        let directory = try TemporaryDirectory()
        try data.write(to: URL(fileURLWithPath: "\(directory.path)/d"))
        #expect(data.count == parts["bytes"] as? Int, "\(what)")
        let output = try CommandResult.of(["/usr/bin/sha256sum", "\(directory.path)/d"]).output
        #expect(output.hasPrefix(sum), "\(what)")
    }

    /// Compares an archive, as Python reads it, with the recorded entries.
    static func compareTar(_ data: Data, _ expected: Any?, _ name: String) throws {
        let directory = try TemporaryDirectory()
        try data.write(to: URL(fileURLWithPath: "\(directory.path)/t"))
        let script = """
            import json, sys, tarfile
            t = tarfile.open(sys.argv[1], encoding='utf-8')
            print(json.dumps([{'name': m.name, 'mode': f'{m.mode:04o}', 'content': t.extractfile(m).read().decode()}
                              for m in t]))
            """
        let read = try CommandResult.of(["/usr/bin/python3", "-c", script, "\(directory.path)/t"])
        let entries = try JSONSerialization.jsonObject(with: Data(read.output.utf8)) as? [[String: Any]] ?? []
        let wanted = expected as? [[String: Any]] ?? []
        #expect(entries.count == wanted.count, "\(name): \(read.errors)")
        for (entry, wanted) in zip(entries, wanted) {
            #expect(entry["name"] as? String == wanted["name"] as? String, "\(name)")
            #expect(entry["mode"] as? String == wanted["mode"] as? String, "\(name)")
            let content = entry["content"] as? String ?? ""
            if let json = wanted["json"] as? [String: Any] {
                let manifest = try JSONSerialization.jsonObject(with: Data(content.utf8)) as? [String: Any] ?? [:]
                #expect(plain(manifest) == plain(json), "\(name): \(content)")
            } else {
                #expect(Data(content.utf8) == (try bytes(wanted["content"] ?? "")), "\(name)")
            }
        }
    }

    /// Without times, which are each machine's own.
    private static func plain(_ manifest: [String: Any]) -> NSDictionary {
        var manifest = manifest
        if let files = manifest["files"] as? [[String: Any]] {
            manifest["files"] = files.map { $0.filter { $0.key != "mod_time" } }
        }
        return NSDictionary(dictionary: manifest)
    }
}
