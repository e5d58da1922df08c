import BenchSupport
import Glibc

/// Seconds of CPU that this process used.
func ownCPU() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }
    return seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A command run by posix_spawn, as bare as can be.
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

    /// Starts a command that writes into a pipe.
    static func piped(_ command: String) throws -> (pid: pid_t, output: CInt) {
        let (read, write) = try makePipe()
        defer { close(write) }
        return (try spawn(command, output: write), read)
    }

    /// Seconds to read all that a command writes.
    static func drain(_ command: String) throws -> Double {
        let begin = seconds()
        let (pid, output) = try piped(command)
        var area = [UInt8](repeating: 0, count: 256 << 10)
        while read(output, &area, area.count) > 0 {}
        close(output)
        waitpid(pid, nil, 0)
        return seconds() - begin
    }
}

func makePipe() throws -> (read: CInt, write: CInt) {
    var ends: [CInt] = [0, 0]
    guard pipe(&ends) == 0 else { throw BenchFailure("pipe: errno \(errno)") }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ends[0], ends[1])
}

/// Both ends of a terminal.
func makeTerminal() throws -> (terminal: CInt, program: CInt) {
    // TIOCSPTLCK and TIOCGPTN: Swift sees neither these nor posix_openpt.
    let (unlock, getNumber): (UInt, UInt) = (0x4004_5431, 0x8004_5430)
    let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var (off, number): (CInt, CUnsignedInt) = (0, 0)
    guard terminal >= 0, ioctl(terminal, unlock, &off) == 0, ioctl(terminal, getNumber, &number) == 0 else {
        throw BenchFailure("/dev/ptmx: errno \(errno)")
    }
    return (terminal, open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC))
}

/// A thread.
struct Thread {
    private final class Body {
        let run: () -> Void
        init(_ run: @escaping () -> Void) { self.run = run }
    }

    private var thread = pthread_t()

    init(_ run: @escaping () -> Void) {
        pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, Unmanaged.passRetained(Body(run)).toOpaque())
    }

    func join() { pthread_join(thread, nil) }
}

/// A thread that answers a request's bytes with an answer's: the least a round trip can cost.
final class PingPong {
    private let client: CInt
    private let server: CInt
    private let thread: Thread

    private init(client: CInt, server: CInt) {
        (self.client, self.server) = (client, server)
        thread = Thread {
            var area = [UInt8](repeating: 0, count: 1024)
            while case let n = read(server, &area, area.count), n > 0 { _ = write(server, area, 200) }
        }
    }

    static func unix() throws -> PingPong {
        var ends: [CInt] = [0, 0]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw BenchFailure("socketpair: errno \(errno)")
        }
        return PingPong(client: ends[0], server: ends[1])
    }

    static func tcp() throws -> PingPong {
        let (listener, port) = try listen()
        defer { close(listener) }
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var name = loopback(port)
        let rc = withUnsafePointer(to: &name) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(client, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        let server = accept(listener, nil, nil)
        guard rc == 0, server >= 0 else { throw BenchFailure("connect: errno \(errno)") }
        var on: CInt = 1
        for end in [client, server] {
            setsockopt(end, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
        }
        return PingPong(client: client, server: server)
    }

    func roundTrip() {
        var area: (UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0)
        withUnsafeMutableBytes(of: &area) { _ = write(client, $0.baseAddress, 40) }
        withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 8) { _ = read(client, $0.baseAddress, 1024) }
    }

    func end() {
        shutdown(client, Int32(SHUT_RDWR))
        thread.join()
        close(client)
        close(server)
    }
}

/// A listener on a free port of 127.0.0.1.
func listen() throws -> (descriptor: CInt, port: UInt16) {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var name = loopback(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let rc = withUnsafeMutablePointer(to: &name) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { name in
            bind(listener, name, length) == 0 && Glibc.listen(listener, 16) == 0
                && getsockname(listener, name, &length) == 0
        }
    }
    guard rc else { throw BenchFailure("listen: errno \(errno)") }
    return (listener, UInt16(bigEndian: name.sin_port))
}
