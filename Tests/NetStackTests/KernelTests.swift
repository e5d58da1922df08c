import AgentTestSupport
import Glibc
import IPAddresses
import NIOCore
import Testing

@testable import NetStack

/// Our TCP and the kernel's: what one side does, the other sees as it sees the kernel do it.
@Suite(.serialized, .timeLimit(.minutes(5)), .enabled(if: KernelPeer.isPossible, "namespaces or TUN are not permitted"))
struct KernelTests {
    /// The same script between two sockets of the kernel and between ours and one of them.
    @Test(arguments: 0..<40) func theSameIsSeen(number: Int) throws {
        try KernelPeer.onOwnThread(seed: "theSameIsSeen \(number)") { peer in
            var random = SeededGenerator("script \(number)")
            let script = Self.script(&random)
            let (a, b) = try KernelPeer.kernelPair()
            let expected = try Self.run(script, KernelEnd(a), KernelEnd(b)) { _ in
            } settle: { action, written, look in
                let end = ContinuousClock.now + .seconds(20)
                while !Self.isSettled(action, written, look()) {
                    if ContinuousClock.now > end {
                        throw DeadlineExceeded(what: "\(script): \(action) between kernels")
                    }
                    poll(nil, 0, 1)
                }
                return look()
            }
            let path = Link.Path(
                delay: .microseconds(200), jitter: .milliseconds(number % 3), loss: Double(number % 4) / 50,
                duplication: Double(number % 2) / 20)
            peer.path = path
            let (id, kernel) = try peer.connection(weConnect: number % 2 == 0)
            var step = 0
            _ = try Self.run(script, OurEnd(peer, id), KernelEnd(kernel)) { action in
                peer.path = path
                // A reset is sent once: that one must not be lost.
                if action.resets { peer.path.loss = 0 }
            } settle: { action, _, look in
                let wanted = expected[step]
                step += 1
                var views = look()
                try peer.wait("\(script) at \(step) (\(action)): \(wanted), not \(views)") {
                    views = look()
                    return views == wanted
                }
                return views
            }
            peer.stack.checkInvariants()
        }
    }

    @Test(arguments: [0.0, 0.01, 0.05], [true, false]) func bytesArriveExactly(loss: Double, weConnect: Bool) throws {
        try KernelPeer.onOwnThread(seed: "\(loss)") { peer in
            peer.path = Link.Path(
                delay: .milliseconds(1), jitter: .milliseconds(1), loss: loss, duplication: loss / 4)
            let (id, kernel) = try peer.connection(weConnect: weConnect)
            let (ours, theirs) = (OurEnd(peer, id), KernelEnd(kernel))
            let count = 1 << 20
            for end in [ours, theirs] as [any TestEnd] {
                end.write(count)
                end.finish()
            }
            try peer.wait("\(ours.view) and \(theirs.view)") {
                // Both read and write in it.
                [ours.view, theirs.view].allSatisfy(\.isOver)
            }
            #expect(ours.view.received == count && theirs.view.received == count)
            #expect(!ours.isCorrupt && !theirs.isCorrupt)
        }
    }

    // MARK: Scripts

    enum Action: CustomStringConvertible {
        case write(Int, Int)
        case finish(Int)
        case close(Int)
        case abort(Int)
        /// The side has not read this much when it closes.
        case closeUnread(Int, Int)

        var resets: Bool {
            switch self {
            case .write, .finish, .close: false
            case .abort, .closeUnread: true
            }
        }

        var description: String {
            switch self {
            case .write(let side, let count): "\(side) writes \(count)"
            case .finish(let side): "\(side) finishes"
            case .close(let side): "\(side) closes"
            case .abort(let side): "\(side) aborts"
            case .closeUnread(let side, let count): "\(side) closes with \(count) unread"
            }
        }
    }

    struct Views: Equatable {
        /// nil of a side that is closed.
        var sides: [EndView?]
    }

    /// What an application may do, each at most once where that is all that it may.
    private static func script(_ random: inout SeededGenerator) -> [Action] {
        var actions: [Action] = []
        var (finished, gone) = ([false, false], [false, false])
        while actions.count < 20, gone.contains(false) {
            let side = Int.random(in: 0...1, using: &random)
            if gone[side] { continue }
            switch Int.random(in: 0..<16, using: &random) {
            case 0 where !finished[side]:
                finished[side] = true
                actions.append(.finish(side))
            case 1:
                gone[side] = true
                actions.append(.close(side))
            case 2:
                gone[side] = true
                actions.append(.abort(side))
            case 3 where !finished[1 - side] && !gone[1 - side]:
                gone[side] = true
                actions.append(.closeUnread(side, Int.random(in: 1...20_000, using: &random)))
            default:
                if !finished[side] { actions.append(.write(side, Int.random(in: 1...60_000, using: &random))) }
            }
        }
        return actions
    }

    /// Whether all that follows from an action was seen.
    private static func isSettled(_ action: Action, _ written: [Int], _ views: Views) -> Bool {
        // A side that is left alone is over with its next write, and whoever is over sees nothing more.
        func isOver(_ side: Int) -> Bool { views.sides[side]?.isOver ?? true }
        switch action {
        case .write(let side, _):
            guard let other = views.sides[1 - side] else { return isOver(side) }
            return other.isOver || other.received + other.unread == written[side]
        case .finish(let side), .close(let side):
            guard let other = views.sides[1 - side] else { return isOver(side) }
            guard let own = views.sides[side] else { return other.isOver || other.hasEnded }
            // Both have ended, or only this one.
            return own.isOver && other.isOver || other.hasEnded && !own.hasEnded
        case .abort(let side), .closeUnread(let side, _): return isOver(1 - side)
        }
    }

    private static func run(
        _ script: [Action], _ a: any TestEnd, _ b: any TestEnd, before: (Action) -> Void,
        settle: (Action, _ written: [Int], () -> Views) throws -> Views
    ) throws -> [Views] {
        let ends = [a, b]
        var result: [Views] = []
        var written = [0, 0]
        func look() -> Views { Views(sides: ends.map { $0.isGone ? nil : $0.view }) }
        for action in script {
            before(action)
            switch action {
            case .write(let side, let count):
                ends[side].write(count)
                written[side] += count
            case .finish(let side): ends[side].finish()
            case .close(let side): ends[side].close()
            case .abort(let side): ends[side].abort()
            case .closeUnread(let side, let count):
                ends[side].isHolding = true
                ends[1 - side].write(count)
                written[1 - side] += count
                result.append(try settle(.write(1 - side, count), written, look))
                ends[side].close()
            }
            result.append(try settle(action, written, look))
        }
        for end in ends {
            #expect(!end.isCorrupt)
            if !end.isGone { end.abort() }
        }
        return result
    }
}

/// What an application sees of a connection.
struct EndView: Equatable, CustomStringConvertible {
    var received = 0
    var unread = 0
    var hasEnded = false
    /// Nothing comes or goes any more.
    var isOver = false

    var description: String { "\(received) + \(unread) bytes\(hasEnded ? ", end" : "")\(isOver ? ", over" : "")" }
}

/// One side of a connection, with an application that sends a pattern and reads all unless it holds.
protocol TestEnd: AnyObject {
    var isHolding: Bool { get set }
    var isGone: Bool { get }
    var isCorrupt: Bool { get }
    /// Reads and writes what can be, and says what there is.
    var view: EndView { get }
    func write(_ count: Int)
    func finish()
    func close()
    func abort()
}

/// A socket of the kernel.
private final class KernelEnd: TestEnd {
    var isHolding = false
    private(set) var isGone = false
    private(set) var isCorrupt = false
    private let socket: CInt
    private var seen = EndView()
    private var hasFailed = false
    private var (toSend, sent, finishes) = (0, 0, false)
    private var area = [UInt8](repeating: 0, count: 65_536)

    init(_ socket: CInt) { self.socket = socket }

    deinit { if !isGone { Glibc.close(socket) } }

    var view: EndView {
        send()
        while !isHolding {
            let count = recv(socket, &area, area.count, CInt(MSG_DONTWAIT))
            if count < 0, errno != EAGAIN { hasFailed = true }
            // Behind an error it says that there is an end, too.
            if count == 0, !hasFailed { seen.hasEnded = true }
            guard count > 0 else { break }
            isCorrupt = isCorrupt || area[..<count].enumerated().contains { $1 != pattern(seen.received + $0, salt: 1) }
            seen.received += count
        }
        var unread: CInt = 0
        _ = ioctl(socket, UInt(FIONREAD), &unread)
        seen.unread = Int(unread)
        var info = tcp_info()
        var length = socklen_t(MemoryLayout<tcp_info>.size)
        getsockopt(socket, CInt(IPPROTO_TCP), TCP_INFO, &info, &length)
        // TCP_CLOSE: a connection in TIME_WAIT is no longer this socket's.
        seen.isOver = info.tcpi_state == 7
        return seen
    }

    private func send() {
        while sent < toSend {
            let bytes = patternBytes(sent, min(toSend - sent, 65_536), salt: 1)
            let count = Glibc.send(
                socket, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
            guard count > 0 else { break }
            sent += count
        }
        if finishes, sent == toSend {
            finishes = false
            shutdown(socket, CInt(SHUT_WR))
        }
    }

    func write(_ count: Int) {
        toSend += count
        send()
    }

    func finish() {
        finishes = true
        send()
    }

    func close() {
        isGone = true
        Glibc.close(socket)
    }

    func abort() {
        var lingering = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
        close()
    }
}

/// A connection of our stack, closed as the tunnel closes its.
private final class OurEnd: TestEnd {
    var isHolding = false
    private(set) var isGone = false
    private(set) var isCorrupt = false
    private let peer: KernelPeer
    private let id: ConnectionID
    private var seen = EndView()
    private var (toSend, sent, finishes) = (0, 0, false)

    init(_ peer: KernelPeer, _ id: ConnectionID) { (self.peer, self.id) = (peer, id) }

    var view: EndView {
        send()
        while !isHolding, let bytes = peer.stack.read(id, now: peer.now), bytes.readableBytes > 0 {
            let isRight = bytes.readableBytesView.enumerated().allSatisfy { $1 == pattern(seen.received + $0, salt: 1) }
            isCorrupt = isCorrupt || !isRight
            seen.received += bytes.readableBytes
        }
        seen.unread = peer.stack.readableBytes(id)
        for event in peer.events[id] ?? [] {
            switch event {
            case .endOfInput: seen.hasEnded = true
            case .closed, .failed: seen.isOver = true
            default: break
            }
        }
        return seen
    }

    private func send() {
        while sent < toSend {
            var buffer = ByteBuffer(bytes: patternBytes(sent, min(toSend - sent, 65_536), salt: 1))
            let count = peer.stack.write(id, &buffer, now: peer.now)
            guard count > 0 else { break }
            sent += count
        }
        if finishes, sent == toSend {
            finishes = false
            peer.stack.finish(id, now: peer.now)
        }
    }

    func write(_ count: Int) {
        toSend += count
        send()
    }

    func finish() {
        finishes = true
        send()
    }

    func close() {
        isGone = true
        if peer.stack.readableBytes(id) > 0 {
            peer.stack.abort(id, now: peer.now)
        } else {
            peer.stack.finish(id, now: peer.now)
            peer.closed.insert(id)
        }
    }

    func abort() {
        isGone = true
        peer.stack.abort(id, now: peer.now)
    }
}
