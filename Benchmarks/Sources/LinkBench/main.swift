// What the link to the control plane costs, over loopback TCP and between two processes, each figure
// beside a floor measured in the same run.
//
//     LinkBench PATH-TO-RELEASE-BINARY [LINKS]
//     LinkBench call | copy | links [LINKS] | idle PATH-TO-RELEASE-BINARY     (one part)
//     LinkBench serve [CERTIFICATE-AND-KEY]
import AgentCore
import BenchSupport
import Glibc
import NIOCore
import NIOPosix
import Yamux

/// One unary call on a stream of its own, and the same bytes back and forth without us.
func unaryCall(_ group: MultiThreadedEventLoopGroup) async throws {
    let server = try Child([ownPath, "serve"], environment: [])
    defer { server.stop() }
    let ports = try ports(of: server)
    let count = ByteCount()
    let session = try await dial(group, port: ports.link, count: count)
    let rounds = 5_000
    for _ in 0..<500 { try await call(session) }
    let before = count.now
    var times: [Double] = []
    for _ in 0..<rounds {
        let begin = seconds()
        try await call(session)
        times.append(seconds() - begin)
    }
    let after = count.now
    let (sent, received) = ((after.sent - before.sent) / rounds, (after.received - before.received) / rounds)
    let floor = try FloorConnection(port: ports.floor, request: sent, response: received)
    for _ in 0..<500 { _ = try floor.exchange() }
    let floors = try (0..<rounds).map { _ in try floor.exchange() }
    for (name, share, promise) in [("p50", 0.5, "≤ 400 µs"), ("p99", 0.99, "")] {
        let (measured, least) = (percentile(times, share), percentile(floors, share))
        row(
            "unary call \(name)", micro(measured), floor: "\(sent) B + \(received) B: \(micro(least))",
            ratio: round2(measured / least), promise: promise)
    }
    await session.close()
}

/// 64 MiB through one stream.
func copy(_ group: MultiThreadedEventLoopGroup) async throws {
    let server = try Child([ownPath, "serve"], environment: [])
    defer { server.stop() }
    let ports = try ports(of: server)
    let session = try await dial(group, port: ports.link, path: Link.sinkPath)
    let floor = try FloorConnection(port: ports.floor, request: Link.copyBytes, response: 1)
    var times: [Double] = []
    var floors: [Double] = []
    for _ in 0..<9 {
        floors.append(try floor.exchange())
        let done = session.eventLoop.makePromise(of: Void.self)
        let begin = seconds()
        let stream = try await session.openStream { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(CopySource(done))
                return channel
            }
        }
        try await done.futureResult.get()
        times.append(seconds() - begin)
        stream.close(promise: nil)
    }
    let (measured, least) = (percentile(times, 0.5), percentile(floors, 0.5))
    func rate(_ seconds: Double) -> String { "\(Int(Double(Link.copyBytes >> 20) / seconds)) MiB/s" }
    row(
        "64 MiB through one stream", rate(measured), floor: "TCP copy \(rate(least))", ratio: round2(least / measured),
        promise: "≥ 0.5 × TCP copy")
    await session.close()
}

/// Many idle links between two processes.
func manyLinks(_ wanted: Int) async throws {
    let descriptors = raiseDescriptorLimit()
    let links = min(wanted, descriptors - 100)
    let server = try Child([ownPath, "serve"], environment: [])
    defer { server.stop() }
    let ports = try ports(of: server)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let own = ProcessFigures(pid: getpid())
    // What the first link costs alone (buffers of the loops, code) is not any link's.
    var sessions = [try await dial(group, port: ports.link), try await dial(group, port: ports.link)]
    for session in sessions { try await call(session) }
    let before = (own.rssKiB, server.figures.rssKiB)
    let begin = seconds()
    while sessions.count < links {
        let batch = min(100, links - sessions.count)
        sessions += try await withThrowingTaskGroup(of: YamuxMultiplexer.self) { tasks in
            for _ in 0..<batch { tasks.addTask { try await dial(group, port: ports.link) } }
            return try await tasks.reduce(into: []) { $0.append($1) }
        }
    }
    let dialled = seconds() - begin
    func each(_ a: Double, _ b: Double) -> String { "\(round1((b - a) / Double(links))) KiB" }
    row("\(links) links, dialled in", "\(round1(dialled)) s", floor: "descriptors \(descriptors)", promise: "10000")
    row("  memory a link, agent's side", each(before.0, own.rssKiB))
    row("  memory a link, control plane's", each(before.1, server.figures.rssKiB))
    let callsBegin = seconds()
    let all = sessions
    try await withThrowingTaskGroup(of: Void.self) { tasks in
        for start in 0..<16 {
            tasks.addTask { for index in stride(from: start, to: all.count, by: 16) { try await call(all[index]) } }
        }
        try await tasks.waitForAll()
    }
    row("  a call on each, 16 at a time", "\(Int(Double(links) / (seconds() - callsBegin))) calls/s")
    row("  memory a link after it, agent's", each(before.0, own.rssKiB))
    row("  memory a link after it, plane's", each(before.1, server.figures.rssKiB))
    let cpu = (own.cpu, server.figures.cpu)
    // Two rounds of WebSocket pings, one of yamux's.
    sleep(30)
    row(
        "  CPU of idle links in 30 s", "\(round2(own.cpu - cpu.0)) s, \(round2(server.figures.cpu - cpu.1)) s",
        floor: "agents', control plane's")
    var alive = 0
    for session in sessions where (try? await call(session)) != nil { alive += 1 }
    row("  links that answer a call then", "\(alive)", promise: "\(links)")
}

signal(SIGPIPE, SIG_IGN)
do {
    let arguments = CommandLine.arguments.dropFirst()
    if arguments.first == "serve" {
        try await serve(arguments.dropFirst().first)
        exit(0)
    }
    let usage = BenchFailure("usage: LinkBench BINARY [LINKS], or call, copy, links [LINKS], idle BINARY")
    guard let first = arguments.first, arguments.count <= 2 else { throw usage }
    let second = arguments.dropFirst().first
    let parts: Set<String> = ["call", "copy", "links", "idle"]
    func runs(_ part: String) -> Bool { first == part || !parts.contains(first) }
    guard let binary = first == "idle" ? second : first else { throw usage }
    row("what", "measured", floor: "floor, same run", ratio: "ratio", promise: "promise")
    row("load average", load)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    if runs("call") {
        // As the daemon runs its tasks.
        try await Task(executorPreference: EventLoopTaskExecutor(group.next())) { try await unaryCall(group) }.value
    }
    if runs("copy") { try await copy(group) }
    if runs("links") { try await manyLinks(second.flatMap { Int($0) } ?? 10_000) }
    if runs("idle") { try idleDaemons(binary) }
    row("load average", load)
} catch {
    print("LinkBench: \(error)")
    exit(1)
}
