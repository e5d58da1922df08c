import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Testing

@testable import Files

/// What a bundler makes of the paths.
private func bundled(
    _ paths: [String], _ environment: [String: String] = [:], limits: BundleLimits = BundleLimits(),
    isLate: @escaping () -> Bool = { false }, meanwhile: () throws -> Void = {}
) throws -> (bytes: [UInt8], members: [Member], manifest: [String: Any]) {
    let bundler = Bundler(
        paths, home: environment["HOME"] ?? "/", environment: environment, limits: limits, isLate: isLate)
    var bytes: [UInt8] = []
    while let piece = bundler.next() {
        bytes += piece.readableBytesView
        try meanwhile()
    }
    let members = try FilesTests.members(of: bytes)
    let last = try #require(members.last)
    #expect(last.entry.name == Array("manifest.json".utf8))
    let manifest = try JSONSerialization.jsonObject(with: Data(last.content)) as? [String: Any]
    return (bytes, members, try #require(manifest))
}

@Suite(.timeLimit(.minutes(10)), .blocking) struct BundleTests {
    struct Vector: Sendable, CustomTestStringConvertible {
        var name: String
        /// The whole case.
        var json: Data
        var testDescription: String { name }

        static let all: [Vector] = {
            let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appending(path: "../Vectors/files_http.json")
            guard let data = try? Data(contentsOf: path),
                let file = try? JSONSerialization.jsonObject(with: data) as? [String: Any],
                let cases = file["cases"] as? [[String: Any]]
            else { return [] }
            return cases.compactMap { item in
                guard let name = item["name"] as? String, name.hasPrefix("bundle_"), name != "bundle_not_json",
                    name != "bundle_body_too_large", let json = try? JSONSerialization.data(withJSONObject: item)
                else { return nil }
                return Vector(name: name, json: json)
            }
        }()
    }

    @Test func thereAreVectors() { #expect(Vector.all.count == 21) }

    @Test(arguments: Vector.all) func recorded(_ vector: Vector) throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let text = String(decoding: vector.json, as: UTF8.self).replacing("\\/", with: "/")
            .replacing("$ROOT", with: directory.path)
        let item = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        for file in item["files"] as? [[String: Any]] ?? [] { try Self.make(file, in: directory) }
        let request = item["request"] as? [String: Any]
        let paths = (request?["json"] as? [String: Any])?["paths"] as? [String] ?? []
        var limits = BundleLimits()
        if let own = item["bundle_limits"] as? [String: Int] {
            limits.max_files = own["max_files"] ?? 0
            limits.max_bytes_per_file = own["max_bytes_per_file"] ?? 0
            limits.max_total_bytes = own["max_total_bytes"] ?? 0
        }
        let result = try asOtherUser { [limits] in
            let result = try bundled(paths, ["HOME": "\(directory.path)/home"], limits: limits)
            return (result.bytes.count, result.members)
        }
        let response = try #require(item["response"] as? [String: Any])
        if let length = response["content-length"] as? String { #expect(String(result.0) == length) }
        let wanted = try #require(response["tar"] as? [[String: Any]])
        #expect(result.1.map { String(decoding: $0.entry.name, as: UTF8.self) } == wanted.map { $0["name"] as? String })
        for (member, entry) in zip(result.1, wanted) {
            #expect(member.entry.mode == 0o644)
            if let content = entry["content"] as? String {
                #expect(String(decoding: member.content, as: UTF8.self) == content)
            } else {
                let manifest = try Self.comparable(JSONSerialization.jsonObject(with: Data(member.content)))
                #expect(manifest == (try Self.comparable(entry["json"] as Any)))
            }
        }
    }

    /// With the same time for all files.
    private static func comparable(_ json: Any) throws -> String {
        let data = try JSONSerialization.data(withJSONObject: json, options: [.sortedKeys, .withoutEscapingSlashes])
        return String(decoding: data, as: UTF8.self)
            .replacing(/"mod_time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"/, with: "\"mod_time\":\"\"")
    }

    private static func make(_ file: [String: Any], in directory: TemporaryDirectory) throws {
        let path = "\(directory.path)/\(file["path"] as? String ?? "")"
        let parent = URL(fileURLWithPath: path).deletingLastPathComponent()
        try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
        switch file["type"] as? String {
        case "symlink": symlink(file["target"] as? String ?? "", path)
        case "fifo": mkfifo(path, 0o644)
        default:
            try Data((file["content"] as? String ?? "").utf8).write(to: URL(fileURLWithPath: path))
            if geteuid() == 0 { chown(path, otherUser, otherUser) }
            chmod(path, mode_t(file["mode"] as? String ?? "0644", radix: 8) ?? 0)
        }
    }

    private func reasons(_ manifest: [String: Any]) -> [String] {
        (manifest["errors"] as? [[String: Any]] ?? []).map { error in
            "\(error["path"] as? String ?? "-"): \(error["reason"] as? String ?? "-")"
        }
    }

    @Test func expandsPaths() {
        let environment = ["HOME": "/home/me", "DIR": "/d", "EMPTY": "", "REL": "a"]
        func expanded(_ text: String) -> String {
            do { return try BundlePath.expand(text, home: "/home/me", environment: environment) } catch {
                return error.message
            }
        }
        #expect(expanded("/a//b/../c/") == "/a/c")
        #expect(expanded("~") == "/home/me")
        #expect(expanded("~/x") == "/home/me/x")
        #expect(expanded("~me/x") == "path \"~me/x\" is not absolute")
        #expect(expanded("/x/~/y") == "/x/~/y")
        #expect(expanded("$DIR/x") == "/d/x")
        #expect(expanded("${DIR}x/$REL$REL") == "/dx/aa")
        #expect(expanded("/cost$/$") == "/cost$/$")
        #expect(expanded("/${DIR") == "/${DIR")
        #expect(expanded("/${}") == "/${}")
        #expect(expanded("$EMPTY") == "path is empty")
        #expect(expanded("$REL/x") == "path \"a/x\" is not absolute")
        #expect(expanded("$NONE/**") == "the variable \"NONE\" is not set")
    }

    @Test func whatAFileIs() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path
        let long = String(repeating: "n", count: 300)
        symlink("loop", "\(path)/loop")
        symlink("none", "\(path)/dangling")
        try directory.write("file", Array("x".utf8))
        let (_, members, manifest) = try bundled([
            "/dev/null", "\(path)/loop", "\(path)/dangling", "\(path)/file/x",
            "\(path)/\(long)",
            "\(path)/f*/", "\(path)/**/", "\(path)/d*",
        ])
        #expect(
            reasons(manifest).map { $0.replacing(path, with: "") } == [
                "/dev/null: not a regular file: device",
                "/loop: open file: open /loop: too many levels of symbolic links",
                "/none: does not exist", "/file/x: open file: open /file/x: not a directory",
                "/\(long): open file: open /\(long): file name too long",
                "/dangling: does not exist",
                "/loop: open file: open /loop: too many levels of symbolic links",
                "/dangling: does not exist",
            ])
        #expect(members.count == 2)
    }

    @Test func walksInTheOrderOfPaths() throws {
        let directory = try TemporaryDirectory()
        let script =
            "cd \(directory.path); mkdir -p a a-b .h; touch a/x a-b/y a.c b .h/z; ln -s a l; ln -s b m; mkfifo f"
        try #require(try CommandResult.of(["sh", "-c", script]).code == 0)
        func paths(_ pattern: String) throws -> [String] {
            try bundled(["\(directory.path)/\(pattern)"]).members.dropLast().map {
                String(decoding: $0.entry.name, as: UTF8.self).replacing("files\(directory.path)/", with: "")
            }
        }
        #expect(try paths("**") == [".h/z", "a-b/y", "a.c", "a/x", "b", "m"])
        #expect(try paths("*") == ["a.c", "b", "m"])
        #expect(try paths("{a,l}/*") == ["a/x"])
        #expect(try paths("?") == ["b", "m"])
    }

    @Test func limits() throws {
        let directory = try TemporaryDirectory()
        for name in ["a", "b", "c"] { try directory.write(name, [UInt8](repeating: 0x61, count: 600)) }
        func run(_ limits: BundleLimits) throws -> (Int, [String], Bool) {
            let result = try bundled(["\(directory.path)/*"], limits: limits)
            return (
                result.members.count - 1, reasons(result.manifest).map { $0.replacing(directory.path, with: "") },
                result.manifest["truncated"] as? Bool ?? false
            )
        }
        var limits = BundleLimits(max_files: 3, max_bytes_per_file: 600, max_total_bytes: 3 * 1_536)
        #expect(try run(limits) == (3, [], false))
        limits.max_files = 2
        #expect(try run(limits) == (2, ["-: file count limit reached"], true))
        limits.max_files = 4
        limits.max_total_bytes -= 1
        #expect(try run(limits) == (2, ["/c: total byte limit reached"], true))
        limits.max_total_bytes += 2
        limits.max_bytes_per_file = 599
        #expect(try run(limits) == (3, [], true))
    }

    @Test func filesThatShrink() throws {
        let directory = try TemporaryDirectory()
        try directory.write("a", [UInt8](repeating: 0x61, count: 600_000))
        try directory.write("b", Array("b".utf8))
        let (_, members, manifest) = try bundled(
            ["\(directory.path)/a", "\(directory.path)/b"],
            meanwhile: {
                _ = truncate("\(directory.path)/a", 400_000)
            })
        #expect(members[0].content.count == 600_000)
        #expect(members[0].content.dropFirst(400_000).allSatisfy { $0 == 0 })
        #expect(members[1].content == Array("b".utf8))
        let files = try #require(manifest["files"] as? [[String: Any]])
        #expect(files[0]["bytes_written"] as? Int == 400_000)
        #expect(files[0]["truncated"] as? Bool == true)
        #expect(manifest["truncated"] as? Bool == true)
    }

    @Test func timeRunsOut() throws {
        let directory = try TemporaryDirectory()
        for name in ["a", "b", "c"] { try directory.write(name, Array(name.utf8)) }
        var looks = 0
        let (_, members, manifest) = try bundled(
            ["\(directory.path)/a", "\(directory.path)/b", "/c"],
            isLate: {
                looks += 1
                return looks > 1
            })
        #expect(members.count == 2)
        #expect(reasons(manifest) == ["-: exceeded maximum collection time"])
        #expect(manifest["truncated"] as? Bool == true)
        // Also while nothing is found.
        looks = 0
        let late = try bundled(
            ["/usr/**/no such name", "/b"],
            isLate: {
                looks += 1
                return looks > 2
            })
        #expect(reasons(late.manifest) == ["-: exceeded maximum collection time"])
    }
}
