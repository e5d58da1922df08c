import BenchSupport
import Glibc

/// The release binary in a directory of its own, linked to a port or standalone.
final class LinkedDaemon {
    let child: Child

    /// - Parameters:
    ///   - port: of the control plane; nil for none.
    ///   - ca: it speaks TLS and this file tells whom to trust.
    init(_ binary: String, port: Int?, ca: String? = nil) throws {
        var template = Array("/tmp/wa-bench-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw BenchFailure("mkdtemp") }
        let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        var arguments = [
            binary, "agent", "--http-socket", "\(directory)/http.sock", "--state-dir", "\(directory)/state",
            "--log-dir", directory, "--log-human", "\(directory)/log", "--socket-path", "\(directory)/agent.sock",
        ]
        // No secret: the benchmark's server asks for none.
        if let port {
            arguments += [
                "--agent-url", "\(ca == nil ? "http" : "https")://localhost:\(port)", "--agent-token", "bench",
            ]
        }
        if let ca { arguments += ["--agent-ca-file", ca] }
        child = try Child(arguments, environment: ["PATH=/usr/bin:/bin", "HOME=\(directory)", "TMPDIR=\(directory)"])
    }
}

/// What an idle daemon costs: memory and threads after 30 s, wake-ups in the minute after.
func idleDaemons(_ binary: String) throws {
    let server = try Child([ownPath, "serve"], environment: [])
    defer { server.stop() }
    let ports = try ports(of: server)
    let identity = try makeIdentity()
    defer { unlink(identity) }
    let secureServer = try Child([ownPath, "serve", identity], environment: [])
    defer { secureServer.stop() }
    let secure = try LinkedDaemon(binary, port: try LinkBench.ports(of: secureServer).link, ca: identity)
    defer { secure.child.stop() }
    let alone = try LinkedDaemon(binary, port: nil)
    defer { alone.child.stop() }
    let linked = try LinkedDaemon(binary, port: ports.link)
    defer { linked.child.stop() }
    // STARTING and READY.
    for _ in 0..<2 { while try server.line() != "lifecycle" {} }
    for _ in 0..<2 { while try secureServer.line() != "lifecycle" {} }
    sleep(30)
    for (daemon, name, memory) in [
        (alone, "standalone", 24), (linked, "with a link", 30), (secure, "with a link over TLS", 30),
    ] {
        let figures = daemon.child.figures
        row("idle memory, \(name)", mebibytes(figures.rssKiB), promise: "≤ \(memory) MiB")
        row("idle threads, \(name)", "\(figures.threads.count)", promise: "≤ 8")
    }
    let before = (alone.child.figures.sleeps, linked.child.figures.sleeps)
    let cpu = linked.child.figures.cpu
    sleep(60)
    let after = (alone.child.figures.sleeps, linked.child.figures.sleeps)
    func difference(_ a: [String: Int], _ b: [String: Int]) -> [(String, Int)] {
        b.map { ($0.key, $0.value - (a[$0.key] ?? 0)) }.filter { $0.1 > 0 }.sorted { $0.0 < $1.0 }
    }
    for (name, threads, promise) in [
        ("standalone", difference(before.0, after.0), "0"),
        // Of ours and of theirs: 4 WebSocket and 2 yamux pings; ours are answered, too.
        ("with a link", difference(before.1, after.1), "≤ 18: its pings, their answers, the peer's"),
    ] {
        row("wake-ups in 60 s, \(name)", "\(threads.reduce(0) { $0 + $1.1 })", promise: promise)
        for (thread, count) in threads { row("  \(thread)", "\(count)") }
    }
    row("CPU in 60 s, with a link", "\(round2((linked.child.figures.cpu - cpu) * 1e3)) ms")
}

/// A certificate for localhost that signs itself, and its key, in one file.
private func makeIdentity() throws -> String {
    let base = "/tmp/wa-bench-\(getpid())"
    defer { for end in ["key", "crt"] { unlink("\(base).\(end)") } }
    let command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
        + "-addext subjectAltName=DNS:localhost -keyout \(base).key -out \(base).crt 2>/dev/null "
        + "&& cat \(base).crt \(base).key >\(base).pem"
    guard system(command) == 0 else { throw BenchFailure("openssl makes no certificate") }
    return "\(base).pem"
}

func ports(of server: Child) throws -> (link: Int, floor: Int) {
    let words = try server.line().split(separator: " ").compactMap { Int($0) }
    guard words.count == 2 else { throw BenchFailure("the server named no ports") }
    return (words[0], words[1])
}
