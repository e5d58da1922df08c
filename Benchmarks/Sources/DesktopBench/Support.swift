import BenchSupport
import Glibc

func pause(_ time: Double) { poll(nil, 0, CInt(time * 1000)) }

func row(_ name: String, _ measured: String, floor: String = "", ratio: String = "") {
    say(pad(name, 36) + pad(measured, 34) + pad(floor, 34) + ratio)
}

/// Runs a program to its end.
func run(_ arguments: String...) throws {
    let pid = try spawn(arguments)
    var status: CInt = 0
    waitpid(pid, &status, 0)
    guard status == 0 else { throw BenchFailure("\(arguments.joined(separator: " ")): status \(status)") }
}

func connectUnix(_ path: String) throws -> CInt {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix(107)) }
    let rc = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    guard rc == 0 else { throw BenchFailure("connect \(path): errno \(errno)") }
    return descriptor
}

func connectTCP(_ port: Int) throws -> CInt {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = in_port_t(UInt16(port).bigEndian)
    address.sin_addr.s_addr = in_addr_t(UInt32(0x7f00_0001).bigEndian)
    let rc = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
    }
    guard rc == 0 else { throw BenchFailure("connect to port \(port): errno \(errno)") }
    var on: CInt = 1
    setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
    return descriptor
}

extension Daemon {
    func tell(_ when: String) {
        row("daemon \(when)", "\(mebibytes(rssKiB)) RSS, \(threads) threads")
    }
}
