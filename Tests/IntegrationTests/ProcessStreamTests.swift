import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessStreamTests {
    private func path(_ id: String, _ query: String = "") -> String {
        "\(RawConnection.processes)/\(id)/output/stream\(query)"
    }

    /// The bytes of `output` events and the last event.
    private func finish(_ stream: EventStream) throws -> (bytes: Data, exit: EventStream.Event) {
        var bytes = Data()
        while let event = try stream.next() {
            if event.kind == "exit" {
                #expect(try stream.next() == nil)
                return (bytes, event)
            }
            #expect(event.json["offset"] as? Int == bytes.count)
            bytes += event.bytes
            #expect(event.id == "\(bytes.count)")
        }
        throw DeadlineExceeded(what: "an exit event")
    }

    @Test func outputComesAsItIsWritten() throws {
        let (daemon, connection) = try shared()
        let fifo = "\(daemon.directory.path)/\(newChat())"
        mkfifo(fifo, 0o600)
        let id = try connection.start("echo one; read line <\(fifo); echo $line é; exit 3")
        let stream = try EventStream(try daemon.connect(), path(id))
        let first = try #require(try stream.next())
        #expect((first.kind, first.id, first.data) == ("output", "4", #"{"offset":0,"text":"one\n"}"#))
        try "two\n".write(toFile: fifo, atomically: false, encoding: .utf8)
        let second = try #require(try stream.next())
        #expect(second.json["text"] as? String == "two é\n")
        let exit = try #require(try stream.next())
        #expect(exit.kind == "exit")
        var answer = try connection.output(id).json
        #expect(answer.removeValue(forKey: "output") as? String == "one\ntwo é\n")
        #expect(NSDictionary(dictionary: answer) == NSDictionary(dictionary: exit.json))
        #expect(try stream.next() == nil)
    }

    /// Proxies close what is silent for long.
    @Test func silenceIsBridgedByComments() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("sleep 1000")
        let stream = try EventStream(try daemon.connect(), path(id))
        let begin = ContinuousClock.now
        let event = try #require(try stream.next())
        #expect(event.comments == 1 && event.kind == "")
        #expect(begin.duration(to: .now) >= .seconds(14))
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try stream.next()?.kind == "exit")
    }

    @Test func offsetsAndLastEventID() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("printf 'a€b'")
        _ = try connection.finish(id)
        for (query, headers, expected) in [
            ("", [:], "a€b"), ("?offset=1", [:], "€b"), ("?offset=4", [:], "b"), ("?offset=5", [:], ""),
            ("?offset=0", ["Last-Event-ID": "4"], "b"), ("", ["Last-Event-ID": "5"], ""),
        ] {
            let stream = try EventStream(try daemon.connect(), path(id, query), headers: headers)
            var text = ""
            while let event = try stream.next(), event.kind == "output" {
                text += String(decoding: event.bytes, as: UTF8.self)
            }
            #expect(text == expected, "\(query) \(headers)")
        }
        let past = try connection.request("GET", path(id, "?offset=6"))
        #expect(past.status == 416)
        #expect(past.headers["content-range"] == "bytes */5")
        for (query, headers) in [
            ("?offset=-1", [:]), ("?offset=x", [:]), ("?limit=1", [:]), ("", ["Last-Event-ID": "x"]),
            ("", ["Last-Event-ID": "-1"]),
        ] {
            #expect(try connection.request("GET", path(id, query), headers: headers).status == 400, "\(query)")
        }
        #expect(try connection.request("GET", path(newChat())).status == 404)
    }

    @Test func otherChatsSeeNothing() throws {
        let (daemon, connection) = try shared()
        let (own, other) = (newChat(), newChat())
        let id = try connection.start("echo secret", chat: own)
        for suffix in ["output/stream", "attach", "wait?for=exit"] {
            let path = "\(RawConnection.processes)/\(id)/\(suffix)"
            let answer = try TestWebSocket.handshake(try daemon.connect(), path, chat: other)
            #expect(answer.status == 404, "\(suffix)")
            #expect(answer.json["message"] as? String == "Process \"\(id)\" not found.")
        }
        #expect(
            try finish(try EventStream(connection, path(id), headers: ["Coder-Chat-Id": own])).bytes
                == Data("secret\n".utf8))
    }

    /// Streams that are cut at any moment and resumed at the last id: every byte once, in order.
    @Test func cutStreamsResumeWithoutLoss() throws {
        let (daemon, connection) = try shared()
        var random = SeededGenerator("cutStreamsResumeWithoutLoss")
        // Lines, and bytes that are no text, until the client was cut often enough.
        let enough = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start(
            "i=0; while [ ! -e \(enough) ]; do i=$((i + 1)); seq $i $((i + 400)); head -c 3000 /dev/urandom; sleep 0.005; done"
        )
        var (bytes, cuts) = (Data(), 0)
        var resumed = "0"
        reading: while true {
            let stream = try EventStream(try daemon.connect(), path(id), headers: ["Last-Event-ID": resumed])
            let limit = cuts < 100 ? Int.random(in: 1...3, using: &random) : .max
            for _ in 0..<limit {
                let event = try #require(try stream.next())
                if event.kind == "exit" { break reading }
                #expect(event.json["offset"] as? Int == bytes.count)
                bytes += event.bytes
                resumed = event.id
            }
            cuts += 1
            if cuts == 100 { try "".write(toFile: enough, atomically: false, encoding: .utf8) }
        }
        let raw = try connection.request("GET", "\(RawConnection.processes)/\(id)/output/raw").body
        #expect(bytes == raw)
    }

    @Test func twoHundredFollowersOfOneProcess() throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let fifo = "\(daemon.directory.path)/\(newChat())"
        mkfifo(fifo, 0o600)
        let id = try connection.start("echo first; read line <\(fifo); seq 1 20000")
        let threads = ProcFS.threads(daemon.pid)
        let streams = try (0..<200).map { _ in try EventStream(try daemon.connect(), path(id)) }
        for stream in streams { #expect(try stream.next()?.data == #"{"offset":0,"text":"first\n"}"#) }
        #expect(ProcFS.threads(daemon.pid) <= threads + 2)
        try "go\n".write(toFile: fifo, atomically: false, encoding: .utf8)
        let expected = Data("first\n".utf8) + Data((1...20_000).map { "\($0)\n" }.joined().utf8)
        for stream in streams {
            var bytes = Data("first\n".utf8)
            while let event = try stream.next(), event.kind == "output" { bytes += event.bytes }
            #expect(bytes == expected)
        }
    }

    /// A client that reads nothing: the process goes on at full speed, and the client gets everything later.
    @Test func aSlowReaderHoldsUpNobodyAndLosesNothing() throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let before = ProcFS.residentKiB(daemon.pid)
        let command = "seq 1 6000000"
        let id = try connection.start(command)
        let stream = try EventStream(try daemon.connect(), path(id))
        #expect(try connection.finish(id)["total_bytes"] as? Int == 46_888_896)
        // Its spool waits in memory at times; what a follower holds is far less.
        #expect(ProcFS.residentKiB(daemon.pid) < before + (64 << 10))
        var (offset, line) = (0, 1)
        var rest = ""
        while let event = try stream.next(), event.kind == "output" {
            let text = try #require(event.json["text"] as? String)
            offset += text.utf8.count
            var lines = (rest + text).split(separator: "\n", omittingEmptySubsequences: false)
            rest = String(lines.removeLast())
            for next in lines {
                if Int(next) != line { Issue.record("\(next) in place of \(line)") }
                line += 1
            }
        }
        #expect(offset == 46_888_896)
        #expect(line == 6_000_001)
    }

    /// 70 MiB with a spool of 64: what is kept nowhere is said.
    @Test func whatIsGoneIsSaid() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("head -c 73400320 /dev/zero; echo end")
        _ = try connection.finish(id)
        let stream = try EventStream(try daemon.connect(), path(id, "?offset=67108860"))
        let last = try #require(try stream.next())
        #expect((last.kind, last.id) == ("output", "67108864"))
        let gone = try #require(try stream.next())
        #expect((gone.kind, gone.json["offset"] as? Int) == ("gone", 67_108_864))
        let missing = try #require(gone.json["bytes"] as? Int)
        #expect(gone.id == "\(67_108_864 + missing)")
        var offset = 67_108_864 + missing
        var bytes = Data()
        while let event = try stream.next(), event.kind == "output" {
            #expect(event.json["offset"] as? Int == offset)
            offset += event.bytes.count
            bytes += event.bytes
        }
        #expect(offset == 73_400_324)
        #expect(bytes.count >= 16 << 10)
        #expect(bytes.suffix(4) == Data("end\n".utf8))
    }

    @Test func aClientThatLeavesCostsNothing() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("echo hello; sleep 1000")
        _ = try EventStream(try daemon.connect(), path(id)).next()
        try await eventually("only this connection is open") {
            let metrics = try connection.request("GET", "/debug/prometheus").text
            return metrics.contains("agent_process_followers 0\n")
                && metrics.contains("agent_http_open_connections 1\n")
        }
        #expect(try connection.signal(id, "kill").status == 200)
    }

    @Test func theDaemonsEndEndsStreams() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("echo hello; sleep 1000")
        let stream = try EventStream(try daemon.connect(), path(id))
        let socket = try TestWebSocket(try daemon.connect(), "\(RawConnection.processes)/\(id)/attach")
        #expect(try stream.next()?.json["text"] as? String == "hello\n")
        #expect(try socket.output { $0 == "hello\n" } == "hello\n")
        #expect(try await daemon.stop() == 0)
        #expect(try stream.next() == nil)
        #expect(try socket.next() == .close(1001, ""))
    }
}
