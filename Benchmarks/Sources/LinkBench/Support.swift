import BenchSupport
import Glibc

func row(_ name: String, _ measured: String, floor: String = "", ratio: String = "", promise: String = "") {
    say(pad(name, 36) + pad(measured, 28) + pad(floor, 30) + pad(ratio, 8) + promise)
}

/// The load average, as the figures depend on it.
var load: String { contents("/proc/loadavg").split(separator: " ").prefix(3).joined(separator: " ") }

/// The program at work for this process.
let ownPath: String = {
    var area = [CChar](repeating: 0, count: 4096)
    let n = readlink("/proc/self/exe", &area, area.count)
    return String(decoding: area.prefix(max(n, 0)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}()

/// Raises the soft limit of descriptors to the hard one.
func raiseDescriptorLimit() -> Int {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    return Int(limit.rlim_cur)
}

/// What /proc says about a process.
struct ProcessFigures {
    var pid: pid_t

    private func status(_ field: String, _ path: String) -> Double {
        let line = contents(path).split(separator: "\n").first { $0.hasPrefix("\(field):") }
        let words = line?.split(whereSeparator: { $0 == " " || $0 == "\t" }) ?? []
        return words.count > 1 ? Double(words[1]) ?? 0 : 0
    }

    var rssKiB: Double { status("VmRSS", "/proc/\(pid)/status") }

    var threads: [String] {
        guard let directory = opendir("/proc/\(pid)/task") else { return [] }
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

    /// How often each thread has gone to sleep, by "name/id".
    var sleeps: [String: Int] {
        var all: [String: Int] = [:]
        for thread in threads {
            let path = "/proc/\(pid)/task/\(thread)"
            let name = contents("\(path)/comm").split(separator: "\n").first ?? "?"
            all["\(name)/\(thread)"] = Int(status("voluntary_ctxt_switches", "\(path)/status"))
        }
        return all
    }

    /// Seconds of CPU that its threads used.
    var cpu: Double {
        threads.reduce(0) { sum, thread in
            let text = contents("/proc/\(pid)/task/\(thread)/schedstat")
            return sum + (Double(text.split(separator: " ").first ?? "0") ?? 0) / 1e9
        }
    }
}

/// A child whose stdin and stdout are ours; it ends with us.
final class Child {
    let pid: pid_t
    private let input: CInt
    private let output: CInt
    private var buffer: [UInt8] = []

    init(_ arguments: [String], environment: [String]) throws {
        var toChild: [CInt] = [0, 0]
        var fromChild: [CInt] = [0, 0]
        guard pipe(&toChild) == 0, pipe(&fromChild) == 0 else { throw BenchFailure("pipe") }
        // Another child must not hold them open.
        for descriptor in toChild + fromChild { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, toChild[0], 0)
        posix_spawn_file_actions_adddup2(&actions, fromChild[1], 1)
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = environment.map { strdup($0) } + [nil]
        defer { for pointer in argv + envp { free(pointer) } }
        var pid = pid_t()
        guard posix_spawn(&pid, arguments[0], &actions, nil, &argv, &envp) == 0 else {
            throw BenchFailure("cannot start \(arguments[0])")
        }
        close(toChild[0])
        close(fromChild[1])
        self.pid = pid
        input = toChild[1]
        output = fromChild[0]
    }

    var figures: ProcessFigures { ProcessFigures(pid: pid) }

    /// The next line that it prints.
    func line() throws -> String {
        var area = [UInt8](repeating: 0, count: 4096)
        while true {
            if let end = buffer.firstIndex(of: 10) {
                defer { buffer.removeSubrange(...end) }
                return String(decoding: buffer[..<end], as: UTF8.self)
            }
            let n = read(output, &area, area.count)
            guard n > 0 else { throw BenchFailure("a child ended too soon") }
            buffer += area.prefix(n)
        }
    }

    func stop() {
        kill(pid, SIGTERM)
        close(input)
        waitpid(pid, nil, 0)
        close(output)
    }
}
