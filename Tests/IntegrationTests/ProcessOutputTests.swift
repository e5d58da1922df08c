import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessOutputTests {
    @Test func stdoutAndStderrKeepTheirOrder() throws {
        let answer = try shared().connection.run("for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
        let expected = (1...9).map { "o\($0)\ne\($0)\n" }.joined()
        #expect(answer["output"] as? String == expected)
        #expect(answer["truncated"] == nil)
    }

    @Test func exactlyTheBytesUpTo32KiB() throws {
        let (_, connection) = try shared()
        // 512 lines of 64 bytes.
        let answer = try connection.run("i=0; while [ $i -lt 512 ]; do printf '%063d\\n' $i; i=$((i+1)); done")
        let text = try #require(answer["output"] as? String)
        #expect(text.utf8.count == 32 << 10)
        #expect(answer["truncated"] == nil)
        #expect(answer["total_bytes"] as? Int == 32 << 10)
        #expect(text == (0..<512).map { String(format: "%063d\n", $0) }.joined())
    }

    @Test func headAndTailBeyond() throws {
        let (_, connection) = try shared()
        let answer = try connection.run("i=0; while [ $i -lt 1024 ]; do printf '%063d\\n' $i; i=$((i+1)); done")
        let text = try #require(answer["output"] as? String)
        let lines = (0..<1024).map { String(format: "%063d\n", $0) }
        let expected =
            lines[..<256].joined() + "\n\n... [omitted \(32 << 10) bytes] ...\n\n" + lines[768...].joined()
        #expect(text == expected)
        let truncated = try #require(answer["truncated"] as? [String: Any])
        #expect(truncated["original_bytes"] as? Int == 64 << 10)
        #expect(truncated["omitted_bytes"] as? Int == 32 << 10)
        #expect(truncated["retained_bytes"] as? Int == text.utf8.count)
        #expect(truncated["strategy"] as? String == "head_tail")
        #expect(truncated.count == 4)
    }

    @Test func longLinesAreCut() throws {
        let (_, connection) = try shared()
        let lines = "head -c 2048 /dev/zero | tr '\\0' a; echo; head -c 2049 /dev/zero | tr '\\0' b; echo; echo c"
        for (command, isTruncated) in [(lines, false), ("seq 1 6000; echo; \(lines)", true)] {
            let answer = try connection.run(command)
            let output = try #require(answer["output"] as? String)
            let last = Array(output.split(separator: "\n").suffix(3))
            try #require(last.count == 3)
            #expect(last[0] == String(repeating: "a", count: 2048))
            #expect(last[1] == String(repeating: "b", count: 2032) + " ... [truncated]")
            #expect(last[2] == "c")
            #expect(answer["cut_lines"] as? Int == 1)
            #expect((answer["truncated"] != nil) == isTruncated)
        }
        let short = try connection.run("head -c 2048 /dev/zero | tr '\\0' a")
        #expect(short["cut_lines"] == nil)
    }

    @Test func aFileOfOneLineIsCutAndRawHasAllOfIt() throws {
        let (_, connection) = try shared()
        let id = try connection.start("head -c 30000 /dev/zero | tr '\\0' x")
        let answer = try connection.finish(id)
        #expect(answer["output"] as? String == String(repeating: "x", count: 2032) + " ... [truncated]")
        #expect(answer["cut_lines"] as? Int == 1)
        #expect(answer["truncated"] == nil)
        #expect(answer["total_bytes"] as? Int == 30_000)
        #expect(try raw(id).text == String(repeating: "x", count: 30_000))
    }

    @Test func invalidUTF8() throws {
        let (_, connection) = try shared()
        let answer = try connection.run(#"printf 'a\377\376b\303\050c\000d\342\202'"#)
        let text = try #require(answer["output"] as? String)
        #expect(text.hasPrefix("a\u{FFFD}\u{FFFD}b\u{FFFD}(c\u{0}d\u{FFFD}"))
        #expect(answer["total_bytes"] as? Int == 11)
        let random = try connection.start("head -c 200000 /dev/urandom")
        let response = try connection.output(random, "?wait=true")
        #expect(!response.json.isEmpty, "not JSON")
    }

    @Test func cutsDoNotSplitCharacters() throws {
        let (_, connection) = try shared()
        // 20,000 times three bytes in lines of 31: no multiple of the ring's sizes.
        let answer = try connection.run(
            "i=0; while [ $i -lt 2000 ]; do echo €€€€€€€€€€; i=$((i+1)); done")
        let text = try #require(answer["output"] as? String)
        #expect(answer["total_bytes"] as? Int == 62_000)
        #expect(!text.contains("\u{FFFD}"))
        #expect(text.contains("[omitted "))
    }

    @Test func oneByteAtATime() throws {
        let (_, connection) = try shared()
        let answer = try connection.run("i=0; while [ $i -lt 2000 ]; do printf x; i=$((i+1)); done")
        #expect(answer["total_bytes"] as? Int == 2000)
        #expect(answer["output"] as? String == String(repeating: "x", count: 2000))
    }

    @Test func aHundredMegabytesThatNobodyReads() throws {
        let (_, connection) = try shared()
        let answer = try connection.run("head -c 104857600 /dev/zero | tr '\\0' '\\n'; exit 4")
        #expect(answer["exit_code"] as? Int == 4)
        #expect(answer["total_bytes"] as? Int == 104_857_600)
    }

    @Test func closedStdoutWhileRunning() async throws {
        let (daemon, connection) = try shared()
        let go = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start(
            "echo before; exec >/dev/null 2>&1; while [ ! -e \(go) ]; do sleep 0.02; done; exit 5")
        try await eventually("its output is here") { try connection.output(id).json["total_bytes"] as? Int == 7 }
        let running = try connection.output(id).json
        #expect(running["running"] as? Bool == true)
        #expect(running["output"] as? String == "before\n")
        try "".write(toFile: go, atomically: false, encoding: .utf8)
        #expect(try connection.finish(id)["exit_code"] as? Int == 5)
    }

    @Test func runningFalseNeverComesWithLess() throws {
        let (_, connection) = try shared()
        for _ in 0..<30 {
            let id = try connection.start("head -c 60000 /dev/zero; echo; echo last")
            var answer: [String: Any] = [:]
            repeat { answer = try connection.output(id).json } while answer["running"] as? Bool == true
            #expect(answer["total_bytes"] as? Int == 60_006)
        }
    }

    // MARK: Raw

    private func raw(_ id: String, _ query: String = "") throws -> RawConnection.Response {
        try shared().connection.request("GET", "/api/v0/processes/\(id)/output/raw\(query)")
    }

    @Test func rawIsTheCompleteOutput() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("seq 1 200000; echo error >&2")
        _ = try connection.finish(id)
        let expected = (1...200_000).map { "\($0)\n" }.joined() + "error\n"
        let response = try raw(id)
        #expect(response.status == 200)
        #expect(response.headers["content-type"] == "application/octet-stream")
        #expect(response.text == expected)
        #expect(response.headers["content-range"] == "bytes 0-\(expected.utf8.count - 1)/\(expected.utf8.count)")
        var info = stat()
        #expect(lstat("\(daemon.directory.path)/state/processes/\(id).out", &info) == 0)
        #expect(info.st_mode & 0o7777 == 0o600)
    }

    @Test func rawRanges() throws {
        let (_, connection) = try shared()
        let id = try connection.start("printf 0123456789")
        _ = try connection.finish(id)
        for (query, status, text, range) in [
            ("?offset=0", 200, "0123456789", "bytes 0-9/10"), ("?offset=3", 206, "3456789", "bytes 3-9/10"),
            ("?offset=3&limit=4", 206, "3456", "bytes 3-6/10"), ("?limit=1", 206, "0", "bytes 0-0/10"),
            ("?limit=10", 200, "0123456789", "bytes 0-9/10"), ("?limit=9999", 200, "0123456789", "bytes 0-9/10"),
            ("?offset=9&limit=9223372036854775807", 206, "9", "bytes 9-9/10"), ("?offset=10", 200, "", "bytes */10"),
        ] {
            let response = try raw(id, query)
            #expect(response.status == status, "\(query)")
            #expect(response.text == text, "\(query)")
            #expect(response.headers["content-range"] == range, "\(query)")
        }
        let past = try raw(id, "?offset=11")
        #expect(past.status == 416)
        #expect(past.headers["content-range"] == "bytes */10")
        #expect(past.json["message"] is String)
    }

    @Test func rawOfARunningProcess() async throws {
        let (_, connection) = try shared()
        let id = try connection.start("echo early; sleep 1000")
        try await eventually("its output is here") { try connection.output(id).json["total_bytes"] as? Int == 6 }
        #expect(try raw(id).text == "early\n")
    }

    @Test func rawOfSilence() throws {
        let (_, connection) = try shared()
        let id = try connection.start("true")
        _ = try connection.finish(id)
        let response = try raw(id)
        #expect(response.status == 200)
        #expect(response.body.isEmpty)
    }

    /// It writes no faster than the disk does: a spool that keeps a process waiting for long is given up.
    @Test func rawBeyondTheSpoolIsGone() throws {
        let (daemon, _) = try shared()
        let connection = try daemon.connect(timeout: 300)
        let (limit, step) = (64 << 20, 4 << 20)
        let link = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start(
            """
            size=0
            while [ $size -lt \(limit) ]; do
                head -c \(step) /dev/zero
                size=$((size + \(step)))
                until [ "$(stat -Lc %s \(link) 2>/dev/null || echo 0)" -ge $size ]; do sleep 0.01; done
            done
            head -c 10 /dev/zero
            """)
        try #require(symlink("\(daemon.directory.path)/state/processes/\(id).out", link) == 0)
        #expect(try connection.finish(id)["total_bytes"] as? Int == limit + 10)
        let last = try raw(id, "?offset=\(limit - 5)")
        #expect(last.status == 206)
        #expect(last.body.count == 5)
        #expect(last.headers["content-range"] == "bytes \(limit - 5)-\(limit - 1)/\(limit + 10)")
        let gone = try raw(id, "?offset=\(limit)")
        #expect(gone.status == 410)
        #expect(gone.json["message"] is String)
    }
}
