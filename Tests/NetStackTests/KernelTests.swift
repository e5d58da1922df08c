import AgentTestSupport
import Foundation
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
            for end in [ours, theirs] as [TestEnd] {
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

    /// Uploads of the kernel over a bad path, with and without quick acknowledgments: prints bytes a second.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["WA_LONG"] != nil)) func uploadsOverABadPath() throws {
        for (round, loss) in [0.05, 0.05, 0.05, 0.01, 0].enumerated() {
            var figures: [String] = []
            for quick in [0, 16] {
                nonisolated(unsafe) var rate = 0.0
                var limits = NetStackLimits()
                limits.quickAcknowledgments = quick
                try KernelPeer.onOwnThread(seed: "upload \(round)", limits: limits) { peer in
                    peer.path = Link.Path(delay: .microseconds(12_500), loss: loss)
                    let (id, kernel) = try peer.connection(weConnect: false)
                    let (ours, theirs) = (OurEnd(peer, id), KernelEnd(kernel))
                    let (began, count) = (peer.now, 4 << 20)
                    theirs.write(count)
                    theirs.finish()
                    ours.finish()
                    try peer.wait("\(ours.view) and \(theirs.view)", within: .seconds(300)) {
                        [ours.view, theirs.view].allSatisfy(\.isOver)
                    }
                    rate = Double(count) / ((peer.now - began) / .seconds(1)) / 1e6
                }
                figures.append("\(quick): \((rate * 100).rounded() / 100)")
            }
            print("upload at \(loss): \(figures.joined(separator: ", ")) MB/s")
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
        _ script: [Action], _ a: TestEnd, _ b: TestEnd, before: (Action) -> Void,
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
class TestEnd {
    var isHolding = false
    fileprivate(set) var isGone = false
    fileprivate(set) var isCorrupt = false
    fileprivate var seen = EndView()
    private var (toSend, sent, finishes) = (0, 0, false)

    /// Reads and writes what can be, and says what there is.
    var view: EndView {
        send()
        look()
        return seen
    }

    func write(_ count: Int) {
        toSend += count
        send()
    }

    func finish() {
        finishes = true
        send()
    }

    private func send() {
        while sent < toSend {
            let count = put(patternBytes(sent, min(toSend - sent, 65_536), salt: 1))
            guard count > 0 else { break }
            sent += count
        }
        if finishes, sent == toSend {
            finishes = false
            endOutput()
        }
    }

    fileprivate func take(_ bytes: some Sequence<UInt8>) {
        for byte in bytes {
            if byte != pattern(seen.received, salt: 1) { isCorrupt = true }
            seen.received += 1
        }
    }

    // What the two kinds do each in their way.
    fileprivate func look() {}
    /// Returns how many bytes were taken; none when there is no room, or nobody to take them.
    fileprivate func put(_ bytes: [UInt8]) -> Int { 0 }
    fileprivate func endOutput() {}
    func close() {}
    func abort() {}
}

/// A socket of the kernel.
private final class KernelEnd: TestEnd {
    private let socket: CInt
    private var hasFailed = false
    private var area = [UInt8](repeating: 0, count: 65_536)

    init(_ socket: CInt) { self.socket = socket }

    deinit { if !isGone { Glibc.close(socket) } }

    override func look() {
        while !isHolding {
            let count = recv(socket, &area, area.count, CInt(MSG_DONTWAIT))
            if count < 0, errno != EAGAIN { hasFailed = true }
            // Behind an error it says that there is an end, too.
            if count == 0, !hasFailed { seen.hasEnded = true }
            guard count > 0 else { break }
            take(area[..<count])
        }
        var unread: CInt = 0
        _ = ioctl(socket, UInt(FIONREAD), &unread)
        seen.unread = Int(unread)
        var info = tcp_info()
        var length = socklen_t(MemoryLayout<tcp_info>.size)
        getsockopt(socket, CInt(IPPROTO_TCP), TCP_INFO, &info, &length)
        // TCP_CLOSE: a connection in TIME_WAIT is no longer this socket's.
        seen.isOver = info.tcpi_state == 7
    }

    override func put(_ bytes: [UInt8]) -> Int {
        send(socket, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
    }

    override func endOutput() { shutdown(socket, CInt(SHUT_WR)) }

    override func close() {
        isGone = true
        Glibc.close(socket)
    }

    override func abort() {
        var lingering = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
        close()
    }
}

/// A connection of our stack, closed as the tunnel closes its.
private final class OurEnd: TestEnd {
    private let peer: KernelPeer
    private let id: ConnectionID

    init(_ peer: KernelPeer, _ id: ConnectionID) { (self.peer, self.id) = (peer, id) }

    override func look() {
        while !isHolding, let bytes = peer.stack.read(id, now: peer.now), bytes.readableBytes > 0 {
            take(bytes.readableBytesView)
        }
        seen.unread = peer.stack.readableBytes(id)
        for event in peer.events[id] ?? [] {
            switch event {
            case .endOfInput: seen.hasEnded = true
            case .closed, .failed: seen.isOver = true
            default: break
            }
        }
    }

    override func put(_ bytes: [UInt8]) -> Int {
        var buffer = ByteBuffer(bytes: bytes)
        return peer.stack.write(id, &buffer, now: peer.now)
    }

    override func endOutput() { peer.stack.finish(id, now: peer.now) }

    override func close() {
        isGone = true
        if peer.stack.readableBytes(id) > 0 {
            peer.stack.abort(id, now: peer.now)
        } else {
            peer.stack.finish(id, now: peer.now)
            peer.closed.insert(id)
        }
    }

    override func abort() {
        isGone = true
        peer.stack.abort(id, now: peer.now)
    }
}
