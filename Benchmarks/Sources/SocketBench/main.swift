// What a call on the agent socket costs, beside the floor: the same bytes back and forth between
// two blocking threads on a bare unix socket.
//
//     swift run -c release SocketBench
import AgentCore
import AgentSocket
import Glibc
import Logging
import NIOCore
import NIOPosix

func now() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

struct Distribution {
    let sorted: [UInt64]
    init(_ samples: [UInt64]) { sorted = samples.sorted() }
    func at(_ part: Double) -> Double {
        Double(sorted[min(sorted.count - 1, Int(Double(sorted.count) * part))]) / 1_000
    }
    var text: String { "p50 \(rounded(at(0.5))) µs, p99 \(rounded(at(0.99))) µs" }
}

func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

/// A server that answers 50 bytes with 8, as Ping does, in its own thread.
func floorPingPong(rounds: Int) -> Distribution {
    var ends: [CInt] = [0, 0]
    socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
    let (client, server) = (ends[0], ends[1])
    let worker = NIOThreadPool(numberOfThreads: 1)
    worker.start()
    worker.submit { _ in
        var buffer = [UInt8](repeating: 0, count: 64)
        while read(server, &buffer, 64) > 0 { write(server, buffer, 8) }
    }
    var samples: [UInt64] = []
    var buffer = [UInt8](repeating: 0, count: 64)
    for _ in 0..<rounds {
        let start = now()
        write(client, buffer, 50)
        _ = read(client, &buffer, 64)
        samples.append(now() - start)
    }
    close(client)
    return Distribution(samples)
}

/// A connection for each 50 bytes and the 8 that answer them, between two blocking threads.
func floorDial(rounds: Int) -> Distribution {
    let path = "/tmp/socket-bench-floor-\(getpid()).sock"
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    func with(_ descriptor: CInt, _ call: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
        withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                call(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
    let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    guard with(listener, bind) == 0, listen(listener, 16) == 0 else { return Distribution([0]) }
    defer { unlink(path) }
    let worker = NIOThreadPool(numberOfThreads: 1)
    worker.start()
    worker.submit { _ in
        var buffer = [UInt8](repeating: 0, count: 64)
        for _ in 0..<rounds {
            let server = accept(listener, nil, nil)
            while read(server, &buffer, 64) > 0 { write(server, buffer, 8) }
            close(server)
        }
        close(listener)
    }
    var samples: [UInt64] = []
    var buffer = [UInt8](repeating: 0, count: 64)
    for _ in 0..<rounds {
        let start = now()
        let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        guard with(client, connect) == 0 else { return Distribution([0]) }
        write(client, buffer, 50)
        _ = read(client, &buffer, 64)
        samples.append(now() - start)
        close(client)
    }
    return Distribution(samples)
}

/// The same over many socket pairs, to find what two threads can do at most: each thread polls all
/// of its ends and answers whatever is there.
func floorThroughput(connections: Int, seconds: Double) -> Double {
    let worker = NIOThreadPool(numberOfThreads: 1)
    worker.start()
    var clients: [CInt] = []
    var servers: [CInt] = []
    for _ in 0..<connections {
        var ends: [CInt] = [0, 0]
        socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends)
        clients.append(ends[0])
        servers.append(ends[1])
    }
    let ends = servers
    worker.submit { _ in
        var polls = ends.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        var buffer = [UInt8](repeating: 0, count: 64)
        while poll(&polls, nfds_t(polls.count), -1) > 0 {
            for item in polls where item.revents != 0 {
                if read(item.fd, &buffer, 64) <= 0 { return }
                write(item.fd, buffer, 8)
            }
        }
    }
    var polls = clients.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
    var buffer = [UInt8](repeating: 0, count: 64)
    for client in clients { write(client, buffer, 50) }
    let start = now()
    let end = start + UInt64(seconds * 1e9)
    var calls = 0
    while now() < end, poll(&polls, nfds_t(polls.count), 1_000) > 0 {
        for item in polls where item.revents != 0 {
            _ = read(item.fd, &buffer, 64)
            calls += 1
            write(item.fd, buffer, 50)
        }
    }
    let result = Double(calls) / (Double(now() - start) / 1e9)
    for client in clients { close(client) }
    return result
}

let rounds = 20_000
let path = "/tmp/socket-bench-\(getpid()).sock"
let serverGroup = MultiThreadedEventLoopGroup(numberOfThreads: 1)
let clientGroup = MultiThreadedEventLoopGroup(numberOfThreads: 1)
let executor = EventLoopTaskExecutor(clientGroup.any())
var logger = Logger(label: "bench")
logger.logLevel = .critical
let units = UnitStore()
let server = AgentSocketServer(
    configuration: .init(path: path), units: units, group: serverGroup, logger: logger, metrics: MetricsRegistry())
try server.bind()
let running = Task { try await server.run() }

@Sendable func oneConnection(_ path: String, _ group: MultiThreadedEventLoopGroup, _ rounds: Int) async throws
    -> Distribution
{
    let client = try await AgentSocketClient.connect(path: path, group: group)
    for _ in 0..<2_000 { try await client.ping() }
    var samples: [UInt64] = []
    for _ in 0..<rounds {
        let start = now()
        try await client.ping()
        samples.append(now() - start)
    }
    await client.close()
    return Distribution(samples)
}

@Sendable func dialAndCall(_ path: String, _ group: MultiThreadedEventLoopGroup, _ rounds: Int) async throws
    -> Distribution
{
    var samples: [UInt64] = []
    for _ in 0..<rounds {
        let start = now()
        let client = try await AgentSocketClient.connect(path: path, group: group)
        try await client.ping()
        samples.append(now() - start)
        await client.close()
    }
    return Distribution(samples)
}

@Sendable func manyConnections(
    _ path: String, _ group: MultiThreadedEventLoopGroup, _ count: Int, _ seconds: Double
) async throws -> Double {
    try await withThrowingTaskGroup(of: Int.self) { tasks in
        let start = now()
        let end = start + UInt64(seconds * 1e9)
        for _ in 0..<count {
            tasks.addTask {
                let client = try await AgentSocketClient.connect(path: path, group: group)
                var calls = 0
                while now() < end {
                    try await client.ping()
                    calls += 1
                }
                await client.close()
                return calls
            }
        }
        var total = 0
        for try await calls in tasks { total += calls }
        return Double(total) / (Double(now() - start) / 1e9)
    }
}

/// From just before the last `complete` until the waiter's `start` was answered.
@Sendable func wakeUp(_ path: String, _ group: MultiThreadedEventLoopGroup, _ rounds: Int) async throws -> Distribution
{
    let completer = try await AgentSocketClient.connect(path: path, group: group)
    let waiter = try await AgentSocketClient.connect(path: path, group: group)
    var samples: [UInt64] = []
    for round in 0..<rounds {
        try await completer.want("unit\(round)", dependsOn: "dependency\(round)")
        try await completer.start("dependency\(round)")
        async let woken: UInt64 = {
            try await waiter.waitUntilReady("unit\(round)", pollInterval: .seconds(1), clock: ContinuousClock())
            try await waiter.start("unit\(round)")
            return now()
        }()
        try await Task.sleep(for: .milliseconds(2))
        let start = now()
        try await completer.complete("dependency\(round)")
        samples.append(try await woken - start)
    }
    return Distribution(samples)
}

let floor = floorPingPong(rounds: rounds)
let (one, wake) = try await withTaskExecutorPreference(executor) {
    (try await oneConnection(path, clientGroup, rounds), try await wakeUp(path, clientGroup, 300))
}
// In turns, so that both see the same machine.
var dials: (ours: [UInt64], floor: [UInt64]) = ([], [])
for _ in 0..<10 {
    dials.ours += try await withTaskExecutorPreference(executor) { try await dialAndCall(path, clientGroup, 300) }
        .sorted
    dials.floor += floorDial(rounds: 300).sorted
}
let (dial, dialFloor) = (Distribution(dials.ours), Distribution(dials.floor))
let hops = try await oneConnection(path, clientGroup, rounds)
/// CPU time of this process, for throughput on a machine that others use, too.
func cpuSeconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
        + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6
}

let floorCalls = floorThroughput(connections: 20, seconds: 3)
let cpuBefore = cpuSeconds()
let calls = try await withTaskExecutorPreference(executor) { try await manyConnections(path, clientGroup, 20, 3) }

let cpuAfter = cpuSeconds()

print("floor, bare socket ping-pong      \(floor.text)")
print(
    "one call, caller on the loop      \(one.text)   \(rounded(one.at(0.5) / floor.at(0.5)))x floor   (promised p50 ≤ 60 µs)"
)
print("one call, caller elsewhere        \(hops.text)   \(rounded(hops.at(0.5) / floor.at(0.5)))x floor")
print("floor, bare connect and ping-pong \(dialFloor.text)")
print(
    "dial + call                       \(dial.text)   \(rounded(dial.at(0.5) / dialFloor.at(0.5)))x floor   (promised ≤ 2.5x)"
)
print("complete → waiter started         \(wake.text)   (promised ≤ 50 ms)")
print("floor, 20 connections, 2 threads  \(Int(floorCalls)) calls/s")
print(
    "20 connections, 2 loops           \(Int(calls)) calls/s   \(rounded(floorCalls / calls))x fewer than the floor   (promised ≥ 60000)"
)
let cpu = cpuAfter - cpuBefore
print(
    "  the same by CPU time            \(Int(calls * 3 / cpu * 2)) calls/s on two cores to itself (\(rounded(cpu)) s of CPU in 3 s)"
)
running.cancel()
try await running.value
