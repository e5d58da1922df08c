import BenchSupport
import Glibc

/// Reading and writing a GiB, beside what moves the same bytes with nothing in between.
func transfers(_ daemon: Daemon, _ client: FilesClient) throws -> [Row] {
    var template = Array("/var/tmp/wa-bench-XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else { throw BenchFailure("mkdtemp") }
    let directory = String(cString: made)
    defer { try? shell("rm -rf \(directory)") }
    let (size, path) = (1 << 30, "\(directory)/gib")
    try shell("dd if=/dev/urandom of=\(path) bs=1M count=1024 status=none")
    return [
        try reading(client, path, size), try writing(client, directory, path, size),
        try memory(daemon, client, directory),
    ]
}

/// The best of several, in turns: what disturbs a run only makes it slower.
private func best(_ rounds: Int, _ ours: () throws -> Void, _ floor: () throws -> Void) rethrows -> (Double, Double) {
    var (mine, other) = (Double.infinity, Double.infinity)
    for _ in 0..<rounds {
        for isOurs in [true, false] {
            let begin = seconds()
            if isOurs { try ours() } else { try floor() }
            let time = seconds() - begin
            if isOurs { mine = min(mine, time) } else { other = min(other, time) }
        }
    }
    return (mine, other)
}

private func rate(_ size: Int, _ time: Double) -> String { "\(Int(Double(size) / time / 1e6)) MB/s" }

private func reading(_ client: FilesClient, _ path: String, _ size: Int) throws -> Row {
    let (ours, floor) = try best(
        5, { try client.download("/api/v0/read-file?path=\(path)", expect: size) }, { try cat(path, size) })
    return Row(
        name: "read 1 GiB", measured: rate(size, ours), floor: "cat into a socket \(rate(size, floor))",
        ratio: round2(floor / ours), promise: ">= 0.9")
}

/// `cat` with a socket as its output, read as the client reads.
private func cat(_ path: String, _ size: Int) throws {
    var ends: [CInt] = [-1, -1]
    guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0 else { throw BenchFailure("socketpair") }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1)
    posix_spawn_file_actions_addclose(&actions, ends[0])
    var argv: [UnsafeMutablePointer<CChar>?] = [strdup("cat"), strdup(path), nil]
    defer { for pointer in argv { free(pointer) } }
    var pid = pid_t()
    guard posix_spawnp(&pid, "cat", &actions, nil, &argv, environ) == 0 else { throw BenchFailure("cat") }
    close(ends[1])
    defer { close(ends[0]) }
    var area = [UInt8](repeating: 0, count: 1 << 18)
    var total = 0
    while case let count = read(ends[0], &area, area.count), count > 0 { total += count }
    waitpid(pid, nil, 0)
    guard total == size else { throw BenchFailure("cat gave \(total) bytes") }
}

private func writing(_ client: FilesClient, _ directory: String, _ source: String, _ size: Int) throws -> Row {
    let (ours, floor) = try best(
        3, { try client.upload("/api/v0/write-file?path=\(directory)/new", from: source, size: size) },
        {
            try shell("dd if=\(source) of=\(directory)/floor bs=1M conv=fdatasync status=none")
        })
    return Row(
        name: "write 1 GiB", measured: rate(size, ours), floor: "dd conv=fdatasync \(rate(size, floor))",
        ratio: round2(floor / ours), promise: ">= 0.7")
}

private func memory(_ daemon: Daemon, _ client: FilesClient, _ directory: String) throws -> Row {
    let size = 5 << 30
    try shell("truncate -s 5G \(directory)/sparse")
    let before = daemon.rssKiB
    var most = before
    try client.download("/api/v0/read-file?path=\(directory)/sparse", expect: size) { most = max(most, daemon.rssKiB) }
    return Row(name: "memory for 5 GiB", measured: mebibytes(most - before), promise: "<= 8 MiB more")
}

/// One line of a file of 1 MiB; in /dev/shm, where nothing waits for a disk.
func editing(_ client: FilesClient) throws -> [Row] {
    let path = "/dev/shm/wa-bench-\(getpid())"
    defer { unlink(path) }
    let line = Array("a line of text as there are many in a source file\n".utf8)
    var bytes: [UInt8] = []
    while bytes.count < 1 << 20 { bytes += line }
    bytes += Array("version = one\n".utf8)
    let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
    guard write(descriptor, bytes, bytes.count) == bytes.count else { throw BenchFailure("write \(path)") }
    close(descriptor)
    var isOne = true
    let times = try samples(300) {
        let (search, replace) = isOne ? ("version = one", "version = two") : ("version = two", "version = one")
        isOne.toggle()
        try client.post(
            "edit-files",
            "{\"files\":[{\"path\":\"\(path)\",\"edits\":[{\"search\":\"\(search)\",\"replace\":\"\(replace)\"}]}],"
                + "\"include_diff\":true}")
    }
    let floor = try samples(300) { try rewrite(path) }
    let (ours, plain) = (percentile(times, 0.5), percentile(floor, 0.5))
    return [
        Row(
            name: "edit a line of 1 MiB, with diff", measured: milli(ours),
            floor: "read, write, rename \(milli(plain))", ratio: round2(ours / plain), promise: "<= 3 ms")
    ]
}

/// The least that an edit has to do.
private func rewrite(_ path: String) throws {
    var area = [UInt8](repeating: 0, count: 2 << 20)
    let source = open(path, O_RDONLY)
    let count = read(source, &area, area.count)
    close(source)
    let target = open("\(path).new", O_WRONLY | O_CREAT | O_EXCL, 0o644)
    guard count > 0, write(target, area, count) == count else { throw BenchFailure("rewrite") }
    close(target)
    guard rename("\(path).new", path) == 0 else { throw BenchFailure("rename") }
}
