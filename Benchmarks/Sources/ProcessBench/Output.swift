import BenchSupport
import Glibc

private let line = "0123456789012345678901234567890123456789012345678901234567890123"

func capture(_ daemon: Daemon) throws -> [Row] {
    let client = try Client(daemon.socket)
    var rows: [Row] = []
    for (name, command, cpuPromise) in [
        ("capture 2 GiB of zeros", "head -c 2147483648 /dev/zero", 0.35),
        ("capture 2 GiB of text lines", "yes \(line) | head -c 2147483648", 0.6),
    ] {
        var (times, floors, cpu, floorCPU): ([Double], [Double], [Double], [Double]) = ([], [], [], [])
        for _ in 0..<5 {
            let own = ownCPU()
            floors.append(try Bare.drain(command))
            floorCPU.append((ownCPU() - own) / 2)
            let (before, begin) = (daemon.cpu, seconds())
            try client.run(command)
            times.append(seconds() - begin)
            cpu.append((daemon.cpu - before) / 2)
        }
        let (time, floor) = (percentile(times, 0.5), percentile(floors, 0.5))
        rows.append(
            Row(
                name: name, measured: "\(Int(2048 / time)) MiB/s", floor: "read loop \(Int(2048 / floor)) MiB/s",
                ratio: round2(floor / time), promise: "≥ 1.0 ×"))
        rows.append(
            Row(
                name: "  CPU", measured: "\(round2(percentile(cpu, 0.5))) s/GiB",
                floor: "read loop \(round2(percentile(floorCPU, 0.5))) s/GiB", promise: "≤ \(cpuPromise) s/GiB"))
    }
    return rows
}

/// The kept output of a process that has ended, to one reader, beside the same number of bytes that a thread writes
/// to a unix socket.
func streamed(_ daemon: Daemon) throws -> Row {
    let client = try Client(daemon.socket)
    let bytes = 60 << 20
    let id = try client.start("yes \(line) | head -c \(bytes)")
    try client.output(of: id)
    var (times, floors): ([Double], [Double]) = ([], [])
    for _ in 0..<7 {
        let reader = try Client(daemon.socket)
        let begin = seconds()
        try reader.stream(id)
        let (count, tail) = reader.connection.drain()
        times.append(seconds() - begin)
        guard count > bytes, tail.contains("event: exit") else {
            let end = String(decoding: tail.suffix(300), as: UTF8.self)
            throw BenchFailure("\(count) bytes of events, which end with: \(end)")
        }
        var ends: [CInt] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw BenchFailure("socketpair: errno \(errno)")
        }
        let server = ends[1]
        let floorBegin = seconds()
        let thread = Thread {
            let area = [UInt8](repeating: 120, count: 64 << 10)
            var left = count
            while left > 0, case let n = write(server, area, min(left, area.count)), n > 0 { left -= n }
            close(server)
        }
        _ = Connection(ends[0]).drain()
        thread.join()
        floors.append(seconds() - floorBegin)
    }
    let megabytes = Double(bytes) / 1e6
    let (time, floor) = (percentile(times, 0.5), percentile(floors, 0.5))
    return Row(
        name: "stream to one reader", measured: "\(Int(megabytes / time)) MB/s",
        floor: "unix socket \(Int(megabytes / floor)) MB/s", ratio: round2(floor / time), promise: "≥ 500 MB/s")
}

/// From a line that `cat` reads to its event, beside the same `cat` with nothing but a pipe behind it.
func lineLatency(_ daemon: Daemon) throws -> Row {
    let client = try Client(daemon.socket)
    let reader = try Client(daemon.socket)
    let (path, floorPath) = ("\(daemon.socket).in", "\(daemon.socket).floor")
    guard mkfifo(path, 0o600) == 0, mkfifo(floorPath, 0o600) == 0 else { throw BenchFailure("mkfifo: errno \(errno)") }
    let id = try client.start("exec cat \(path)")
    let input = open(path, O_WRONLY | O_CLOEXEC)
    let (pid, output) = try Bare.piped("exec cat \(floorPath)")
    let floorInput = open(floorPath, O_WRONLY | O_CLOEXEC)
    defer {
        for descriptor in [input, floorInput, output] { close(descriptor) }
        waitpid(pid, nil, 0)
    }
    try reader.stream(id)
    let bytes = Array("a line\n".utf8)
    var (times, floors): ([Double], [Double]) = ([], [])
    for _ in 0..<20 {
        times += try samples(50, warmUp: 0) {
            _ = write(input, bytes, bytes.count)
            while try !reader.connection.take(through: "\n").contains("a line") {}
        }
        floors += samples(50, warmUp: 0) {
            _ = write(floorInput, bytes, bytes.count)
            withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { _ = read(output, $0.baseAddress, 64) }
        }
    }
    return added("added latency of a line p50", times, floors, "cat and a pipe")
}

/// From a byte sent to a terminal to its echo, beside a terminal of our own.
func keystrokes(_ daemon: Daemon) throws -> Row {
    let client = try Client(daemon.socket)
    let keyboard = try Client(daemon.socket)
    let id = try client.start("exec cat >/dev/null", more: ",\"pty\":{\"rows\":24,\"cols\":80}")
    try keyboard.attach(id)
    _ = try keyboard.receiveMessage()
    defer { try? client.kill(id) }
    let (terminal, program) = try makeTerminal()
    defer {
        close(terminal)
        close(program)
    }
    let key = [UInt8(ascii: "k")]
    func type(_ count: Int) throws -> [Double] {
        let times = try samples(count, warmUp: 0) {
            try keyboard.sendMessage(key)
            _ = try keyboard.receiveMessage()
        }
        // A terminal takes at most 4,096 bytes of a line.
        try keyboard.sendMessage([UInt8(ascii: "\n")])
        _ = try keyboard.receiveMessage()
        return times
    }
    var (times, floors): ([Double], [Double]) = ([], [])
    for _ in 0..<20 {
        times += try type(50)
        floors += samples(50, warmUp: 0) {
            _ = write(terminal, key, 1)
            withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { _ = read(terminal, $0.baseAddress, 64) }
        }
        _ = write(terminal, "\n", 1)
        withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { _ = read(terminal, $0.baseAddress, 64) }
    }
    return added("keystroke to echo p50", times, floors, "a terminal")
}

private func added(_ name: String, _ times: [Double], _ floors: [Double], _ what: String) -> Row {
    let (time, floor) = (percentile(times, 0.5), percentile(floors, 0.5))
    return Row(
        name: name, measured: "\(micro(time - floor)), p99 \(micro(percentile(times, 0.99) - floor))",
        floor: "\(what) \(micro(floor))", promise: "≤ 1 ms")
}
