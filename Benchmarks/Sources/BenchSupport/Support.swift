import Glibc

/// What the benchmark cannot go on without.
package struct BenchFailure: Error, CustomStringConvertible {
    package var description: String
    package init(_ description: String) { self.description = description }
}

package func seconds() -> Double {
    var now = timespec()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return Double(now.tv_sec) + Double(now.tv_nsec) / 1e9
}

/// The value below which the share of the samples lies.
package func percentile(_ samples: [Double], _ share: Double) -> Double {
    let sorted = samples.sorted()
    guard !sorted.isEmpty else { return 0 }
    return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}

package func round1(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }
package func round2(_ value: Double) -> String { "\((value * 100).rounded() / 100)" }
package func micro(_ value: Double) -> String { "\(Int((value * 1e6).rounded())) µs" }
package func milli(_ value: Double) -> String { "\(round2(value * 1000)) ms" }
package func mebibytes(_ kibibytes: Double) -> String { "\(round1(kibibytes / 1024)) MiB" }

package func pad(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(1, width - text.count))
}

/// Prints a line at once, into a pipe, too.
package func say(_ line: String) {
    let text = Array("\(line)\n".utf8)
    _ = write(1, text, text.count)
}

/// The times of each call.
package func samples(_ count: Int, warmUp: Int = 50, _ body: () throws -> Void) rethrows -> [Double] {
    for _ in 0..<warmUp { try body() }
    return try (0..<count).map { _ in
        let begin = seconds()
        try body()
        return seconds() - begin
    }
}

package func contents(_ path: String) -> String {
    let descriptor = open(path, O_RDONLY)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    var area = [UInt8](repeating: 0, count: 8192)
    let n = read(descriptor, &area, area.count)
    return String(decoding: area.prefix(max(n, 0)), as: UTF8.self)
}

package func entries(_ path: String) -> [String] {
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != "." && name != ".." { names.append(name) }
    }
    return names
}

/// Starts a program with its output thrown away; the pid.
package func spawn(_ arguments: [String]) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor: CInt in [1, 2] {
        posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0)
    }
    var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
    defer { for pointer in argv { free(pointer) } }
    var pid = pid_t()
    guard posix_spawnp(&pid, arguments[0], &actions, nil, &argv, environ) == 0 else {
        throw BenchFailure("cannot start \(arguments[0])")
    }
    return pid
}
