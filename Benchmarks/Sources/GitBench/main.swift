import Glibc

// The git watcher of a release binary against the git CLI in the same run, on the same repositories.
// Usage: GitBench PATH/workspace-agent

struct Failure: Error { var text: String }

func seconds() -> Double {
    var now = timespec()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) / 1e9
}

func pause(_ time: Double) { poll(nil, 0, CInt(time * 1000)) }

func median(_ values: [Double]) -> Double { values.isEmpty ? 0 : values.sorted()[values.count / 2] }

func ms(_ value: Double) -> String {
    let tenths = Int((value * 10_000).rounded())
    return "\(tenths / 10).\(tenths % 10) ms"
}

@discardableResult
func shell(_ script: String) throws -> Double {
    let begin = seconds()
    let status = system(script)
    guard status == 0 else { throw Failure(text: "failed: \(script.prefix(200))") }
    return seconds() - begin
}

func text(_ path: String) -> String {
    let descriptor = open(path, O_RDONLY)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var area = [UInt8](repeating: 0, count: 65536)
    while case let n = read(descriptor, &area, area.count), n > 0 { bytes += area.prefix(n) }
    return String(decoding: bytes, as: UTF8.self)
}

func names(_ path: String) -> [String] {
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var found: [String] = []
    while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if !name.hasPrefix(".") { found.append(name) }
    }
    return found
}

/// Seconds of CPU of a process: its threads to the nanosecond, and what it waited for, in ticks.
func cpu(_ pid: Int32) -> Double {
    let own = names("/proc/\(pid)/task").reduce(0.0) { sum, thread in
        sum + (Double(text("/proc/\(pid)/task/\(thread)/schedstat").split(separator: " ").first ?? "0") ?? 0) / 1e9
    }
    let stat = text("/proc/\(pid)/stat")
    let fields = stat.drop { $0 != ")" }.split(separator: " ")
    guard fields.count > 15 else { return own }
    let waited = (Double(fields[14]) ?? 0) + (Double(fields[15]) ?? 0)
    return own + waited / Double(sysconf(CInt(_SC_CLK_TCK)))
}

func rss(_ pid: Int32) -> Int {
    let line = text("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
    return Int(line.split(separator: " ").dropFirst().first ?? "0") ?? 0
}

final class Connection {
    let descriptor: CInt
    private var buffer: [UInt8] = []

    init(_ path: String) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard rc == 0 else { throw Failure(text: "connect \(path)") }
    }

    deinit { close(descriptor) }

    func send(_ text: String) { text.withCString { _ = write(descriptor, $0, strlen($0)) } }

    func take(_ count: Int) throws -> [UInt8] {
        var area = [UInt8](repeating: 0, count: 1 << 18)
        while buffer.count < count {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&ready, 1, 60_000) > 0 else { throw Failure(text: "no message within a minute") }
            let n = read(descriptor, &area, area.count)
            guard n > 0 else { throw Failure(text: "closed") }
            buffer += area.prefix(n)
        }
        defer { buffer.removeFirst(count) }
        return Array(buffer.prefix(count))
    }

    func head() throws -> String {
        var head: [UInt8] = []
        while !head.suffix(4).elementsEqual([13, 10, 13, 10]) { head += try take(1) }
        return String(decoding: head, as: UTF8.self)
    }

    /// The next message's size and text.
    func message() throws -> [UInt8] {
        while true {
            let start = try take(2)
            var count = Int(start[1] & 0x7F)
            if count >= 126 { count = try take(count == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) } }
            let payload = try take(count)
            if start[0] & 15 == 1 { return payload }
            if start[0] & 15 == 9 {
                let pong: [UInt8] = [0x8A, 0x80, 0, 0, 0, 0]
                _ = pong.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            }
        }
    }
}

struct Daemon {
    let socket: String
    let pid: pid_t

    init(_ binary: String, _ directory: String) throws {
        socket = "\(directory)/http.sock"
        let arguments = [
            binary, "agent", "--http-socket", socket, "--state-dir", "\(directory)/state", "--log-dir", directory,
            "--log-human", "\(directory)/log", "--socket-path", "\(directory)/agent.sock",
        ]
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var pid = pid_t()
        guard posix_spawn(&pid, binary, nil, nil, &argv, environ) == 0 else { throw Failure(text: "spawn \(binary)") }
        self.pid = pid
        for _ in 0..<500 where (try? Connection(socket)) == nil { pause(0.01) }
    }

    func touch(_ path: String, chat: String) throws {
        let connection = try Connection(socket)
        let body = #"{"command":"true","workdir":"\#(path)"}"#
        connection.send(
            "POST /api/v0/processes/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + "Coder-Chat-Id: \(chat)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        guard try connection.head().contains(" 200 ") else { throw Failure(text: "the agent refused \(path)") }
        pause(0.2)
    }

    func watch(_ chat: String) throws -> Connection {
        let connection = try Connection(socket)
        connection.send(
            "GET /api/v0/git/watch?chat_id=\(chat) HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                + "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        guard try connection.head().contains(" 101 ") else { throw Failure(text: "no upgrade") }
        return connection
    }

    func metric(_ name: String) throws -> Int {
        let connection = try Connection(socket)
        connection.send("GET /debug/prometheus HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        var all: [UInt8] = []
        while let more = try? connection.take(1) { all += more }
        let line = String(decoding: all, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("\(name) ") }
        return Int(line?.split(separator: " ").last?.filter { $0 != "\r" } ?? "") ?? 0
    }
}

func makeRepository(_ root: String, files: Int, modified: Int, untracked: Int) throws {
    try shell(
        """
        mkdir -p \(root) && cd \(root) && git init -q && git config user.email a@b && git config user.name a &&
        awk 'BEGIN { for (i = 0; i < \(files); i++) { d = "d" int(i / 100) "/e" int(i / 10) % 10;
          if (!(d in seen)) { system("mkdir -p " d); seen[d] = 1 }
          f = d "/f" i ".txt"; for (l = 0; l < 30; l++) print "line " l " of " i > f; close(f) } }' &&
        git config gc.auto 0 && git add -A && git commit -qm all && git repack -adq && sleep 1.1 && git update-index -q --refresh &&
        for i in $(seq 0 \(modified - 1)); do n=$((i * \(files / modified))); sed -i '7s/.*/changed/' d$((n / 100))/e$((n / 10 % 10))/f$n.txt; done &&
        mkdir -p new && for i in $(seq 1 \(untracked)); do seq 1 40 > new/u$i; done
        """)
}

func bench(_ binary: String, files: Int, modified: Int, untracked: Int) throws {
    var template = Array("/tmp/wa-gitbench-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Failure(text: "mkdtemp") }
    let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    defer { _ = system("rm -rf \(directory)") }
    let root = "\(directory)/r"
    try makeRepository(root, files: files, modified: modified, untracked: untracked)
    try makeRepository("\(directory)/small", files: 3, modified: 1, untracked: 1)

    let quiet = "git --no-optional-locks -c diff.autoRefreshIndex=false"
    var floors: [Double] = []
    for _ in 0..<7 {
        floors.append(
            try shell(
                "cd \(root) && \(quiet) diff HEAD > /dev/null && \(quiet) ls-files -o -z --exclude-standard | xargs -0 cat > /dev/null"
            ))
    }
    // The shell and cat are no part of the floor.
    var starts: [Double] = []
    for _ in 0..<7 { starts.append(try shell("cd \(root) && true > /dev/null && true | xargs -0 true > /dev/null")) }
    let floor = median(floors) - median(starts)

    let daemon = try Daemon(binary, directory)
    defer {
        kill(daemon.pid, SIGTERM)
        waitpid(daemon.pid, nil, 0)
    }
    let idleRSS = rss(daemon.pid)
    let small = "00000000-0000-4000-8000-000000000001"
    try daemon.touch("\(directory)/small", chat: small)
    let begin = seconds()
    let keeper = try daemon.watch(small)
    _ = try keeper.message()
    let coldSmall = seconds() - begin
    var firsts: [Double] = []
    for number in 0..<5 {
        let chat = "00000000-0000-4000-8000-00000000010\(number)"
        try daemon.touch(root, chat: chat)
        let start = seconds()
        let connection = try daemon.watch(chat)
        _ = try connection.message()
        firsts.append(seconds() - start)
        _ = connection
        pause(0.3)
    }
    let first = median(firsts)
    let chat = "00000000-0000-4000-8000-000000000200"
    try daemon.touch(root, chat: chat)
    let connection = try daemon.watch(chat)
    var size = try connection.message().count
    pause(4)
    let worker = Int32(try daemon.metric("agent_git_worker_pid"))
    var times: [Double] = []
    var costs: [Double] = []
    for number in 0..<9 {
        pause(1.3)
        let before = cpu(daemon.pid) + cpu(worker)
        let start = seconds()
        let file = open("\(root)/d0/e0/f5.txt", O_WRONLY | O_APPEND)
        let line = "edit \(number)\n"
        _ = line.withCString { write(file, $0, strlen($0)) }
        close(file)
        size = try connection.message().count
        times.append(seconds() - start)
        pause(0.2)
        costs.append(cpu(daemon.pid) + cpu(worker) - before)
    }
    // Untracked files cost a look at the ignore rules when they appear.
    var appear: [Double] = []
    for number in 0..<5 {
        pause(1.3)
        let start = seconds()
        close(open("\(root)/new/fresh\(number)", O_WRONLY | O_CREAT, 0o644))
        _ = try connection.message()
        appear.append(seconds() - start)
    }
    pause(2)
    let scans = try daemon.metric("agent_git_scans_total")
    let idleBefore = cpu(daemon.pid) + cpu(worker)
    pause(12)
    let idle = cpu(daemon.pid) + cpu(worker) - idleBefore
    let polls = try daemon.metric("agent_git_scans_total") - scans
    print("\(files) files, \(modified) modified, \(untracked) untracked (message \(size >> 10) KiB)")
    print("  git diff HEAD + ls-files -o + read      \(ms(floor))")
    print("  first snapshot, worker running          \(ms(first))  = \(Double(Int(first / floor * 100)) / 100) x")
    print("  first snapshot of a small one, no worker \(ms(coldSmall))")
    print(
        "  edit → message, median (max)            \(ms(median(times))) (\(ms(times.max() ?? 0))), 100 ms of it debounce"
    )
    print("  new file → message, median              \(ms(median(appear)))")
    print("  CPU of daemon and worker for an edit    \(ms(median(costs))) (max \(ms(costs.max() ?? 0)))")
    print("  idle CPU in 12 s (\(polls) polls)             \(ms(idle))")
    print("  RSS worker \(rss(worker)) KiB, daemon \(rss(daemon.pid)) KiB (\(idleRSS) KiB before)")
    print("  watches \(try daemon.metric("agent_git_watches"))")
    _ = keeper
}

guard let binary = CommandLine.arguments.dropFirst().first else {
    print("usage: GitBench PATH/workspace-agent [FILES|clones]")
    exit(2)
}
signal(SIGPIPE, SIG_IGN)
do {
    let section = CommandLine.arguments.dropFirst(2).first
    let only = section == "clones" ? 0 : section.flatMap { Int($0) }
    for (files, modified, untracked) in [(50, 3, 2), (5_000, 40, 60), (60_000, 100, 300)] where only ?? files == files {
        try bench(binary, files: files, modified: modified, untracked: untracked)
    }
    if only ?? 0 == 0 {
        // git runs it from other directories.
        guard let path = realpath(binary, nil) else { throw Failure(text: "no \(binary)") }
        defer { free(path) }
        try benchClones(String(cString: path))
    }
} catch {
    print("\(error)")
    exit(1)
}
