import CPlatform
import Glibc
import IPAddresses
import NIOCore

/// Gathers datagrams of one size to one address, which the kernel takes at once and cuts itself (UDP_SEGMENT).
struct OutgoingDatagrams {
    /// What the kernel takes at once.
    static let segments = 64
    static let bytes = 65_000
    /// Addresses that are remembered to take no segmented datagrams.
    static let exceptions = 1_024

    enum Outcome: Equatable {
        case sent
        /// The socket's buffer is full: what is gathered stays.
        case full
    }

    private let descriptor: CInt
    private var buffer: UnsafeMutableRawBufferPointer
    private var count = 0
    private var segment = 0
    private var number = 0
    private var isEnded = false
    private var endpoint = Endpoint(.unspecified, 0)
    private var address = SocketAddress(Endpoint(.unspecified, 0))
    /// Where the path or the device wants single datagrams: one of an MTU below the datagram's size.
    private var unsegmented: Set<Endpoint> = []
    private var problem: CInt?

    /// - Parameter descriptor: stays the caller's.
    init(descriptor: CInt) {
        self.descriptor = descriptor
        buffer = .allocate(byteCount: Self.bytes, alignment: 16)
    }

    /// Frees the memory; nothing may be called afterwards.
    mutating func deallocate() {
        buffer.deallocate()
        buffer = .init(start: nil, count: 0)
    }

    /// Takes a datagram, after sending what cannot go with it.
    /// - Returns: false when it was not taken, since what is before it cannot be sent now.
    mutating func append(_ datagram: UnsafeRawBufferPointer, to endpoint: Endpoint) -> Bool {
        guard datagram.count > 0, datagram.count <= buffer.count else { return true }
        if count > 0,
            isEnded || endpoint != self.endpoint || datagram.count > segment || number == Self.segments
                || count + datagram.count > buffer.count
        {
            guard flush() == .sent else { return false }
        }
        if count == 0 {
            if endpoint != self.endpoint { (self.endpoint, address) = (endpoint, SocketAddress(endpoint)) }
            segment = datagram.count
            isEnded = unsegmented.contains(endpoint)
        }
        UnsafeMutableRawBufferPointer(rebasing: buffer[count..<count + datagram.count]).copyMemory(from: datagram)
        count += datagram.count
        number += 1
        if datagram.count < segment { isEnded = true }
        return true
    }

    /// Sends what is gathered.
    mutating func flush() -> Outcome {
        guard count > 0 else { return .sent }
        var problem = send(0..<count)
        if problem == EAGAIN { return .full }
        if problem != 0, number > 1, [EINVAL, EMSGSIZE, EIO, EOPNOTSUPP].contains(problem) {
            if unsegmented.count >= Self.exceptions { unsegmented = [] }
            unsegmented.insert(endpoint)
            problem = sendSingly()
        }
        if problem != 0 { self.problem = problem }
        (count, number) = (0, 0)
        return .sent
    }

    private mutating func sendSingly() -> CInt {
        var problem: CInt = 0
        for start in stride(from: 0, to: count, by: segment) {
            let next = send(start..<min(start + segment, count))
            // Those for which there is no room are lost: IP may lose them.
            if next != 0 { problem = next }
        }
        return problem
    }

    /// Why the kernel refused a datagram since this was last asked: an errno.
    mutating func takeProblem() -> CInt? {
        defer { problem = nil }
        return problem
    }

    private func send(_ range: Range<Int>) -> CInt {
        let bytes = UnsafeRawBufferPointer(rebasing: buffer[range])
        return address.withSockAddr { address, length in
            -wa_udp_send(
                descriptor, address, UInt32(length), bytes.baseAddress, bytes.count, UInt16(clamping: segment))
        }
    }
}
