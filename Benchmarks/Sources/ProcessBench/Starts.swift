import BenchSupport
import Glibc

func ready(_ binary: String) throws -> Row {
    let times = try (0..<15).map { _ in
        let daemon = try Daemon(binary)
        defer { daemon.stop() }
        return daemon.readySeconds
    }
    return Row(name: "ready after exec (median)", measured: milli(percentile(times, 0.5)), promise: "≤ 30 ms")
}

func idle(_ daemon: Daemon) throws -> [Row] {
    try Client(daemon.socket).request("GET", "/")
    sleep(1)
    return [
        Row(name: "idle memory", measured: "\(round2(daemon.rssKiB / 1024)) MiB RSS", promise: "≤ 24 MiB"),
        Row(name: "idle threads", measured: "\(daemon.threads)", promise: "≤ 8"),
    ]
}

func requests(_ daemon: Daemon, _ port: UInt16) throws -> [Row] {
    let (unix, tcp) = (try Connection(.unix(daemon.socket)), try Connection(.tcp(port)))
    let request = Array("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
    // Each answer is as long as the first: as little of the client's own work as can be.
    try tcp.send(request)
    let length = try tcp.take(through: "Hello from the agent!\"}").count
    func get(_ connection: Connection) throws {
        try connection.send(request)
        try connection.discard(length)
    }
    let floors = (unix: try PingPong.unix(), tcp: try PingPong.tcp())
    defer {
        floors.unix.end()
        floors.tcp.end()
    }
    var times: (unix: [Double], tcp: [Double], unixFloor: [Double], tcpFloor: [Double]) = ([], [], [], [])
    for round in 0..<11 {
        let a = try samples(500, warmUp: 0) { try get(unix) }
        let b = samples(500, warmUp: 0) { floors.unix.roundTrip() }
        let c = try samples(500, warmUp: 0) { try get(tcp) }
        let d = samples(500, warmUp: 0) { floors.tcp.roundTrip() }
        if round > 0 { times = (times.unix + a, times.tcp + c, times.unixFloor + b, times.tcpFloor + d) }
    }
    func row(_ name: String, _ times: [Double], _ floor: [Double], _ promise: String) -> Row {
        let (time, floor) = (percentile(times, 0.5), percentile(floor, 0.5))
        return Row(
            name: name, measured: micro(time), floor: "ping-pong \(micro(floor))", ratio: round2(time / floor),
            promise: promise)
    }
    return [
        row("GET / p50, TCP", times.tcp, times.tcpFloor, "≤ 2 ×"),
        row("GET / p50, unix socket", times.unix, times.unixFloor, "≤ 100 µs"),
    ]
}

func starts(_ daemon: Daemon) throws -> [Row] {
    let client = try Client(daemon.socket)
    var rows: [Row] = []
    for (name, promise, cpuPromise, run) in [
        ("run with wait_ms", "≤ 1.35 ×", "", client.runAtOnce),
        ("start + wait", "≤ 1.5 ×", "≤ 400 µs", client.run),
    ] {
        do {
            rows += try starts(daemon, name, promise, cpuPromise) { try run("true") }
        } catch {
            rows.append(Row(name: name, measured: "\(error)", promise: promise))
        }
    }
    return rows
}

private func starts(
    _ daemon: Daemon, _ name: String, _ promise: String, _ cpuPromise: String, _ body: () throws -> Void
) throws -> [Row] {
    var (api, bare): ([Double], [Double]) = ([], [])
    var (used, bareUsed) = (0.0, 0.0)
    for _ in 0..<20 {
        let before = daemon.cpu
        api += try samples(50, warmUp: 0, body)
        used += daemon.cpu - before
        let bareBefore = ownCPU()
        bare += try samples(50, warmUp: 0) { try Bare.run("true") }
        bareUsed += ownCPU() - bareBefore
    }
    let (time, floor) = (percentile(api, 0.5), percentile(bare, 0.5))
    return [
        Row(
            name: "\(name) p50", measured: micro(time), floor: "posix_spawn \(micro(floor))",
            ratio: round2(time / floor), promise: promise),
        Row(
            name: "  daemon CPU each", measured: micro(used / Double(api.count)),
            floor: "posix_spawn \(micro(bareUsed / Double(bare.count)))", promise: cpuPromise),
    ]
}

func concurrentStarts(_ daemon: Daemon, connections: Int) throws -> [Row] {
    let clients = try (0..<connections).map { _ in try Client(daemon.socket) }
    var (once, twice, floors): ([Double], [Double], [Double]) = ([], [], [])
    for _ in 0..<5 {
        once.append(rate(clients.map { client in { try client.runAtOnce("true") } }))
        twice.append(rate(clients.map { client in { try client.run("true") } }))
        floors.append(rate(clients.map { _ in { try Bare.run("true") } }))
    }
    let floor = percentile(floors, 0.5)
    return [("run with wait_ms", once), ("start + wait", twice)].map { name, rates in
        let rate = percentile(rates, 0.5)
        return Row(
            name: "\(name), \(connections) connections", measured: "\(Int(rate))/s",
            floor: "\(connections) bare spawners \(Int(floor))/s", ratio: round2(rate / floor), promise: "≥ 0.8 ×")
    }
}

/// How often in a second the bodies, each on a thread of its own, are run.
private func rate(_ bodies: [() throws -> Void]) -> Double {
    final class Count { var runs = 0 }
    let begin = seconds()
    let work = bodies.map { body in
        let count = Count()
        let thread = Thread { while seconds() < begin + 1, (try? body()) != nil { count.runs += 1 } }
        return (thread, count)
    }
    for (thread, _) in work { thread.join() }
    return Double(work.reduce(0) { $0 + $1.1.runs }) / (seconds() - begin)
}

func sleepers(_ binary: String) throws -> [Row] {
    let daemon = try Daemon(binary)
    defer { daemon.stop() }
    let client = try Client(daemon.socket)
    for _ in 0..<200 { try client.run("true") }
    let (rss, threads) = (daemon.rssKiB, daemon.threads)
    for _ in 0..<200 { _ = try client.start("exec sleep 1000") }
    return [
        Row(
            name: "200 sleeping processes", measured: "\(round2((daemon.rssKiB - rss) / 200)) KiB each",
            promise: "≤ 45 KB each"),
        Row(name: "  threads for them", measured: "\(daemon.threads - threads)", promise: "0"),
    ]
}
