import CDesktop
import CPlatform
import Glibc
import Synchronization

/// The RFB connection: sends messages, reads answers and waits for them. Used on the connection's thread only.
final class RFBLink {
    typealias Instant = ContinuousClock.Instant

    /// What ends a wait early.
    enum StopCondition {
        /// The job is cancelled, or the connection is being closed.
        case interruption
        /// The connection is being closed.
        case closing
        case nothing
    }

    /// A request whose answer shows that the server has processed everything sent before it.
    private enum Mark {
        case fence(UInt32)
        /// Any update after this many: for servers without fences.
        case update(UInt64)
    }

    let rfb: OpaquePointer
    private let descriptor: CInt
    let inbox: RFBInbox
    private var lastFence: UInt32 = 0
    private var probes: [(probe: RFBInbox.Probe, mark: Mark)] = []
    /// The answer to an update request may still be outstanding.
    var awaitsUpdate = false
    private var resizes: UInt64
    private var clipboardRequests: UInt64 = 0
    /// The text that the server gets when it requests our clipboard. A server that caches it requests it once.
    var clipboard = ""

    /// Does the RFB handshake, and takes ownership of the descriptor, also when it throws.
    /// - Parameter budget: how long the server may take for each answer, now and later; whole seconds.
    init(_ descriptor: CInt, inbox: RFBInbox, within budget: Duration) throws(DesktopError) {
        var why = [CChar](repeating: 0, count: 200)
        let seconds = UInt32(clamping: max(1, budget.components.seconds))
        guard let rfb = wd_rfb_open(descriptor, seconds, &why, why.count) else {
            throw DesktopError(.connectionLost, "The desktop's VNC server cannot be used: \(why.text).")
        }
        self.rfb = rfb
        self.descriptor = descriptor
        self.inbox = inbox
        resizes = wd_rfb_get_state(rfb).pointee.resizes
        inbox.setSize(size)
    }

    deinit { wd_rfb_close(rfb) }

    /// What the server has reported so far.
    var state: wd_rfb_state { wd_rfb_get_state(rfb).pointee }
    var size: DesktopSize { DesktopSize(width: Int(state.width), height: Int(state.height)) }

    /// Whether texts of any kind can be offered through the server's clipboard.
    var hasClipboard: Bool {
        let needed = UInt32(WD_CLIPBOARD_TEXT | WD_CLIPBOARD_NOTIFY | WD_CLIPBOARD_PROVIDE)
        return state.clipboard & needed == needed
    }

    // MARK: Waiting

    /// Reads messages of the server and answers probes until the condition holds.
    /// - Parameters:
    ///   - deadline: nil waits for ever, at no cost.
    ///   - stop: what else ends the wait.
    /// - Throws: what `late` makes at the deadline; why the current job was interrupted;
    ///   ``DesktopError`` `.connectionLost`.
    func wait(
        until deadline: Instant?, stoppingOn stop: StopCondition = .interruption,
        late: () -> DesktopError = RFBLink.silent,
        _ condition: () -> Bool
    ) throws {
        while true {
            while wd_rfb_buffered(rfb) { try read() }
            // Before the condition, which may be about time itself.
            let now = ContinuousClock.now
            if condition() { return }
            switch stop {
            case .interruption: try inbox.checkInterruption()
            case .closing: if inbox.isClosing { throw RFBInbox.closed }
            case .nothing: break
            }
            try startProbes()
            if let deadline, now >= deadline { throw late() }
            let next = ([deadline] + probes.map { $0.probe.deadline }).compactMap { $0 }.min()
            try poll(until: next, from: now)
        }
    }

    func pause(_ duration: Duration) throws { try pause(until: .now + duration) }

    func pause(until end: Instant) throws {
        try wait(until: end) { ContinuousClock.now >= end }
    }

    /// Waits for other work, which ends by itself, while the connection goes on being served.
    func run<T: Sendable>(
        _ executor: (any TaskExecutor)?, _ body: @escaping @Sendable () async throws -> T
    ) throws -> T {
        let outcome = Outcome<T>()
        let inbox = inbox
        let task = Task(executorPreference: executor) {
            let result: Result<T, any Error>
            do { result = .success(try await body()) } catch { result = .failure(error) }
            outcome.result.withLock { $0 = result }
            inbox.wake()
        }
        defer { task.cancel() }
        while true {
            try wait(until: nil) { outcome.result.withLock { $0 != nil } }
            if let result = outcome.result.withLock({ $0 }) { return try result.get() }
        }
    }

    private final class Outcome<T: Sendable>: Sendable {
        let result = Mutex<Result<T, any Error>?>(nil)
    }

    static func silent() -> DesktopError {
        DesktopError(.connectionLost, "The desktop does not answer.")
    }

    private func poll(until deadline: Instant?, from now: Instant) throws {
        var nanoseconds: Int64 = -1
        if let deadline {
            let (seconds, fraction) = max(.zero, min(now.duration(to: deadline), .seconds(86_400))).components
            nanoseconds = seconds * 1_000_000_000 + fraction / 1_000_000_000
        }
        let ready = wd_wait(descriptor, inbox.wakeDescriptor, nanoseconds)
        if ready & 2 != 0 { wa_eventfd_drain(inbox.wakeDescriptor) }
        if ready & 1 != 0 { try read() }
        expireProbes()
    }

    private func read() throws {
        guard wd_rfb_read(rfb) else { throw lost() }
        let state = state
        if state.resizes != resizes {
            resizes = state.resizes
            inbox.setSize(size)
        }
        if state.clipboard_requests != clipboardRequests {
            clipboardRequests = state.clipboard_requests
            try send(RFBMessage.clipboardProvide(clipboard))
        }
        if !probes.isEmpty {
            for (probe, mark) in probes where isAnswered(mark) { inbox.answerProbe(probe.id, .success(())) }
            probes.removeAll { isAnswered($0.mark) }
        }
    }

    private func lost() -> DesktopError {
        DesktopError(
            .connectionLost, "The connection to the desktop is lost.", detail: String(cString: wd_rfb_why(rfb)))
    }

    // MARK: Probes

    private func startProbes() throws {
        for probe in inbox.takeProbes() { probes.append((probe, try mark())) }
    }

    private func expireProbes() {
        guard !probes.isEmpty else { return }
        let now = ContinuousClock.now
        for (probe, _) in probes where probe.deadline <= now {
            inbox.answerProbe(probe.id, .failure(RFBLink.silent()))
        }
        probes.removeAll { $0.probe.deadline <= now }
    }

    // MARK: Sending

    /// Sends few bytes at a time, each when the socket has room for them: libvncclient would block until it has.
    func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            try waitForRoom()
            let some = rest.prefix(4_096)
            let sent = some.withUnsafeBytes { bytes in
                bytes.baseAddress.map { wd_rfb_write(rfb, $0, bytes.count) } ?? true
            }
            guard sent else { throw lost() }
            rest = rest.dropFirst(some.count)
        }
    }

    private func waitForRoom() throws {
        let deadline = ContinuousClock.now + DesktopLimits.answerBudget
        while true {
            var item = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            // Not interruptible: releasing keys after a cancellation sends, too.
            if Glibc.poll(&item, 1, 100) > 0 { return }
            if ContinuousClock.now >= deadline || inbox.isClosing { throw RFBLink.silent() }
        }
    }

    // MARK: Requests

    private func mark() throws -> Mark {
        if state.has_fence {
            lastFence &+= 1
            try send(RFBMessage.fence(lastFence))
            return .fence(lastFence)
        }
        let mark = Mark.update(state.updates)
        try request(.pixel, changed: false)
        return mark
    }

    private func isAnswered(_ mark: Mark) -> Bool {
        switch mark {
        // The server answers in order; the number may wrap.
        case .fence(let number): state.fence_answers > 0 && Int32(bitPattern: state.fence_answer &- number) >= 0
        case .update(let count): state.updates > count
        }
    }

    /// Returns when the server has processed everything that was sent before.
    func fence(stoppingOn stop: StopCondition = .interruption, within budget: Duration = DesktopLimits.answerBudget)
        throws
    {
        let mark = try mark()
        try wait(until: .now + budget, stoppingOn: stop) { isAnswered(mark) }
    }

    /// Like a fence, and afterwards screen size and pointer position are current, as far as the server reports
    /// them: it does so with updates only.
    func sync() throws {
        // The first update may answer an earlier request that was interrupted; the next one answers a request made
        // after this call began.
        if awaitsUpdate { try update() }
        try update()
    }

    private func update() throws {
        let count = state.updates
        awaitsUpdate = true
        try request(.pixel, changed: false)
        try wait(until: .now + DesktopLimits.answerBudget) { state.updates != count }
        awaitsUpdate = false
    }

    /// Requests an area, or only the parts of it that changed.
    func request(_ area: DesktopRegion, changed: Bool) throws {
        try waitForRoom()
        guard
            wd_rfb_request(
                rfb, changed, CInt(clamping: area.x), CInt(clamping: area.y), CInt(clamping: area.width),
                CInt(clamping: area.height))
        else { throw lost() }
    }

    /// Moves the clipboard's text that came last out of the connection; nil when it is too long, or none came.
    func takeClipboard() -> String? {
        var text = wd_bytes()
        guard wd_rfb_take_clipboard(rfb, DesktopLimits.clipboardBytes, &text) else { return nil }
        defer { free(text.bytes) }
        return String(decoding: UnsafeBufferPointer(start: text.bytes, count: text.count), as: UTF8.self)
    }
}

extension DesktopRegion {
    /// The smallest part of the screen that can be requested.
    fileprivate static let pixel = DesktopRegion(x: 0, y: 0, width: 1, height: 1)

    init(_ size: DesktopSize) { self.init(x: 0, y: 0, width: size.width, height: size.height) }
}
