import BenchSupport
import Glibc

// The process API's promises, each beside its floor measured in the same run. Usage:
// ProcessBench PATH-TO-RELEASE-BINARY

struct Row {
    var name: String
    var measured: String
    var floor: String
    var ratio: String
    var promise: String
}

/// A thread that answers each byte with a byte: the least a round trip over a unix socket can cost.
func pingPongFloor() -> Double {
    var fds: [CInt] = [0, 0]
    socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &fds)
    let peer = fds[1]
    var thread = pthread_t()
    pthread_create(
        &thread, nil,
        { argument in
            let peer = CInt(Int(bitPattern: argument))
            var area = [UInt8](repeating: 0, count: 1024)
            while case let n = read(peer, &area, area.count), n > 0 { _ = write(peer, area, 200) }
            return nil
        }, UnsafeMutableRawPointer(bitPattern: Int(peer)))
    var area = [UInt8](repeating: 0, count: 1024)
    let times = samples(5000) {
        _ = write(fds[0], area, 40)
        _ = read(fds[0], &area, area.count)
    }
    shutdown(fds[0], Int32(SHUT_RDWR))
    pthread_join(thread, nil)
    close(fds[0])
    close(fds[1])
    return percentile(times, 0.5)
}

func run(_ binary: String) throws -> [Row] {
    var rows: [Row] = []
    let ready = try (0..<15).map { _ in
        let daemon = try Daemon(binary)
        defer { daemon.stop() }
        return daemon.readySeconds
    }
    rows.append(
        Row(
            name: "ready after exec (median)", measured: "\(round2(percentile(ready, 0.5) * 1000)) ms", floor: "",
            ratio: "",
            promise: "≤ 30 ms"))

    let daemon = try Daemon(binary)
    defer { daemon.stop() }
    let client = try Client(daemon.socket)
    _ = try client.request("GET", "/")
    sleep(1)
    rows.append(
        Row(
            name: "idle memory", measured: "\(round2(daemon.rssKiB / 1024)) MiB RSS", floor: "", ratio: "",
            promise: "≤ 24 MiB"))
    rows.append(Row(name: "idle threads", measured: "\(daemon.threads)", floor: "", ratio: "", promise: "≤ 8"))

    let get = percentile(try samples(5000, warmUp: 500) { _ = try client.request("GET", "/") }, 0.5)
    let pingPong = pingPongFloor()
    rows.append(
        Row(
            name: "GET / p50", measured: micro(get), floor: "ping-pong \(micro(pingPong))",
            ratio: round2(get / pingPong), promise: "≤ 100 µs"))

    // In turns, so that both see the same machine.
    var api: [Double] = [], bare: [Double] = []
    var used = 0.0, bareUsed = 0.0
    for _ in 0..<10 {
        let before = daemon.cpu
        api += try samples(100, warmUp: 0) { _ = try client.run("true") }
        used += daemon.cpu - before
        let bareBefore = ownCPU()
        bare += try samples(100, warmUp: 0) { try Bare.run("true") }
        bareUsed += ownCPU() - bareBefore
    }
    let ratio = percentile(api, 0.5) / percentile(bare, 0.5)
    rows.append(
        Row(
            name: "start + wait p50", measured: micro(percentile(api, 0.5)),
            floor: "posix_spawn \(micro(percentile(bare, 0.5)))", ratio: round2(ratio), promise: "≤ 1.6 ×"))
    rows.append(
        Row(
            name: "daemon CPU per start + wait", measured: micro(used / Double(api.count)),
            floor: "posix_spawn \(micro(bareUsed / Double(bare.count)))", ratio: "",
            promise: "≤ 540 µs"))
    rows.append(try concurrent(daemon, connections: 16))

    for (name, command, cpuPromise) in [
        ("capture 2 GiB of zeros", "head -c 2147483648 /dev/zero", 0.35),
        (
            "capture 2 GiB of text lines",
            "yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c 2147483648", 0.6
        ),
    ] {
        var times: [Double] = [], floors: [Double] = [], cpu: [Double] = [], floorCPU: [Double] = []
        for _ in 0..<3 {
            let own = ownCPU()
            floors.append(try Bare.drain(command))
            floorCPU.append((ownCPU() - own) / 2)
            let (before, begin) = (daemon.cpu, seconds())
            _ = try client.run(command)
            times.append(seconds() - begin)
            cpu.append((daemon.cpu - before) / 2)
        }
        let (time, floor) = (percentile(times, 0.5), percentile(floors, 0.5))
        rows.append(
            Row(
                name: name, measured: "\(Int(2048 / time)) MiB/s", floor: "read loop \(Int(2048 / floor)) MiB/s",
                ratio: round2(floor / time), promise: "≥ 0.8 ×"))
        rows.append(
            Row(
                name: "  CPU", measured: "\(round2(percentile(cpu, 0.5))) s/GiB",
                floor: "read loop \(round2(percentile(floorCPU, 0.5))) s/GiB", ratio: "",
                promise: "≤ \(cpuPromise) s/GiB"))
    }
    rows += try sleepers(binary)
    return rows
}

func concurrent(_ daemon: Daemon, connections: Int) throws -> Row {
    final class Work {
        let client: Client
        var done = 0
        init(_ client: Client) { self.client = client }
    }
    let until = seconds() + 4
    Shared.until = until
    let begin = seconds()
    var threads: [(pthread_t, Unmanaged<Work>)] = []
    for _ in 0..<connections {
        let work = Unmanaged.passRetained(Work(try Client(daemon.socket)))
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                let work = Unmanaged<Work>.fromOpaque(argument).takeUnretainedValue()
                while seconds() < Shared.until {
                    guard (try? work.client.run("true")) != nil else { return nil }
                    work.done += 1
                }
                return nil
            }, work.toOpaque())
        threads.append((thread, work))
    }
    var total = 0
    for (thread, work) in threads {
        pthread_join(thread, nil)
        total += work.takeRetainedValue().done
    }
    let rate = Double(total) / (seconds() - begin)

    // The same commands by two threads that do nothing else: what the machine can start at all.
    Shared.until = seconds() + 3
    let floorBegin = seconds()
    var floorThreads: [pthread_t] = []
    for _ in 0..<2 {
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { _ in
                var done = 0
                while seconds() < Shared.until, (try? Bare.run("true")) != nil { done += 1 }
                return UnsafeMutableRawPointer(bitPattern: done)
            }, nil)
        floorThreads.append(thread)
    }
    var floorTotal = 0
    for thread in floorThreads {
        var result: UnsafeMutableRawPointer?
        pthread_join(thread, &result)
        floorTotal += Int(bitPattern: result)
    }
    let floor = Double(floorTotal) / (seconds() - floorBegin)
    return Row(
        name: "start + wait, \(connections) connections", measured: "\(Int(rate))/s",
        floor: "posix_spawn × 2 \(Int(floor))/s", ratio: round2(rate / floor), promise: "≥ 1400/s")
}

enum Shared {
    // Written before the threads that read it are started.
    nonisolated(unsafe) static var until = 0.0
}

func sleepers(_ binary: String) throws -> [Row] {
    let daemon = try Daemon(binary)
    defer { daemon.stop() }
    let client = try Client(daemon.socket)
    for _ in 0..<200 { _ = try client.run("true") }
    let (rss, threads) = (daemon.rssKiB, daemon.threads)
    for _ in 0..<200 { _ = try client.start("exec sleep 1000") }
    return [
        Row(
            name: "200 sleeping processes", measured: "\(round2((daemon.rssKiB - rss) / 200)) KiB each", floor: "",
            ratio: "", promise: "≤ 45 KB each"),
        Row(
            name: "  threads for them", measured: "\(daemon.threads - threads)", floor: "", ratio: "", promise: "0"),
    ]
}

signal(SIGPIPE, SIG_IGN)
do {
    guard CommandLine.arguments.count == 2 else { throw BenchFailure("usage: ProcessBench BINARY") }
    let rows = try run(CommandLine.arguments[1])
    let head = Row(name: "what", measured: "measured", floor: "floor, same run", ratio: "ratio", promise: "promise")
    for row in [head] + rows {
        print(
            pad(row.name, 32) + pad(row.measured, 20) + pad(row.floor, 26) + pad(row.ratio, 8) + row.promise)
    }
} catch {
    print("ProcessBench: \(error)")
    exit(1)
}
