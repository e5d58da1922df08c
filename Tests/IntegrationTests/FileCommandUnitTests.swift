import Foundation
import LocalAgent
import Testing

@testable import WorkspaceAgent

/// The parts of the file commands that need no daemon.
@Suite struct FileCommandUnitTests {
    private func json(_ value: some Encodable) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }

    private let here = FileManager.default.currentDirectoryPath

    @Test func pathsAreMadeAbsolute() throws {
        #expect(try WorkingDirectory.absolute("/a/../b") == "/a/../b")
        #expect(try WorkingDirectory.absolute("a/../b") == "\(here)/a/../b")
        #expect(try WorkingDirectory.absolute(".") == here)
        #expect(FileClient.target("read-file", [("path", "/ä b&c"), ("limit", "3")]).hasSuffix("&limit=3"))
        #expect(FileClient.target("x", [("path", "/ä b&c=")]) == "/api/v0/x?path=%2F%C3%A4%20b%26c%3D")
    }

    @Test(arguments: [
        (["f"], "read-file"), (["/f", "--offset", "5", "--limit", "0"], "read-file offset=5 limit=0"),
        (["f", "--lines"], "read-file-lines"),
        (["f", "--lines", "--from", "7", "--count", "2"], "read-file-lines offset=7 limit=2"),
    ])
    func readAsksForWhatWasTyped(_ arguments: [String], _ wanted: String) throws {
        let (name, query) = try FileReadCommand.parse(arguments).request()
        #expect(query.first?.0 == "path" && query.first?.1.hasSuffix("/f") == true)
        #expect(([name] + query.dropFirst().map { "\($0)=\($1)" }).joined(separator: " ") == wanted)
    }

    @Test func linesAreTextOrAFailure() throws {
        func text(_ json: String) throws -> String {
            let lines = try JSONDecoder().decode(FileReadCommand.Lines.self, from: Data(json.utf8))
            return String(decoding: try FileReadCommand.text(lines), as: UTF8.self)
        }
        #expect(try text(#"{"success": true, "content": "1\ta\n2\tb"}"#) == "1\ta\n2\tb\n")
        #expect(try text(#"{"success": true}"#) == "")
        #expect(throws: CommandFailure.self) { try text(#"{"success": false, "error": "file does not exist: /f"}"#) }
    }

    @Test(arguments: [
        ["--offset", "-1"], ["--limit", "-1"], ["--from", "1"], ["--count", "1"], ["--lines", "--from", "0"],
        ["--lines", "--count", "0"], ["--lines", "--offset", "1"], ["--lines", "--limit", "1"],
    ])
    func badReads(_ arguments: [String]) {
        #expect(throws: (any Error).self) { try FileReadCommand.parse(["f"] + arguments) }
    }

    @Test func writeSaysItsConditionsInHeaders() throws {
        func headers(_ arguments: String...) throws -> [String: String] {
            try FileWriteCommand.parse(["f"] + arguments).headers.filter { $0.key != "Content-Type" }
        }
        #expect(try headers() == [:])
        #expect(try headers("--new") == ["If-None-Match": "*"])
        #expect(try headers("--if-match", "*") == ["If-Match": "*"])
        #expect(try headers("--if-match", "1-2") == ["If-Match": #""1-2""#])
        #expect(try headers("--if-match", #""1-2""#) == ["If-Match": #""1-2""#])
        let query = try FileWriteCommand.parse(["/f", "--mode", "0755", "--append"]).query()
        #expect(query.map { "\($0)=\($1)" } == ["path=/f", "mode=0755", "append=true"])
    }

    @Test(arguments: [
        ["--mode", "8"], ["--mode", "10000"], ["--mode", "-1"], ["--mode", "rwx"], ["--new", "--if-match", "x"],
        ["--if-match", ""], ["--if-match", "a\r\nX: y"],
    ])
    func badWrites(_ arguments: [String]) {
        #expect(throws: (any Error).self) { try FileWriteCommand.parse(["f"] + arguments) }
    }

    @Test func editsAreThoseOfTheAPI() throws {
        func body(_ arguments: String..., list: [FileEditCommand.Edit] = []) throws -> String {
            try json(FileEditCommand.parse(["/f"] + arguments).body(list))
        }
        #expect(
            try body("--search", "-a\n", "--replace", "")
                == #"{"files":[{"edits":[{"replace":"","search":"-a\n"}],"path":"/f"}],"include_diff":true}"#)
        #expect(
            try body("--search", "a", "--replace", "--all", "--all", "--dry-run", "--no-diff")
                == #"{"dry_run":true,"files":[{"edits":[{"replace":"--all","replace_all":true,"search":"a"}],"#
                + #""path":"/f"}],"include_diff":false}"#)
        #expect(
            try body("--insert-line", "0", "--text", "- x")
                == #"{"files":[{"edits":[{"insert_line":0,"text":"- x"}],"path":"/f"}],"include_diff":true}"#)
        let list = #"[{"insert_line": 3, "text": "t"}, {"search": "a", "replace": "b", "replace_all": false}]"#
        let edits = try FileEditCommand.Edit.list(Array(list.utf8), from: "x")
        #expect(
            try body("--edits", "-", list: edits)
                == #"{"files":[{"edits":[{"insert_line":3,"text":"t"},"#
                + #"{"replace":"b","replace_all":false,"search":"a"}],"path":"/f"}],"include_diff":true}"#)
    }

    @Test(arguments: [
        [], ["--search", "a"], ["--replace", "a"], ["--text", "a"], ["--insert-line", "1"], ["--all", "--edits", "-"],
        ["--search", "a", "--replace", "b", "--edits", "-"], ["--insert-line", "-1", "--text", "a"],
        ["--search", "a", "--replace", "b", "--insert-line", "1", "--text", "a"],
        ["--insert-line", "1", "--text", "a", "--all"],
    ])
    func badEdits(_ arguments: [String]) {
        #expect(throws: (any Error).self) { try FileEditCommand.parse(["f"] + arguments) }
    }

    @Test(arguments: [
        ("", "has no JSON list of edits"), ("{}", "has no JSON list of edits"), ("[]", "has no JSON list of edits"),
        ("[1]", "has no JSON list of edits"), (#"[{"search": 1}]"#, "has no JSON list of edits"),
        (#"[{"search": "a", "replace": "b"}, {"serch": "a"}]"#, #"edit 2 in x has the unknown field "serch""#),
    ])
    func badLists(_ list: String, _ text: String) {
        do {
            _ = try FileEditCommand.Edit.list(Array(list.utf8), from: "x")
            Issue.record("taken: \(list)")
        } catch {
            #expect((error as? CommandFailure)?.message.contains(text) == true, "\(error)")
        }
    }

    @Test func searchesAreThoseOfTheAPI() throws {
        #expect(try json(FileGrepCommand.parse(["a|b"]).body()) == #"{"pattern":"a|b","root":"\#(here)"}"#)
        let all = ["x", "/r", "--fixed", "--ignore-case", "--glob", "*.c", "--context", "2", "--limit", "5"]
        #expect(
            try json(FileGrepCommand.parse(all).body())
                == #"{"context":2,"fixed":true,"glob":"*.c","ignore_case":true,"limit":5,"pattern":"x","root":"/r"}"#)
        #expect(try json(FileGlobCommand.parse(["*.c"]).body()) == #"{"pattern":"*.c","root":"\#(here)"}"#)
        #expect(
            try json(FileGlobCommand.parse(["*.c", "s", "--limit", "5", "--no-gitignore"]).body())
                == #"{"gitignore":false,"limit":5,"pattern":"*.c","root":"\#(here)/s"}"#)
    }

    private func grep(_ json: String) throws -> String {
        let matches = try JSONDecoder().decode([FileGrepCommand.Answer.Match].self, from: Data(json.utf8))
        return String(decoding: FileGrepCommand.text(matches).bytes, as: UTF8.self)
    }

    @Test func matchesArePrintedAsGrepDoes() throws {
        #expect(
            try grep(#"[{"path":"/a","line":3,"text":"x:y"},{"path":"/b","line":1,"text":""}]"#) == "/a:3:x:y\n/b:1:\n")
        // Another match on the same line.
        #expect(try grep(#"[{"path":"/a","line":3,"text":"x"},{"path":"/a","line":3,"text":"x"}]"#) == "/a:3:x\n")
        #expect(try grep("[]") == "")
    }

    @Test func contextsThatTouchAreOne() throws {
        func match(_ path: String, _ line: Int, _ before: Int, _ after: Int) -> String {
            func texts(_ lines: Range<Int>) -> String { lines.map { "\"t\($0)\"" }.joined(separator: ",") }
            return #"{"path":"\#(path)","line":\#(line),"text":"t\#(line)","before":[\#(texts(line - before..<line))],"#
                + #""after":[\#(texts(line + 1..<line + 1 + after))]}"#
        }
        let matches = [match("/a", 2, 1, 2), match("/a", 4, 2, 2), match("/a", 9, 2, 0), match("/b", 9, 0, 1)]
        #expect(
            try grep("[\(matches.joined(separator: ","))]") == """
                /a-1-t1
                /a:2:t2
                /a-3-t3
                /a:4:t4
                /a-5-t5
                /a-6-t6
                /a-7-t7
                /a-8-t8
                /a:9:t9
                --
                /b:9:t9
                /b-10-t10

                """)
        #expect(
            try grep("[\(match("/a", 2, 1, 1)),\(match("/a", 6, 1, 1))]")
                == "/a-1-t1\n/a:2:t2\n/a-3-t3\n--\n/a-5-t5\n/a:6:t6\n/a-7-t7\n")
    }

    @Test func pathsComeAsTheyAreOnDisk() {
        var out = FoundPaths()
        out.add("/a\u{10FEFF}b", ":1:x")
        #expect(out.bytes == Array("/a".utf8) + [0xFF] + Array("b:1:x\n".utf8))
    }
}
