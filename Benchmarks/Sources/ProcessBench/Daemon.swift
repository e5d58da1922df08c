import Glibc

/// The release binary under test.
final class Daemon {
    let socket: String
    let pid: pid_t
    /// From exec to the notification that it is ready.
    let readySeconds: Double

    init(_ binary: String) throws {
        var template = Array("/tmp/wa-bench-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw BenchFailure("mkdtemp") }
        let directory = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        socket = "\(directory)/http.sock"
        let notify = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(notify) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: "\(directory)/notify".utf8) }
        _ = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(notify, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        setenv("NOTIFY_SOCKET", "\(directory)/notify", 1)
        let arguments = [
            binary, "agent", "--http-socket", socket, "--state-dir", "\(directory)/state", "--log-dir", directory,
            "--log-human", "\(directory)/log", "--socket-path", "\(directory)/agent.sock",
        ]
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for pointer in argv { free(pointer) } }
        let begin = seconds()
        var pid = pid_t()
        guard posix_spawn(&pid, binary, nil, nil, &argv, environ) == 0 else {
            throw BenchFailure("cannot start \(binary)")
        }
        self.pid = pid
        var area = [UInt8](repeating: 0, count: 4096)
        guard recv(notify, &area, area.count, 0) > 0 else { throw BenchFailure("the daemon is not ready") }
        readySeconds = seconds() - begin
        unsetenv("NOTIFY_SOCKET")
    }

    func stop() {
        kill(pid, SIGTERM)
        waitpid(pid, nil, 0)
    }

    /// Seconds of CPU that its threads used.
    var cpu: Double {
        // schedstat counts nanoseconds; stat's ticks are too coarse.
        entries("/proc/\(pid)/task").reduce(0) { sum, thread in
            let text = contents("/proc/\(pid)/task/\(thread)/schedstat")
            return sum + (Double(text.split(separator: " ").first ?? "0") ?? 0) / 1e9
        }
    }

    var rssKiB: Double {
        let line = contents("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line.flatMap {
            Double($0.split(separator: " ", omittingEmptySubsequences: true).dropFirst().first ?? "0")
        } ?? 0
    }

    var threads: Int { entries("/proc/\(pid)/task").count }
    var descriptors: Int { entries("/proc/\(pid)/fd").count }

    private func entries(_ path: String) -> [String] {
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

    private func contents(_ path: String) -> String {
        let descriptor = open(path, O_RDONLY)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var area = [UInt8](repeating: 0, count: 8192)
        let n = read(descriptor, &area, area.count)
        return String(decoding: area.prefix(max(n, 0)), as: UTF8.self)
    }
}
