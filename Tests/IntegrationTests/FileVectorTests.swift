import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Every recorded request to the file routes, sent to the daemon as an ordinary user.
@Suite(.timeLimit(.minutes(5)), .blocking) struct FileVectorTests {
    /// What the reference answers and we do not: see the file's own `not_to_copy`.
    private static let badRequestInsteadOf500: Set<String> = [
        "ls_relative", "ls_file", "ls_bad_relativity", "ls_no_relativity", "read_below_file", "lines_below_file",
        "write_below_file", "edit_below_file", "resolve_below_file", "read_symlink_loop", "write_loop",
        "edit_loop_500", "resolve_loop", "resolve_self_loop_below", "resolve_name_too_long", "write_name_256",
        "resolve_links_40", "read_path_with_nul",
    ]
    /// Cases whose answer is ours; each has a test of its own below.
    private static let answeredOtherwise: Set<String> = [
        "lines_limit_huge_offset", "lines_cut_in_utf8", "write_name_242", "read_proc_says_empty", "read_head",
        "read_range_header_ignored", "edit_text_behind_json", "unknown_route", "write_unknown_key",
        "edit_unknown_key", "edit_noop_rewrites", "write_over_read_only", "edit_read_only_file", "edit_read_only_dir",
        "edit_second_write_fails",
    ]

    @Test func everyRecordedRequestIsAnsweredAlike() throws {
        let world = try FileWorld()
        var compared = 0
        for item in try FileWorld.cases() where item["bundle_limits"] == nil {
            let name = item["name"] as? String ?? ""
            guard !Self.answeredOtherwise.contains(name) else { continue }
            var expected = try world.part(item, "response")
            if Self.badRequestInsteadOf500.contains(name), expected["status"] as? Int == 500 {
                expected["status"] = 400
            }
            try world.set(item)
            let before = try world.snapshot()
            let response = try world.send(try world.part(item, "request"))
            try Self.compare(response, expected, name)
            let changed = try item["changed"].map { _ in try world.list(item, "changed") } ?? []
            world.compare(before, changed, name)
            compared += 1
        }
        #expect(compared == 229 - 3 - Self.answeredOtherwise.count)
    }

    @Test func whatIsNotToBeCopiedIsAnsweredOurWay() throws {
        let world = try FileWorld()
        for item in try FileWorld.cases() {
            guard let name = item["name"] as? String, Self.answeredOtherwise.contains(name) else { continue }
            try world.set(item)
            let before = try world.snapshot()
            let response = try world.send(try world.part(item, "request"))
            switch name {
            case "lines_limit_huge_offset":
                #expect(response.json["lines_read"] as? Int == 5, "\(name)")
            case "lines_cut_in_utf8":
                let content = response.json["content"] as? String ?? ""
                #expect(content == "1\t" + String(repeating: "é", count: 512) + "... [truncated]", "\(name)")
            case "write_name_242": #expect(response.status == 200, "\(name): \(response.text)")
            case "read_proc_says_empty": #expect(response.text == "Linux\n", "\(name)")
            case "read_head":
                #expect(response.status == 200 && response.headers["content-length"] == "12", "\(name)")
            case "read_range_header_ignored":
                #expect(response.status == 206 && response.text == "hell", "\(name)")
                #expect(response.headers["content-range"] == "bytes 0-3/12", "\(name)")
            case "edit_text_behind_json", "write_unknown_key":
                // The second uses a key that we know; 644 is a mode.
                #expect(response.status == (name == "write_unknown_key" ? 200 : 400), "\(name)")
            case "unknown_route":
                #expect(response.status == 404 && response.json["message"] != nil, "\(name)")
            case "edit_unknown_key", "edit_noop_rewrites":
                // The first is a dry run with us.
                #expect(response.status == 200, "\(name): \(response.text)")
                world.compare(before, [], name)
            case "write_over_read_only", "edit_read_only_file":
                let path = "\(world.root)/\(name == "write_over_read_only" ? "n.txt" : "x")"
                #expect(response.status == 403, "\(name): \(response.text)")
                #expect(response.json["message"] as? String == "open \(path): permission denied")
                world.compare(before, [], name)
            case "edit_read_only_dir":
                // The file may be written, though nothing may be made beside it.
                #expect(response.status == 200, "\(name): \(response.text)")
                #expect((response.json["files"] as? [[String: Any]])?.first?["in_place"] as? Bool == true)
                world.compare(before, [["path": "d/x", "mode": "0644", "content": "pear\n"]], name)
                #expect(try world.snapshot()["d/x"]?.inode == before["d/x"]?.inode)
            case "edit_second_write_fails":
                // It does not: the second file may be written, though nothing may be made beside it.
                #expect(response.status == 200, "\(name): \(response.text)")
                let files = response.json["files"] as? [[String: Any]]
                #expect(files?.map { $0["in_place"] as? Bool ?? false } == [false, true], "\(response.text)")
                #expect(try world.snapshot()["d/x"]?.inode == before["d/x"]?.inode)
            default: Issue.record("\(name) is compared with nothing")
            }
        }
    }

    @Test func keysThatNeitherSideKnows() throws {
        let world = try FileWorld()
        try world.set(["files": [["path": "hello.txt", "content": "hello world\n"]]])
        let write = try world.send(["method": "POST", "url": "/api/v0/write-file?path=$ROOT/n&foo=1", "body": "x"])
        #expect(write.status == 400 && write.text.contains(#"\"foo\" is not a valid query param"#))
        let edit: [String: Any] = [
            "path": "$ROOT/hello.txt", "edits": [["search": "hello", "replace": "bye", "foo": 1]],
        ]
        let answer = try world.send(
            ["method": "POST", "url": "/api/v0/edit-files", "json": ["files": [edit], "foo": true] as [String: Any]])
        #expect(answer.status == 200)
        #expect(try String(contentsOfFile: "\(world.root)/hello.txt", encoding: .utf8) == "bye world\n")
    }

    private static func compare(_ response: RawConnection.Response, _ expected: [String: Any], _ name: String) throws {
        #expect(response.status == expected["status"] as? Int, "\(name): \(response.text.prefix(300))")
        if response.status != 405 {
            for header in ["content-type", "content-length"] {
                guard let value = expected[header] as? String else { continue }
                #expect(response.headers[header] == value, "\(name) \(header)")
            }
        } else {
            let allowed = (response.headers["allow"] ?? "").split(separator: ", ").map(String.init)
            #expect(allowed.contains(expected["allow"] as? String ?? "-"), "\(name)")
        }
        if let body = expected["body"], response.status != 405 {
            try FileWorld.matches(response.body, body, "\(name) body")
        }
        if let json = expected["json"] as? [String: Any] {
            try compare(json: response.json, json, name)
        }
        if expected["tar"] != nil { try FileWorld.compareTar(response.body, expected["tar"], name) }
    }

    private static func compare(json answer: [String: Any], _ expected: [String: Any], _ name: String) throws {
        var (answer, expected) = (answer, expected)
        // Texts of the JSON decoder are the decoder's; ours adds entity tags and how edits matched.
        if expected["message"] as? String == "Request body must be valid JSON."
            || expected["message"] as? String == "Request body too large."
        {
            for key in ["detail", "validations"] {
                answer[key] = nil
                expected[key] = nil
            }
            // The HTTP layer's own sentence.
            if let message = answer["message"] as? String, message.hasPrefix("Request body ") {
                answer["message"] = expected["message"]
            }
        }
        answer["etag"] = nil
        if let files = answer["files"] as? [[String: Any]] {
            answer["files"] = files.map { $0.filter { $0.key != "edits" } }
        }
        if let content = expected["content"] as? [String: Any] {
            try FileWorld.matches(Data((answer["content"] as? String ?? "").utf8), content, "\(name) content")
            answer["content"] = nil
            expected["content"] = nil
        }
        if let message = answer["message"] as? String, let wanted = expected["message"] as? String,
            wanted.contains(".tmp.XXXXXXXX")
        {
            answer["message"] = message.replacing(/\.tmp\.[0-9a-f]{8}/, with: ".tmp.XXXXXXXX")
        }
        #expect(NSDictionary(dictionary: answer) == NSDictionary(dictionary: expected), "\(name): \(answer)")
    }
}
