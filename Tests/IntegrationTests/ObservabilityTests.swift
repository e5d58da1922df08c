import AgentTestSupport
import Foundation
import Glibc
import Testing

@Suite(.blocking) struct ObservabilityTests {
    @Test func metricsAreThereAndMove() async throws {
        let daemon = try DaemonProcess()
        let connection = try daemon.connect()
        func value(_ series: String) throws -> Double { try #require(try daemon.metric(series), "\(series)") }
        // An answer may come before it is counted.
        func expect(_ series: String, _ expected: Double) async throws {
            try await eventually("\(series) is \(expected)") { try daemon.metric(series) == expected }
        }
        let response = try connection.request("GET", "/debug/prometheus")
        #expect(response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
        for series in [
            "agent_processes_started_total", "agent_processes_running", "agent_process_captured_bytes_total",
        ] {
            #expect(try value(series) == 0)
        }
        #expect(try value(#"agent_processes_exited_total{reason="exited"}"#) == 0)
        let sleeper = try connection.start("exec sleep 1000")
        _ = try connection.run("printf 0123456789")
        _ = try connection.run("kill -9 $$")
        _ = try connection.run("exec sleep 1000", ["timeout_ms": 1])
        try await expect("agent_processes_started_total", 4)
        try await expect("agent_processes_running", 1)
        _ = try connection.signal(sleeper, "kill")
        _ = try connection.finish(sleeper)
        try await expect("agent_processes_running", 0)
        for reason in ["exited", "signaled", "timeout", "killed_by_request"] {
            try await expect("agent_processes_exited_total{reason=\"\(reason)\"}", 1)
        }
        try await expect("agent_process_captured_bytes_total", 10)
        try await expect("agent_process_spool_bytes", 10)
        _ = try connection.request("GET", "/nowhere/at/all")
        _ = try connection.request("GET", "/")
        try await expect(#"agent_http_requests_total{route="/",method="GET",status="200"}"#, 1)
        try await expect(#"agent_http_requests_total{route="none",method="GET",status="404"}"#, 1)
        let route = "/api/v0/processes/{id}/output"
        try await expect("agent_http_requests_total{route=\"\(route)\",method=\"GET\",status=\"200\"}", 4)
        try await expect("agent_http_request_duration_seconds_count{route=\"\(route)\"}", 4)
        try await expect("agent_http_request_duration_seconds_bucket{route=\"\(route)\",le=\"+Inf\"}", 4)
        #expect(try value("agent_http_open_connections") >= 2)
        #expect(try value("process_resident_memory_bytes") > 1e6)
        #expect(try value("process_open_fds") > 5)
        #expect(try value("agent_http_accept_pauses_total") == 0)
        #expect(try await daemon.stop() == 0)
    }

    @Test func theExpositionIsWellFormed() throws {
        let daemon = try DaemonProcess()
        let text = try daemon.connect().request("GET", "/debug/prometheus").text
        var typed: Set<Substring> = []
        for line in text.split(separator: "\n") {
            if line.hasPrefix("# TYPE ") { #expect(typed.insert(line.split(separator: " ")[2]).inserted, "\(line)") }
            if line.hasPrefix("#") { continue }
            let parts = line.split(separator: " ")
            #expect(parts.count >= 2 && Double(parts.last ?? "") != nil, "\(line)")
        }
        #expect(text.hasSuffix("\n"))
    }

    @Test func prometheusAddress() async throws {
        let daemon = try DaemonProcess(arguments: ["--prometheus-address", "127.0.0.1:0"])
        let log = try await daemon.logged("serving metrics")
        let range = try #require(log.range(of: "address=127.0.0.1:"))
        let port = try #require(Int(log[range.upperBound...].prefix { $0.isNumber }))
        let response = try RawConnection(port: port).request("GET", "/metrics")
        #expect(response.status == 200)
        #expect(response.text.contains("agent_processes_running"))
        // Nothing else is there.
        #expect(try RawConnection(port: port).request("GET", "/api/v0/processes/list").status == 404)
        #expect(try await daemon.stop() == 0)
    }

    @Test func accessLog() async throws {
        let daemon = try DaemonProcess(tcp: true, logLevel: "debug")
        let (chat, ancestor) = (newChat(), newChat())
        let headers = daemon.authorization.merging(["Coder-Chat-Id": chat.uppercased()]) { old, _ in old }
        let connection = try daemon.connectTCP()
        _ = try connection.request(
            "GET", "/nowhere?secret=1",
            headers: headers.merging(["Coder-Ancestor-Chat-Ids": #"["\#(ancestor)"]"#]) { old, _ in old })
        _ = try connection.request("GET", "/?token=\(daemon.token)")
        _ = try await daemon.logged("status=401")
        let log = daemon.log
        let line = try #require(log.split(separator: "\n").first { $0.contains("path=/nowhere") })
        for part in [
            "DEBUG", "method=GET", "status=404", "bytes=", "duration_ms=", "chat_id=\(chat)", "peer=127.0.0.1:",
        ] {
            #expect(line.contains(part), "\(part) in \(line)")
        }
        #expect(!log.contains(daemon.token))
        #expect(!log.contains("secret"))
        #expect(log.split(separator: "\n").count { $0.contains("http request") } == 2)
    }

    @Test func everyLineOfARequestNamesItsChatAndAncestors() async throws {
        let daemon = try DaemonProcess(logLevel: "debug")
        let (chat, ancestor) = (newChat(), newChat())
        let headers = ["Coder-Chat-Id": chat, "Coder-Ancestor-Chat-Ids": #"["\#(ancestor)"]"#]
        _ = try daemon.connect().request(
            "POST", "/api/v0/processes/start", headers: headers, body: #"{"command":"true"}"#)
        _ = try daemon.connect().request(
            "GET", "/?\(String(repeating: "x", count: 9000))", headers: headers)
        for text in ["process started", "status=200", "status=414"] {
            // Two connections: their lines come in either order.
            let log = try await daemon.logged(text)
            let line = try #require(log.split(separator: "\n").first { $0.contains(text) })
            #expect(line.contains("chat_id=\(chat)"))
            #expect(line.contains("ancestor_chat_ids=") && line.contains(ancestor))
        }
    }

    @Test func theAccessLogIsOffAtInfo() async throws {
        let daemon = try DaemonProcess()
        _ = try daemon.connect().request("GET", "/")
        #expect(try await daemon.stop() == 0)
        #expect(!daemon.log.contains("http request"))
    }

    @Test func jsonLogs() async throws {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/agent.json"
        let daemon = try DaemonProcess(arguments: ["--log-json", file], logLevel: "trace")
        let connection = try daemon.connect()
        _ = try connection.request("GET", #"/quote"back\slash/%00%0a"#)
        _ = try connection.exchange("GET /\u{7f}ä HTTP/1.1\r\nHost: a\r\n\r\n")
        _ = try daemon.connect().run("true")
        #expect(try await daemon.stop() == 0)
        let lines = ProcFS.text(file).split(separator: "\n")
        #expect(lines.count > 4)
        for line in lines {
            let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            #expect(object?["ts"] is String && object?["level"] is String && object?["msg"] is String, "\(line)")
        }
    }

    @Test func debugLogsAndRotation() async throws {
        let daemon = try DaemonProcess(logLevel: "debug")
        let connection = try daemon.connect()
        let marker = newChat()
        _ = try connection.request("GET", "/\(marker)")
        let logs = try connection.request("GET", "/debug/logs")
        #expect(logs.status == 200)
        #expect(logs.headers["content-type"] == "text/plain; charset=utf-8")
        #expect(logs.text.contains("listening on"))
        #expect(logs.text.contains("path=/\(marker)"))
        // 3,000 lines of 8 KiB are 24 MB: the file turns over four times and the oldest part goes.
        let path = "/" + String(repeating: "x", count: 8100)
        for _ in 0..<60 {
            try connection.send(String(repeating: "GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n", count: 50))
            for _ in 0..<50 { #expect(try connection.response().status == 404) }
        }
        let tail = try connection.request("GET", "/debug/logs")
        #expect(tail.body.count <= 10 << 20 && tail.body.count > 9 << 20)
        #expect(!tail.text.contains(marker))
        #expect(tail.text.first == "2", "it begins in the middle of a line")
        let directory = "\(daemon.directory.path)/log"
        let names = try FileManager.default.contentsOfDirectory(atPath: directory).sorted()
        #expect(names == ["workspace-agent.log"] + (1...3).map { "workspace-agent.log.\($0)" })
        for name in names {
            var info = stat()
            #expect(stat("\(directory)/\(name)", &info) == 0)
            #expect(info.st_size <= 5 << 20)
            #expect(info.st_mode & 0o777 == 0o600)
        }
        #expect(try await daemon.stop() == 0)
    }

    @Test func listeningPorts() async throws {
        let daemon = try DaemonProcess(tcp: true, arguments: ["--http-address", "[::1]:0"])
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(descriptor) }
        try #require(listen(descriptor, 8) == 0)
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
        }
        let ours = Int(in_port_t(bigEndian: address.sin_port))
        let response = try daemon.connect().request("GET", "/api/v0/listening-ports")
        #expect(response.status == 200)
        let ports = try #require(response.json["ports"] as? [[String: Any]])
        let entries = ports.filter { $0["port"] as? Int == ours }
        #expect(entries.count == 1)
        #expect(entries.first?["network"] as? String == "tcp")
        let name = ProcFS.text("/proc/self/comm").trimmingCharacters(in: .newlines)
        #expect(entries.first?["process_name"] as? String == name)
        #expect(!ports.contains { $0["port"] as? Int == daemon.port })
        #expect(Set(ports.compactMap { $0["port"] as? Int }).count == ports.count)
        #expect(ports.allSatisfy { $0["port"] as? Int ?? 0 >= 9 })
        #expect(try await daemon.stop() == 0)
    }
}
