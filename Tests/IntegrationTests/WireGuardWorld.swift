import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

/// The daemon with `--wireguard-config`, and Debian's wireguard-go over a TUN device in a network namespace of its own:
/// the kernel's TCP is on the other side.
final class WireGuardWorld: Sendable {
    /// Namespaces, a device and both programs are needed.
    static let isPossible: Bool = {
        guard geteuid() == 0, access("/dev/net/tun", R_OK | W_OK) == 0 else { return false }
        let name = "wa-probe-\(getpid())"
        guard (try? CommandResult.of(["ip", "netns", "add", name]))?.code == 0 else { return false }
        let device = try? CommandResult.of(["ip", "-n", name, "tuntap", "add", "dev", "probe", "mode", "tun"])
        _ = try? CommandResult.of(["ip", "netns", "del", name])
        return device?.code == 0
    }()

    private static let numbers = Mutex(0)
    static let address = "fd99::1"

    let directory: TemporaryDirectory
    let configuration: String
    private let namespace: String
    private let network: String
    private let wireGuard: pid_t
    private let daemons = Mutex<[DaemonProcess]>([])

    var daemon: DaemonProcess { get throws { try #require(daemons.withLock { $0.last }) } }

    init() throws {
        let number = Self.numbers.withLock { number in
            number += 1
            return number
        }
        let id = "\(getpid() % 100_000)x\(number)"
        namespace = "wa-\(id)"
        // Each test has a network of its own, in a range for benchmarks (RFC 2544).
        let place = (Int(getpid()) * 16 + number) % 500
        network = "198.\(18 + place / 250).\(place % 250)"
        directory = try TemporaryDirectory()
        configuration = "\(directory.path)/wireguard.conf"
        for step in [
            "ip netns add \(namespace)", "ip link add a\(id) type veth peer name b\(id) netns \(namespace)",
            "ip addr add \(network).1/24 dev a\(id)", "ip link set a\(id) up",
            "ip -n \(namespace) addr add \(network).2/24 dev b\(id)",
            "ip -n \(namespace) link set b\(id) name outer", "ip -n \(namespace) link set outer up",
            "ip -n \(namespace) link set lo up",
        ] {
            try Self.run(step)
        }
        // In the foreground: it answers no request in its first moments as a daemon.
        wireGuard = try DaemonProcess.spawn(
            ["ip", "netns", "exec", namespace, "wireguard-go", "-f", "w\(id)"], ProcessInfo.processInfo.environment)
        try Self.run(
            """
            cd \(directory.path); umask 077
            wg genkey > server; wg genkey > client
            cat > \(configuration) <<END
            [Interface]
            PrivateKey = $(cat server)
            Address = \(Self.address)/128
            [Peer]
            PublicKey = $(wg pubkey < client)
            AllowedIPs = fd99::2/128
            END
            """)
    }

    /// Starts the daemon, and leads the client to it.
    /// - Parameter port: the one it had before, or 0 for any.
    @discardableResult
    func start(port: Int = 0, arguments: [String] = []) async throws -> Int {
        if port > 0 {
            let text = try String(contentsOfFile: configuration, encoding: .utf8)
            let line = "[Interface]\nListenPort = \(port)\n"
            try text.replacing("[Interface]\n", with: line).write(
                toFile: configuration, atomically: false, encoding: .utf8)
        }
        let daemon = try DaemonProcess(tcp: true, arguments: ["--wireguard-config", configuration] + arguments)
        daemons.withLock { $0.append(daemon) }
        let range = try #require(daemon.readyStatus.range(of: "WireGuard on UDP port "))
        let bound = try #require(Int(daemon.readyStatus[range.upperBound...].prefix { $0.isNumber }))
        guard port == 0 else { return bound }
        let device = "w" + namespace.dropFirst(3)
        try await eventually("wireguard-go answers") {
            try CommandResult.of(["ip", "netns", "exec", namespace, "wg", "show", device]).code == 0
        }
        try Self.run(
            """
            cd \(directory.path)
            ip netns exec \(namespace) wg set \(device) private-key client peer $(wg pubkey < server) \
            allowed-ips \(Self.address)/128 endpoint \(network).1:\(bound) persistent-keepalive 1
            ip -n \(namespace) addr add fd99::2/128 dev \(device)
            ip -n \(namespace) link set \(device) mtu 1280 up
            ip -n \(namespace) route add \(Self.address)/128 dev \(device)
            """)
        return bound
    }

    /// The client's port outside of the tunnel becomes another one. (With another address wireguard-go sends nothing
    /// until its next handshake.)
    func moveClient() throws {
        try Self.run("ip netns exec \(namespace) wg set w\(namespace.dropFirst(3)) listen-port 40123")
    }

    /// Runs a program beside the client.
    func inside(_ arguments: String...) throws -> CommandResult {
        try CommandResult.of(["ip", "netns", "exec", namespace] + arguments)
    }

    /// A browser beside the client.
    func browser() throws -> Browser {
        try Browser(wrapper: ["ip", "netns", "exec", namespace], host: "\(network).2")
    }

    /// curl on a path of the HTTP API.
    func curl(_ path: String, port: Int = 4, _ arguments: String...) throws -> CommandResult {
        try CommandResult.of(
            ["ip", "netns", "exec", namespace, "curl", "-sS", "-g", "-m", "600", "--noproxy", "*"] + arguments
                + ["http://[\(Self.address)]:\(port)\(path)"])
    }

    private static func run(_ script: String) throws {
        let result = try CommandResult.of(["sh", "-ec", script])
        guard result.code == 0 else { throw DeadlineExceeded(what: "\(script): \(result.errors)") }
    }

    deinit {
        kill(wireGuard, SIGTERM)
        waitpid(wireGuard, nil, 0)
        _ = try? CommandResult.of(["ip", "netns", "del", namespace])
    }
}
