import BenchSupport
import Glibc

/// Seconds of CPU that this process used.
func ownCPU() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
    return seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A blocking keep-alive connection to a unix socket, as thin as can be.
final class Client {
    private let descriptor: CInt
    private var buffer = [UInt8](repeating: 0, count: 1 << 17)

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
        guard rc == 0 else { throw BenchFailure("connect \(path): errno \(errno)") }
    }

    deinit { close(descriptor) }

    /// One request; the body of its answer.
    func request(_ method: String, _ path: String, _ body: String? = nil) throws -> String {
        var text = "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\n"
        if let body { text += "Content-Type: application/json\r\nContent-Length: \(body.utf8.count)\r\n" }
        text += "\r\n" + (body ?? "")
        let bytes = Array(text.utf8)
        guard write(descriptor, bytes, bytes.count) == bytes.count else { throw BenchFailure("write: errno \(errno)") }
        var count = 0
        while true {
            let n = buffer.withUnsafeMutableBytes { read(descriptor, $0.baseAddress! + count, $0.count - count) }
            guard n > 0 else { throw BenchFailure("the daemon closed") }
            count += n
            let answer = String(decoding: buffer[..<count], as: UTF8.self)
            guard let end = answer.firstRange(of: "\r\n\r\n") else { continue }
            let head = answer[..<end.lowerBound]
            guard
                let length = head.split(separator: "\r\n").first(where: { $0.hasPrefix("Content-Length: ") })
                    .flatMap({ Int($0.dropFirst(16)) })
            else { throw BenchFailure("no length") }
            let body = answer[end.upperBound...]
            if body.utf8.count >= length { return String(body) }
        }
    }

    /// Starts a command and waits for its end.
    func run(_ command: String) throws -> String {
        let id = try start(command)
        return try request("GET", "/api/v0/processes/\(id)/output?wait=true")
    }

    func start(_ command: String) throws -> String {
        let answer = try request("POST", "/api/v0/processes/start", "{\"command\":\"\(command)\"}")
        guard let key = answer.firstRange(of: "\"id\":\"") else { throw BenchFailure(answer) }
        return String(answer[key.upperBound...].prefix { $0 != "\"" })
    }
}

/// A command run by posix_spawn with a pipe, as bare as can be: the floor.
enum Bare {
    static func spawn(_ command: String, output: CInt? = nil) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let output { posix_spawn_file_actions_adddup2(&actions, output, 1) }
        var argv: [UnsafeMutablePointer<CChar>?] = [strdup("sh"), strdup("-c"), strdup(command), nil]
        defer { for pointer in argv { free(pointer) } }
        var pid = pid_t()
        guard posix_spawn(&pid, "/bin/sh", &actions, nil, &argv, environ) == 0 else { throw BenchFailure("spawn") }
        return pid
    }

    static func run(_ command: String) throws {
        let pid = try spawn(command)
        waitpid(pid, nil, 0)
    }

    /// Seconds to read all that a command writes.
    static func drain(_ command: String) throws -> Double {
        var fds: [CInt] = [0, 0]
        guard pipe(&fds) == 0, fcntl(fds[0], F_SETFD, FD_CLOEXEC) == 0, fcntl(fds[1], F_SETFD, FD_CLOEXEC) == 0 else {
            throw BenchFailure("pipe")
        }
        let begin = seconds()
        let pid = try spawn(command, output: fds[1])
        close(fds[1])
        var area = [UInt8](repeating: 0, count: 256 << 10)
        while read(fds[0], &area, area.count) > 0 {}
        close(fds[0])
        waitpid(pid, nil, 0)
        return seconds() - begin
    }
}
