import AgentCore
import CPlatform
import DequeModule
import Glibc
import NIOCore
import Synchronization

/// The writing end of a process's stdin pipe or terminal. Those who write wait until the process has read: it holds up
/// its writers, never the daemon.
final class ProcessInput: ReactorSource {
    private enum Item {
        /// The promise says whether all was taken.
        case bytes(ByteBuffer, Promise<Bool>)
        /// No more input: closes a pipe, presses a terminal's end-of-file key.
        case end
    }

    private struct State {
        var descriptor: CInt
        var waiting = Deque<Item>()
        var isWatched = false
        /// The last byte written; nil at the beginning.
        var last: UInt8?
    }

    private let isTerminal: Bool
    private let reactor: Reactor
    private let token: UInt64
    private let state: Mutex<State>

    /// Takes over a descriptor that does not block.
    init(_ descriptor: CInt, isTerminal: Bool, _ reactor: Reactor) {
        self.isTerminal = isTerminal
        self.reactor = reactor
        token = reactor.makeToken()
        state = Mutex(State(descriptor: descriptor))
    }

    deinit {
        let descriptor = state.withLock { $0.descriptor }
        if descriptor >= 0 { close(descriptor) }
    }

    /// Whether it is open: the process has not closed it, and no client has ended it.
    var isOpen: Bool { state.withLock { $0.descriptor >= 0 } }

    /// Writes in the order of the calls; returns when the process, or the kernel's buffer, has taken all. A cancelled
    /// call may have written a part.
    /// - Returns: false when nothing reads it any more, or the calling task is cancelled.
    func write(_ bytes: ByteBuffer) async -> Bool {
        let done = Promise<Bool>()
        enqueue(.bytes(bytes, done))
        let isTaken = await done.value(ifCancelled: false)
        if !isTaken { withdraw(done) }
        return isTaken
    }

    /// Ends the input after what was written before: closes the pipe, or types the terminal's end-of-file character.
    func end() { enqueue(.end) }

    /// Nothing more can be written.
    func shut() { state.withLock { shut(&$0) } }

    private func enqueue(_ item: Item) {
        state.withLock { state in
            state.waiting.append(item)
            drain(&state)
        }
    }

    private func withdraw(_ done: Promise<Bool>) {
        state.withLock { state in
            state.waiting.removeAll { item in
                if case .bytes(_, let other) = item { other === done } else { false }
            }
            // What waited behind it may be its turn, or nothing waits any more.
            drain(&state)
        }
    }

    func ready(events: UInt32, scratch: UnsafeMutableRawBufferPointer) { state.withLock { drain(&$0) } }

    // Under the lock: the descriptor must not be closed meanwhile, and it never blocks.
    private func drain(_ state: inout State) {
        while state.descriptor >= 0, let first = state.waiting.first {
            switch first {
            case .end:
                guard isTerminal else { return shut(&state) }
                // A promise without waiters; the key is written, or waits, as other bytes do.
                state.waiting[0] = .bytes(
                    ByteBuffer(bytes: EndOfFileKey(state.descriptor).presses(after: state.last)), Promise())
            case .bytes(var bytes, let done):
                let count = bytes.withUnsafeReadableBytes { wa_write(state.descriptor, $0.baseAddress, $0.count) }
                // A terminal may also say that it took nothing.
                if count == -Int(EAGAIN) || count == 0 && bytes.readableBytes > 0 { return watch(&state, true) }
                guard count >= 0 else { return shut(&state) }
                if count > 0 { state.last = bytes.getInteger(at: bytes.readerIndex + count - 1) }
                bytes.moveReaderIndex(forwardBy: count)
                if bytes.readableBytes > 0 {
                    state.waiting[0] = .bytes(bytes, done)
                } else {
                    state.waiting.removeFirst()
                    done.fulfill(true)
                }
            }
        }
        if state.descriptor >= 0 { watch(&state, false) } else { shut(&state) }
    }

    private func watch(_ state: inout State, _ wanted: Bool) {
        guard wanted != state.isWatched else { return }
        state.isWatched = wanted
        guard wanted else { return reactor.remove(state.descriptor, token: token) }
        // Without the reactor, which has no room for more, the writers would wait for ever.
        if (try? reactor.add(state.descriptor, events: UInt32(WA_EPOLLOUT), token: token, self)) == nil { shut(&state) }
    }

    private func shut(_ state: inout State) {
        if state.descriptor >= 0 {
            if state.isWatched { reactor.remove(state.descriptor, token: token) }
            close(state.descriptor)
            state.descriptor = -1
            state.isWatched = false
        }
        while let item = state.waiting.popFirst() {
            if case .bytes(_, let done) = item { done.fulfill(false) }
        }
    }

    /// Has a terminal tell its programs of a new size.
    func resize(_ size: TerminalSize) {
        state.withLock { state in
            if state.descriptor >= 0 { _ = wa_resize_terminal(state.descriptor, size.rows, size.cols) }
        }
    }
}

/// What ends the input of a program on a terminal, as Ctrl-D does.
struct EndOfFileKey: Equatable {
    /// The key's byte.
    var key: UInt8
    /// The bytes after which the terminal's line is empty; nil where the program gets every byte as it is typed, and what
    /// it makes of the key is its own affair.
    var lineEnds: Set<UInt8>?

    init(key: UInt8 = 4, lineEnds: Set<UInt8>? = nil) { (self.key, self.lineEnds) = (key, lineEnds) }

    /// As a terminal is set.
    init(_ terminal: CInt) {
        var settings = termios()
        guard tcgetattr(terminal, &settings) == 0 else {
            self.init()
            return
        }
        let keys = withUnsafeBytes(of: settings.c_cc) { Array($0) }
        // 0 is a key that is off.
        func bytes(_ indices: CInt...) -> [UInt8] {
            indices.compactMap { keys.indices.contains(Int($0)) ? keys[Int($0)] : nil }.filter { $0 != 0 }
        }
        let key = bytes(VEOF).first ?? 4
        guard settings.c_lflag & tcflag_t(ICANON) != 0 else {
            self.init(key: key)
            return
        }
        var ends: [UInt8] = [10, key] + bytes(VEOL, VEOL2, VKILL)
        if settings.c_iflag & tcflag_t(ICRNL) != 0 { ends.append(13) }
        if settings.c_lflag & tcflag_t(ISIG) != 0 { ends += bytes(VINTR, VQUIT, VSUSP) }
        self.init(key: key, lineEnds: Set(ends))
    }

    /// The key once, or twice after half a line: there the first only hands the program what was typed.
    /// - Parameter last: the last byte that was typed; nil when none was.
    func presses(after last: UInt8?) -> [UInt8] {
        guard let lineEnds, let last, !lineEnds.contains(last) else { return [key] }
        return [key, key]
    }
}
