import AgentTestSupport
import Foundation
import Glibc
import IPAddresses
import Testing

@testable import NetStack

/// Declared by hand: Swift's Glibc module does not see it.
@_silgen_name("unshare") private func unshare(_ flags: CInt) -> CInt
private let newNetwork: CInt = 0x4000_0000

/// A path between our stack and the kernel's TCP, by a TUN device in a network namespace of the calling thread. It
/// may lose, repeat and delay packets; times are real.
final class KernelPeer {
    static let ours = IPAddress(high: 0xfd00_0000_0000_0000, low: 1)
    static let kernels = IPAddress(high: 0xfd00_0000_0000_0000, low: 2)

    var stack: NetStack
    var path = Link.Path(delay: .zero)
    private(set) var events: [ConnectionID: [NetStackEvent]] = [:]
    /// Connections that the kernel asked for, accepted already.
    private(set) var requested: [ConnectionID] = []
    /// Connections whose reader is gone.
    var closed: Set<ConnectionID> = []
    private let device: CInt
    private let began = ContinuousClock.now
    private var random: SeededGenerator
    private var flights: [(at: Duration, isToUs: Bool, packet: [UInt8])] = []
    private var area = [UInt8](repeating: 0, count: 2_048)

    var now: Duration { ContinuousClock.now - began }

    /// Whether namespaces and devices are permitted.
    static let isPossible = geteuid() == 0 && (try? onOwnThread { _ in }) != nil

    /// Runs on a thread that is alone in a new network.
    static func onOwnThread(
        seed: String = "", limits: NetStackLimits = NetStackLimits(),
        _ body: @escaping @Sendable (KernelPeer) throws -> Void
    ) throws {
        // Written before the semaphore is signalled, read behind the wait for it.
        nonisolated(unsafe) var result: Result<Void, any Error> = .success(())
        let done = DispatchSemaphore(value: 0)
        Thread {
            result = Result { try body(try KernelPeer(seed, limits)) }
            done.signal()
        }.start()
        done.wait()
        try result.get()
    }

    private init(_ seed: String, _ limits: NetStackLimits) throws {
        guard unshare(newNetwork) == 0 else { throw DeadlineExceeded(what: "a network: errno \(errno)") }
        device = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK)
        // struct ifreq: a name, then IFF_TUN | IFF_NO_PI. The request is TUNSETIFF.
        var request = Array("peer".utf8) + [UInt8](repeating: 0, count: 36)
        (request[16], request[17]) = (0x01, 0x10)
        guard device >= 0, ioctl(device, 0x4004_54ca, &request) == 0 else {
            throw DeadlineExceeded(what: "a device: errno \(errno)")
        }
        random = SeededGenerator(seed)
        stack = NetStack(addresses: [Self.ours], limits: limits, random: &random)
        let script = """
            ip link set lo up; ip link set peer mtu 1280 up; ip addr add \(Self.kernels)/64 dev peer nodad
            """
        let result = try CommandResult.of(["sh", "-ec", script])
        guard result.code == 0 else { throw DeadlineExceeded(what: "an address: \(result.errors)") }
    }

    deinit { close(device) }

    // MARK: Packets

    private func chance(_ probability: Double) -> Bool {
        probability > 0 && Double.random(in: 0..<1, using: &random) < probability
    }

    private func carry(_ packet: [UInt8], isToUs: Bool) {
        if chance(path.loss) { return }
        for _ in 0..<(chance(path.duplication) ? 2 : 1) {
            let at = now + path.delay + path.jitter * Double.random(in: 0...1, using: &random)
            flights.append((at, isToUs, packet))
        }
    }

    /// Carries what there is, and waits a little where there is nothing.
    func pump() {
        var descriptor = pollfd(fd: device, events: Int16(POLLIN), revents: 0)
        let next = [stack.nextDeadline, flights.map(\.at).min()].compactMap { $0 }.min().map { $0 - self.now }
        poll(&descriptor, 1, next.map { $0 <= .zero ? 0 : 1 } ?? 1)
        while case let count = read(device, &area, area.count), count > 0 { carry(Array(area[..<count]), isToUs: true) }
        let now = now
        flights.sort { $0.at < $1.at }
        while let flight = flights.first, flight.at <= now {
            flights.removeFirst()
            if flight.isToUs { stack.receive(flight.packet, now: now) } else { deliver(flight.packet) }
        }
        if let deadline = stack.nextDeadline, deadline <= now { stack.advance(now: now) }
        while let event = stack.nextEvent() { take(event, now) }
        while let packet = stack.packet(now: now) { carry(packet, isToUs: false) }
    }

    private func deliver(_ packet: [UInt8]) { _ = write(device, packet, packet.count) }

    private func take(_ event: NetStackEvent, _ now: Duration) {
        switch event {
        case .connectionRequested(let id, _, _):
            stack.accept(id, now: now)
            requested.append(id)
        case .established(let id), .readable(let id), .writable(let id), .endOfInput(let id), .closed(let id),
            .failed(let id, _):
            events[id, default: []].append(event)
            if case .readable = event, closed.contains(id) { stack.abort(id, now: now) }
        case .datagram, .flowEnded: break
        }
    }

    /// Pumps until the condition holds.
    func wait(
        _ what: @autoclosure () -> String, within limit: Duration = .seconds(60), _ condition: () throws -> Bool
    ) throws {
        let end = now + limit
        while try !condition() {
            guard now < end else { throw DeadlineExceeded(what: what()) }
            pump()
        }
    }

    // MARK: Connections

    /// A connection between our stack and the kernel.
    func connection(weConnect: Bool) throws -> (ours: ConnectionID, kernel: CInt) {
        if weConnect {
            let (listener, port) = try Self.listen(Self.kernels)
            defer { close(listener) }
            let opened = stack.connect(to: Endpoint(Self.kernels, port), now: now)
            let id = try #require(opened)
            var socket: CInt = -1
            try wait("the kernel accepts") {
                socket = accept(listener, nil, nil)
                return socket >= 0
            }
            try wait("we are connected") { events[id]?.contains(.established(id)) ?? false }
            return (id, socket)
        }
        let count = requested.count
        let socket = Self.connect(Endpoint(Self.ours, 80))
        try wait("the kernel asks") { requested.count > count }
        let id = requested[count]
        try wait("we are connected") { events[id]?.contains(.established(id)) ?? false }
        return (id, socket)
    }

    /// A connection of the kernel with itself.
    static func kernelPair() throws -> (CInt, CInt) {
        let loopback = IPAddress(high: 0, low: 1)
        let (listener, port) = try listen(loopback)
        defer { close(listener) }
        let a = connect(Endpoint(loopback, port))
        var descriptor = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        poll(&descriptor, 1, 10_000)
        let b = accept(listener, nil, nil)
        guard b >= 0 else { throw DeadlineExceeded(what: "a pair of sockets: errno \(errno)") }
        return (a, b)
    }

    private static func address(_ endpoint: Endpoint) -> sockaddr_in6 {
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = endpoint.port.bigEndian
        inet_pton(AF_INET6, "\(endpoint.address)", &address.sin6_addr)
        return address
    }

    private static func withAddress<T>(
        _ address: inout sockaddr_in6, _ body: (UnsafeMutablePointer<sockaddr>, inout socklen_t) -> T
    ) -> T {
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        return withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, &length) }
        }
    }

    private static func listen(_ address: IPAddress) throws -> (CInt, UInt16) {
        let listener = socket(AF_INET6, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue), 0)
        var name = Self.address(Endpoint(address, 0))
        let code = withAddress(&name) { pointer, length in
            bind(listener, pointer, length) == 0 && Glibc.listen(listener, 8) == 0
                && getsockname(listener, pointer, &length) == 0
        }
        guard code else { throw DeadlineExceeded(what: "a listener: errno \(errno)") }
        return (listener, UInt16(bigEndian: name.sin6_port))
    }

    private static func connect(_ endpoint: Endpoint) -> CInt {
        let descriptor = socket(AF_INET6, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue), 0)
        var name = address(endpoint)
        _ = withAddress(&name) { pointer, length in Glibc.connect(descriptor, pointer, length) }
        return descriptor
    }
}
