import Glibc

/// The binary under test.
package final class Daemon {
    package let socket: String
    package let pid: pid_t
    /// From its start to the notification that it is ready.
    package let readySeconds: Double

    /// - Parameter arguments: further ones.
    package init(_ binary: String, _ arguments: [String] = []) throws {
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
        let begin = seconds()
        pid = try spawn(
            [
                binary, "agent", "--http-socket", socket, "--state-dir", "\(directory)/state", "--log-dir", directory,
                "--log-human", "\(directory)/log", "--socket-path", "\(directory)/agent.sock",
            ] + arguments)
        var time = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(notify, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        var area = [UInt8](repeating: 0, count: 4096)
        guard recv(notify, &area, area.count, 0) > 0 else {
            kill(pid, SIGKILL)
            throw BenchFailure("the daemon is not ready: see \(directory)/log")
        }
        readySeconds = seconds() - begin
        unsetenv("NOTIFY_SOCKET")
    }

    package func stop() {
        kill(pid, SIGTERM)
        waitpid(pid, nil, 0)
    }

    /// Seconds of CPU that its threads used.
    package var cpu: Double {
        // schedstat counts nanoseconds; stat's ticks are too coarse.
        entries("/proc/\(pid)/task").reduce(0) { sum, thread in
            let text = contents("/proc/\(pid)/task/\(thread)/schedstat")
            return sum + (Double(text.split(separator: " ").first ?? "0") ?? 0) / 1e9
        }
    }

    package var rssKiB: Double {
        let line = contents("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line.flatMap { Double($0.split(separator: " ").dropFirst().first ?? "0") } ?? 0
    }

    package var threads: Int { entries("/proc/\(pid)/task").count }
    package var descriptors: Int { entries("/proc/\(pid)/fd").count }
}
