import FuzzInput
@testable import IPAddresses
@testable import NetStack
import NIOCore

func address(_ index: Int) -> IPAddress { IPAddress(high: 0xfd7a_115c_a1e0_4111, low: UInt64(index + 1)) }

/// What each end sends, from a place that goes with its ports, and again from the beginning.
private let pattern: [UInt8] = (0..<65_521).map { UInt8(truncatingIfNeeded: ($0 &* 0x9e37) >> 3 ^ $0 >> 11) }

/// Calls with what is sent from this place of a stream, in pieces.
private func withPattern(_ offset: Int, _ count: Int, salt: Int, _ body: (ArraySlice<UInt8>) -> Void) {
    var (place, left) = ((offset + salt) % pattern.count, count)
    while left > 0 {
        let piece = pattern[place..<min(pattern.count, place + left)]
        body(piece)
        left -= piece.count
        place = 0
    }
}

/// One end of a connection.
struct App {
    let local: Endpoint
    let remote: Endpoint
    var sent = 0
    var received = 0
    var isFinished = false
    var isEstablished = false
    var sawEnd = false
    var isAborted = false
    var isClosed = false
    var isFailed = false
    var isOver: Bool { isClosed || isFailed || isAborted }
}

/// A stack and its applications, which write a pattern and look whether that comes.
struct Host {
    var stack: NetStack
    /// With those that are over.
    var apps: [ConnectionID: App] = [:]
    /// In the order in which they began.
    var ids: [ConnectionID] = []
    /// Bytes that applications may still write.
    var writable = 400_000
    var refuses = false
    /// Packets were changed: what comes says nothing.
    var isTainted = false

    init(_ index: Int, _ limits: NetStackLimits) {
        var random = SeededRandom(UInt64(index))
        stack = NetStack(addresses: [address(index)], limits: limits, random: &random)
    }

    /// One of those that are not over.
    func running(_ number: Int) -> ConnectionID? {
        let ids = ids.filter { apps[$0]?.isOver == false }
        return ids.isEmpty ? nil : ids[number % ids.count]
    }

    mutating func connect(to remote: Endpoint, now: Duration) {
        guard ids.count < 40, let id = stack.connect(to: remote, now: now), let ends = stack.endpoints(id) else {
            return
        }
        begin(id, ends.local, ends.remote)
    }

    private mutating func begin(_ id: ConnectionID, _ local: Endpoint, _ remote: Endpoint) {
        check(apps.updateValue(App(local: local, remote: remote), forKey: id) == nil, "an id was used twice")
        ids.append(id)
    }

    mutating func takeEvents(now: Duration) {
        while let event = stack.nextEvent() {
            switch event {
            case .connectionRequested(let id, let local, let remote):
                if refuses || ids.count >= 80 {
                    stack.refuse(id)
                } else {
                    begin(id, local, remote)
                    stack.accept(id, now: now)
                }
            case .established(let id):
                check(known(id).isEstablished == false, "established twice")
                apps[id]?.isEstablished = true
            case .readable(let id):
                check(known(id).sawEnd == false && stack.readableBytes(id) > 0, "nothing to read")
            case .writable(let id): _ = known(id)
            case .endOfInput(let id):
                check(known(id).sawEnd == false && stack.readableBytes(id) == 0, "the end comes too soon")
                apps[id]?.sawEnd = true
            case .closed(let id):
                let app = known(id)
                check(app.isFinished && app.sawEnd, "closed before its ends")
                apps[id]?.isClosed = true
            case .failed(let id, _):
                _ = known(id)
                apps[id]?.isFailed = true
            case .datagram, .flowEnded: break
            }
        }
    }

    private func known(_ id: ConnectionID) -> App {
        guard let app = apps[id], !app.isOver else { fatalError("an event for no connection") }
        return app
    }

    mutating func write(_ id: ConnectionID, _ count: Int, now: Duration) {
        guard let app = apps[id], !app.isFinished else { return }
        let count = min(count, writable)
        var bytes = ByteBuffer()
        withPattern(app.sent, count, salt: Int(app.local.port)) { bytes.writeBytes($0) }
        let taken = stack.write(id, &bytes, now: now)
        check(taken <= count && bytes.readableBytes == count - taken, "took what was not there")
        apps[id]?.sent += taken
        writable -= taken
    }

    /// - Returns: whether something came.
    @discardableResult
    mutating func read(_ id: ConnectionID, limit: Int, now: Duration) -> Bool {
        guard let app = apps[id], let bytes = stack.read(id, limit: limit, now: now) else { return false }
        check(bytes.readableBytes <= limit && !app.sawEnd, "too much was read")
        apps[id]?.received += bytes.readableBytes
        guard !isTainted else { return true }
        var rest = bytes
        withPattern(app.received, bytes.readableBytes, salt: Int(app.remote.port)) { piece in
            let isRight = rest.readSlice(length: piece.count).map { $0 == ByteBuffer(bytes: piece) } ?? false
            check(isRight, "other bytes from \(app.received) on")
        }
        return true
    }

    mutating func finish(_ id: ConnectionID, now: Duration) {
        apps[id]?.isFinished = true
        stack.finish(id, now: now)
    }

    mutating func abort(_ id: ConnectionID, now: Duration) {
        apps[id]?.isAborted = true
        stack.abort(id, now: now)
    }
}
