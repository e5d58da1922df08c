import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.sharedDaemon) struct ProcessAttachTests {
    private func attach(_ daemon: DaemonProcess, _ id: String, _ query: String = "") throws -> TestWebSocket {
        try TestWebSocket(try daemon.connect(), "\(RawConnection.processes)/\(id)/attach\(query)")
    }

    private static var terminal: [String: Any] { ["pty": ["rows": 24, "cols": 80]] }

    /// A shell with a known prompt on a terminal.
    private func shell(_ connection: RawConnection) throws -> String {
        // A dumb terminal, so that bash writes what is typed and nothing else.
        try connection.start(
            "PS1='ready> ' exec bash --norc --noprofile -i", ["pty": ["rows": 24, "cols": 80, "term": "dumb"]])
    }

    @Test func inputGoesThroughAPipe() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("cat; echo rest", ["stdin": true])
        #expect(try connection.info(id)["stdin"] as? Bool == true)
        let socket = try attach(daemon, id)
        #expect(try socket.next().json["attached"] as? NSDictionary == ["offset": 0, "stdin": true])
        let all = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 * 7) })
        for start in stride(from: 0, to: all.count, by: 70_000) {
            try socket.send(binary: all[start..<min(all.count, start + 70_000)])
        }
        try socket.send(#"{"eof":true}"#)
        let (output, exit, close) = try socket.finish()
        #expect(output == all + Data("rest\n".utf8))
        #expect(exit["exit_code"] as? Int == 0)
        #expect(exit["running"] as? Bool == false)
        #expect(exit["output"] == nil)
        #expect(close == .close(1000, ""))
        #expect(try connection.output(id).json["stdin"] as? Bool == true)
    }

    @Test func stdinIsClosedAtTheEndAndSaysSo() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start("exec <&-; echo closed; read line <&2; sleep 1000", ["stdin": true])
        let socket = try attach(daemon, id)
        _ = try socket.output { $0 == "closed\n" }
        // Nothing reads the pipe any more.
        try socket.send(binary: Data("lost".utf8))
        try socket.send(binary: Data("lost, too".utf8))
        #expect(try socket.next() == .text(#"{"stdin_closed":true}"#))
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try socket.finish().exit["signal"] as? String == "SIGKILL")
        // One that comes later is told at once.
        #expect(try attach(daemon, id).next().json["attached"] as? NSDictionary == ["offset": 0, "stdin": false])
    }

    /// A child that does not read stops the client that types, not the daemon, nor other clients.
    @Test func aChildThatDoesNotReadStopsTheSender() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let go = "\(daemon.directory.path)/\(newChat())"
        let id = try connection.start(
            "echo up; while [ ! -e \(go) ]; do sleep 0.02; done; wc -c", ["stdin": true])
        let (typist, viewer) = (try attach(daemon, id), try attach(daemon, id))
        _ = try typist.output { $0 == "up\n" }
        let before = ProcFS.residentKiB(daemon.pid)
        // 16 MiB; what neither pipe, socket nor the daemon's bounds take waits in this thread.
        let (count, piece) = (256, Data(count: 64 << 10))
        let frames = Data((0..<count).flatMap { _ in TestWebSocket.frame(0x82, piece) })
        let descriptor = typist.connection.descriptor
        let sender = Thread {
            var rest = frames[...]
            while !rest.isEmpty {
                let n = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                if n <= 0 { return }
                rest = rest.dropFirst(n)
            }
        }
        sender.start()
        #expect(try viewer.output { $0 == "up\n" } == "up\n")
        for _ in 0..<50 { _ = try connection.run("true") }
        #expect(ProcFS.residentKiB(daemon.pid) < before + (8 << 10))
        #expect(!sender.isFinished)
        try "".write(toFile: go, atomically: false, encoding: .utf8)
        try await eventually("all is sent", within: .seconds(120)) { sender.isFinished }
        try typist.send(#"{"eof":true}"#)
        let (output, exit, close) = try typist.finish()
        #expect(String(decoding: output, as: UTF8.self) == "\(count * piece.count)\n", "\(exit) \(close)")
    }

    /// A client that goes while what it typed waits: nothing of it stays.
    @Test func aTypistThatLeavesCostsNothing() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        let id = try connection.start("echo up; sleep 1000", ["stdin": true])
        var socket: TestWebSocket? = try attach(daemon, id)
        _ = try socket?.output { $0 == "up\n" }
        for _ in 0..<4 { try socket?.send(binary: Data(count: 60_000)) }
        socket = nil
        try await eventually("nobody follows") {
            let metrics = try connection.request("GET", "/debug/prometheus").text
            return metrics.contains("agent_process_followers 0\n")
                && metrics.contains("agent_http_open_connections 1\n")
        }
        // The pipe is usable again for the next.
        #expect(try attach(daemon, id).next().json["attached"] as? NSDictionary == ["offset": 0, "stdin": true])
        #expect(try connection.signal(id, "kill").status == 200)
    }

    @Test func aTerminalIsOne() throws {
        let (daemon, connection) = try shared()
        let id = try connection.start(
            "tty; stty size; echo $TERM; ps -o tpgid= -p $$ | tr -d ' '; echo $$; read x; stty size",
            ["pty": ["rows": 33, "cols": 99, "term": "vt220"]])
        let socket = try attach(daemon, id)
        #expect(
            try socket.next().json["attached"] as? NSDictionary
                == ["offset": 0, "stdin": true, "pty": ["rows": 33, "cols": 99]])
        let lines = try socket.output { $0.split(separator: "\r\n").count == 5 && $0.utf8.last == 10 }.split(
            separator: "\r\n")
        #expect(lines[0].hasPrefix("/dev/pts/"))
        #expect(lines[1...2] == ["33 99", "vt220"])
        // The shell leads the terminal's foreground group.
        #expect(lines[3] == lines[4])
        #expect(try connection.info(id)["pty"] as? NSDictionary == ["rows": 33, "cols": 99])
        try socket.send(#"{"resize":{"rows":50,"cols":120}}"#)
        try socket.send(binary: Data("\r".utf8))
        #expect(String(decoding: try socket.finish().output, as: UTF8.self).hasSuffix("50 120\r\n"))
        #expect(try connection.output(id).json["pty"] as? NSDictionary == ["rows": 50, "cols": 120])
    }

    @Test func jobControlWorks() throws {
        let (daemon, connection) = try shared()
        let id = try shell(connection)
        let socket = try attach(daemon, id)
        func type(_ text: String) throws { try socket.send(binary: Data(text.utf8)) }
        _ = try socket.output { $0.hasSuffix("ready> ") }
        // It says itself when it has the terminal; the shell's echo comes before that.
        // By bash, which forks: dash vforks, and one that is stopped between that and exec never says that it stopped.
        try type("bash -c 'trap \"echo continued\" CONT; echo started; while :; do sleep 0.1; done'\r")
        _ = try socket.output { $0.hasSuffix("\r\nstarted\r\n") }
        try type("\u{1A}")
        #expect(try socket.output { $0.hasSuffix("ready> ") }.contains("Stopped"))
        try type("fg\r")
        _ = try socket.output { $0.hasSuffix("\r\ncontinued\r\n") }
        try type("\u{3}")
        _ = try socket.output { $0.hasSuffix("ready> ") }
        try type("trap 'stty size' WINCH; echo trapped\r")
        _ = try socket.output { $0.hasSuffix("\r\ntrapped\r\nready> ") }
        try socket.send(#"{"resize":{"rows":7,"cols":70}}"#)
        // A signal that comes just before bash waits for a key is handled with the key.
        try type("\r")
        // The end of the input ends the shell, once it reads keys itself: while stty runs, it is no key.
        _ = try socket.output { $0.contains("7 70") && $0.hasSuffix("ready> ") }
        try socket.send(#"{"eof":true}"#)
        let (_, exit, close) = try socket.finish()
        #expect(exit["exit_code"] as? Int == 0)
        #expect(close == .close(1000, ""))
    }

    @Test func aLateViewerGetsTheScrollback() throws {
        let (daemon, connection) = try shared()
        let id = try shell(connection)
        let first = try attach(daemon, id)
        _ = try first.output { $0.hasSuffix("ready> ") }
        try first.send(binary: Data("seq 1 100000; stty -echo\r".utf8))
        _ = try first.output { $0.hasSuffix("100000\r\nready> ") }
        let late = try attach(daemon, id)
        let offset = try #require((try late.next().json["attached"] as? [String: Any])?["offset"] as? Int)
        let total = try #require(try connection.output(id).json["total_bytes"] as? Int)
        let replay = try late.output { $0.utf8.count == total - offset }
        #expect((262_144 - 10...262_144).contains(replay.utf8.count))
        // From the beginning of a line.
        let lines = replay.split(separator: "\r\n")
        #expect(Int(lines[0]).map { $0 + lines.count - 2 } == 100_000)
        // Both see what comes next, and both may type.
        try late.send(binary: Data("echo from the other\r".utf8))
        for socket in [first, late] {
            #expect(try socket.output { $0.hasSuffix("ready> ") } == "from the other\r\nready> ")
        }
        let again = try attach(daemon, id, "?offset=\(total)")
        #expect(try again.output { $0.hasSuffix("ready> ") } == "from the other\r\nready> ")
        #expect(try connection.signal(id, "kill").status == 200)
        #expect(try first.finish().exit["reason"] as? String == "killed_by_request")
    }

    @Test func aViewerThatStallsHoldsUpNobody() throws {
        let (daemon, connection) = try shared()
        let id = try shell(connection)
        let (stalled, active) = (try attach(daemon, id), try attach(daemon, id))
        _ = try active.output { $0.hasSuffix("ready> ") }
        try active.send(binary: Data("seq 1 500000 | tail -c 3000000; echo the end\r".utf8))
        let seen = try active.output { $0.hasSuffix("\r\nthe end\r\nready> ") }
        #expect(seen.contains("\r\n499999\r\n500000\r\nthe end"))
        // It has lost nothing.
        #expect(try stalled.output { $0.hasSuffix("\r\nthe end\r\nready> ") }.hasSuffix(seen))
        try active.send(binary: Data("exit 4\r".utf8))
        for socket in [stalled, active] { #expect(try socket.finish().exit["exit_code"] as? Int == 4) }
    }

    @Test func theLastOutputOfATerminalIsThere() throws {
        let (daemon, connection) = try shared()
        for _ in 0..<20 {
            let id = try connection.start("seq 1 3000; printf last", Self.terminal)
            let socket = try attach(daemon, id, "?offset=0")
            let (output, exit, _) = try socket.finish()
            let text = String(decoding: output, as: UTF8.self)
            #expect(text.hasSuffix("\r\n3000\r\nlast"))
            #expect(exit["total_bytes"] as? Int == text.utf8.count)
            #expect(try connection.finish(id)["total_bytes"] as? Int == text.utf8.count)
        }
    }

    /// A newer client may say what this daemon does not know: it must not lose its terminal for that.
    @Test func unknownMessagesLeaveTheConnection() throws {
        let (daemon, connection) = try shared()
        let piped = try connection.start("cat", ["stdin": true])
        let socket = try attach(daemon, piped)
        _ = try socket.next()
        func answer(_ text: String) throws -> String? {
            try socket.send(text)
            return (try socket.next().json["error"] as? [String: Any])?["message"] as? String
        }
        let unknown = #"unknown message; known are {"resize":{"rows":N,"cols":N}} and {"eof":true}"#
        for text in [
            "{}", #"{"eof":false}"#, #"{"resize":7}"#, #"{"paste":"x"}"#, "[]", "7", "null", #""x""#,
            #"{"x":"\#(String(repeating: "y", count: 1 << 20))"}"#,
        ] {
            #expect(try answer(text) == unknown, "\(text.prefix(100))")
        }
        #expect(try answer(#"{"resize":{"rows":1,"cols":1}}"#) == "the process has no terminal; start it with pty")
        let terminal = try connection.start("cat", Self.terminal)
        let typist = try attach(daemon, terminal)
        _ = try typist.next()
        for bad in [
            #"{"resize":{"rows":0,"cols":1}}"#, #"{"resize":{"rows":1,"cols":10001}}"#, #"{"resize":{"rows":1}}"#,
        ] {
            try typist.send(bad)
            let error = try typist.next().json["error"] as? [String: Any]
            #expect(error?["message"] as? String == "rows and cols must be from 1 to 10000", "\(bad)")
        }
        // Both still work.
        try socket.send(binary: Data("still here\n".utf8))
        #expect(try socket.next() == .binary(Data("still here\n".utf8)))
        for one in [socket, typist] {
            try one.send(#"{"eof":true}"#)
            #expect(try one.finish().close == .close(1000, ""))
        }
    }

    /// The second key ends the input after the first has handed over half a line.
    @Test(arguments: [("", ""), ("abc", "abc"), ("abc\n", "abc\n"), ("one\ntw", "one\ntw"), ("a\u{4}", "a")])
    func theEndOfATerminalsInputIsSeen(typed: String, read: String) throws {
        let (daemon, connection) = try shared()
        // The second cat gets the terminal as it was: no key is left for it.
        let id = try connection.start(
            "stty -echo -onlcr; printf 'up '; cat; printf ' then '; head -c 4", ["pty": ["rows": 24, "cols": 80]])
        let socket = try attach(daemon, id)
        _ = try socket.output { $0 == "up " }
        if !typed.isEmpty { try socket.send(binary: Data(typed.utf8)) }
        try socket.send(#"{"eof":true}"#)
        _ = try socket.output { $0 == "\(read) then " }
        try socket.send(binary: Data("more\n".utf8))
        #expect(String(decoding: try socket.finish().output, as: UTF8.self) == "more")
    }

    /// A program that draws its screen only when its size changes.
    @Test func aViewerThatComesBackSeesTheScreenDrawnAnew() async throws {
        let (daemon, connection) = try shared()
        let program = """
            import os, signal, sys, time
            known = os.get_terminal_size()
            def draw(*_):
                global known
                size = os.get_terminal_size()
                if size != known:
                    print(f'draw {size.lines}x{size.columns}', flush=True)
                known = size
            signal.signal(signal.SIGWINCH, draw)
            print('ready', flush=True)
            for line in sys.stdin:
                print('has', os.get_terminal_size().lines, flush=True)
            """
        let id = try connection.start(
            "stty -echo; exec python3 -c \"$program\"",
            Self.terminal.merging(
                ["env": ["program": program]]) { old, _ in old })
        let size = #"{"resize":{"rows":24,"cols":80}}"#
        let first = try attach(daemon, id, "?offset=0")
        _ = try first.output { $0 == "ready\r\n" }
        // It has all of the output: nothing is drawn for it.
        try first.send(size)
        let second = try attach(daemon, id)
        _ = try second.output { $0 == "ready\r\n" }
        try second.send(size)
        #expect(try second.output { $0.hasSuffix("draw 24x80\r\n") } == "draw 25x80\r\ndraw 24x80\r\n")
        #expect(try connection.info(id)["pty"] as? NSDictionary == ["rows": 24, "cols": 80])
        // Once, not with each size that it says.
        try second.send(size)
        try second.send(#"{"resize":{"rows":30,"cols":80}}"#)
        #expect(try second.output { $0.hasSuffix("\r\n") } == "draw 30x80\r\n")
        // One that goes at once leaves the right size behind.
        let hasty = try attach(daemon, id)
        _ = try hasty.next()
        try hasty.send(#"{"resize":{"rows":30,"cols":80}}"#)
        try hasty.close()
        try await eventually("the size is what it was") {
            try second.send(binary: Data("\n".utf8))
            return try second.output { $0.contains("has ") && $0.hasSuffix("\r\n") }.hasSuffix("has 30\r\n")
        }
        #expect(try connection.signal(id, "kill").status == 200)
    }

    @Test func mistakesCloseWithTheReason() throws {
        let (daemon, connection) = try shared()
        let plain = try connection.start("sleep 1000")
        let piped = try connection.start("sleep 1000", ["stdin": true])
        func reason(_ id: String, _ send: (TestWebSocket) throws -> Void) throws -> TestWebSocket.Message {
            let socket = try attach(daemon, id)
            _ = try socket.next()
            try send(socket)
            return try socket.next()
        }
        #expect(
            try reason(plain) { try $0.send(binary: Data([1])) }
                == .close(1008, "the process takes no input; start it with stdin or pty"))
        let deep = String(repeating: "[", count: 100_000)
        for bad in ["", "x", "{", #"{"eof":tru}"#, #"{"x":"\ud800"}"#, "{} {}", deep] {
            #expect(
                try reason(piped) { try $0.send(bad) } == .close(1003, "a text message is JSON"), "\(bad.prefix(100))")
        }
        let path = "\(RawConnection.processes)/\(plain)/attach"
        #expect(try connection.request("GET", path).status == 426)
        #expect(try TestWebSocket.handshake(try daemon.connect(), path + "?offset=1").status == 416)
        #expect(try TestWebSocket.handshake(try daemon.connect(), path + "?x=1").status == 400)
        // The process is none the worse for it.
        for id in [plain, piped] {
            #expect(try connection.output(id).json["running"] as? Bool == true)
            #expect(try connection.signal(id, "kill").status == 200)
        }
    }

    @Test func terminalsLeaveNothingBehind() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        // It is accepted, and counted.
        _ = try connection.run("true")
        let before = ProcFS.descriptors(daemon.pid)
        for index in 0..<30 {
            let id = try connection.start("cat", index % 2 == 0 ? Self.terminal : ["stdin": true])
            let socket = try attach(daemon, id)
            try socket.send(binary: Data("hello\n".utf8))
            _ = try socket.output { $0.contains("hello") }
            try socket.send(#"{"eof":true}"#)
            #expect(try socket.finish().exit["exit_code"] as? Int == 0)
        }
        try await eventually("all descriptors are closed") { ProcFS.descriptors(daemon.pid) <= before }
    }
}
