import AgentCore
import Glibc

/// Connects to a server by TCP.
enum BuiltInSSHSocket {
    /// Tries the host's addresses in turn.
    /// - Parameters:
    ///   - family: `AF_UNSPEC`, `AF_INET` or `AF_INET6`.
    ///   - deadline: for all of them together; each has its share of what is left.
    /// - Returns: a descriptor that does not block.
    /// - Throws: ``BuiltInSSHFailure`` that says what became of each.
    static func connect(
        _ host: String, _ port: UInt16, family: CInt, deadline: ContinuousClock.Instant, _ messages: BuiltInSSHMessages
    ) throws(BuiltInSSHFailure) -> OwnedDescriptor {
        var hints = addrinfo()
        hints.ai_family = family
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, "\(port)", &hints, &list)
        guard code == 0 else {
            let reason = code == EAI_SYSTEM ? errnoText(errno) : String(cString: gai_strerror(code))
            throw BuiltInSSHFailure("cannot find the address of \(host): \(reason)")
        }
        defer { freeaddrinfo(list) }
        let addresses = Array(sequence(first: list, next: { $0?.pointee.ai_next }).compactMap { $0?.pointee })
        var problems: [String] = []
        for (index, address) in addresses.enumerated() {
            let left = ContinuousClock.now.duration(to: deadline) / (addresses.count - index)
            messages.step("connecting to \(text(address)) port \(port)")
            let descriptor = OwnedDescriptor(
                socket(
                    address.ai_family, address.ai_socktype | Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue),
                    address.ai_protocol))
            guard let problem = connect(descriptor.number, address, within: left) else {
                setOptions(descriptor.number)
                return descriptor
            }
            problems.append("\(text(address)): \(errnoText(problem))")
        }
        throw BuiltInSSHFailure("cannot connect to \(host) port \(port): \(problems.joined(separator: "; "))")
    }

    /// - Returns: nil once it is connected, or an errno.
    private static func connect(_ descriptor: CInt, _ address: addrinfo, within limit: Duration) -> CInt? {
        guard descriptor >= 0 else { return errno }
        if Glibc.connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 { return nil }
        guard errno == EINPROGRESS else { return errno }
        guard wait(descriptor, Int16(POLLOUT), until: .now + limit) else { return ETIMEDOUT }
        var error: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) == 0 else { return errno }
        return error == 0 ? nil : error
    }

    /// Waits for events of a descriptor.
    /// - Returns: false at the deadline.
    static func wait(_ descriptor: CInt, _ events: Int16, until deadline: ContinuousClock.Instant) -> Bool {
        var item = pollfd(fd: descriptor, events: events, revents: 0)
        while true {
            let left = ContinuousClock.now.duration(to: deadline)
            guard left > .zero else { return false }
            let milliseconds =
                min(left.components.seconds, 3_600) * 1_000 + left.components.attoseconds / 1_000_000_000_000_000
            if poll(&item, 1, CInt(milliseconds) + 1) > 0 { return true }
        }
    }

    private static func setOptions(_ descriptor: CInt) {
        func set(_ level: CInt, _ name: CInt, _ value: CInt) {
            var value = value
            setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<CInt>.size))
        }
        set(CInt(IPPROTO_TCP), TCP_NODELAY, 1)
        // A server that is gone without a word is noticed within two minutes.
        set(SOL_SOCKET, SO_KEEPALIVE, 1)
        set(CInt(IPPROTO_TCP), TCP_KEEPIDLE, 60)
        set(CInt(IPPROTO_TCP), TCP_KEEPINTVL, 15)
        set(CInt(IPPROTO_TCP), TCP_KEEPCNT, 4)
    }

    private static func text(_ address: addrinfo) -> String {
        var name = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        guard
            getnameinfo(address.ai_addr, address.ai_addrlen, &name, socklen_t(name.count), nil, 0, NI_NUMERICHOST) == 0
        else { return "an address" }
        return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
