import AgentCore
import CDesktop
import Glibc
import Synchronization

/// A connection to an X server for one call. libxcb waits for the server without a limit, so each step runs on
/// a thread of its own, and the socket is shut down to end one: at the end of its time, or when its task is
/// cancelled. The connection cannot be used any more then.
final class XConnection: Sendable {
    private let display: String
    private let socket: CInt
    // libxcb's side of it. Safe because only the thread of a step uses it, one step runs at a time, and each is waited
    // for, also when it is cancelled; the rest of this type touches the socket alone.
    private nonisolated(unsafe) let x: OpaquePointer
    /// The time that the server has left for answers.
    let patience = Mutex(DesktopLimits.windowAnswers)

    /// Returns at once; the server has not answered anything yet.
    /// - Throws: ``DesktopError`` `.failed`.
    init(to display: String) throws(DesktopError) {
        try DesktopLibrary.xcb.load()
        self.display = display
        socket = try XSocket.connect(to: display)
        guard let x = wd_x_new(socket) else {
            close(socket)
            throw DesktopError(.failed, "No descriptor or memory is left for a connection to the X server \(display).")
        }
        self.x = x
    }

    deinit {
        wd_x_free(x)
        close(socket)
    }

    /// Runs a step. The caller waits for it before it runs the next.
    /// - Throws: what the body throws; `CancellationError`; ``DesktopError`` `.failed` without a thread.
    func run<T: Sendable>(_ body: @escaping @Sendable (XConnection) throws -> T) async throws -> T {
        do {
            return try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    let started = startThread("desktop-windows") {
                        // Writing to a server that is gone fails with an error instead.
                        wd_block_sigpipe()
                        continuation.resume(with: Result { try body(self) })
                    }
                    guard !started else { return }
                    continuation.resume(
                        throwing: DesktopError(.failed, "The system refuses a thread for the X server \(display)."))
                }
            } onCancel: {
                shutdown(socket, CInt(SHUT_RDWR))
            }
        } catch {
            try Task.checkCancellation()
            throw error
        }
    }

    // MARK: On the thread of a step

    /// Before all that follows.
    func greet() throws(DesktopError) {
        guard wd_x_connect(x) else {
            throw DesktopError(
                .failed, "The X server \(display) refuses the connection.",
                detail: "It may want a cookie (xauth), which is not supported, or may just have ended.")
        }
    }

    /// - Parameter follow: ``waitForChange()`` returns for changes of their titles, too.
    /// - Returns: nil when there is no window manager.
    func windows(follow: Bool) throws(DesktopError) -> [DesktopWindow]? {
        var list: UnsafePointer<wd_x_window>?
        var count = 0
        switch wd_x_windows(x, follow, &list, &count) {
        case WD_X_DONE: return UnsafeBufferPointer(start: list, count: count).map(DesktopWindow.init)
        case WD_X_NO_MANAGER: return nil
        default: throw lost()
        }
    }

    func send(_ message: wd_x_message, to id: UInt32) throws(DesktopError) {
        guard wd_x_send(x, message, id) else { throw lost() }
    }

    /// Returns when what ``windows(follow:)`` gives may have changed since its last call.
    func waitForChange() throws(DesktopError) {
        guard wd_x_wait(x) else { throw lost() }
    }

    func pointer() throws(DesktopError) -> DesktopPoint {
        var (left, top): (CInt, CInt) = (0, 0)
        guard wd_x_pointer(x, &left, &top) else { throw lost() }
        return DesktopPoint(x: Int(left), y: Int(top))
    }

    func keyboard() throws(DesktopError) -> KeyboardCodes {
        var (count, spare) = (0, 0)
        guard let keysyms = wd_x_keyboard(x, &count, &spare) else { throw lost() }
        defer { free(keysyms) }
        return KeyboardCodes(keysyms: Set(UnsafeBufferPointer(start: keysyms, count: count)), spare: spare)
    }

    private func lost() -> DesktopError {
        DesktopError(.failed, "The X server \(display) closed the connection.")
    }
}

extension DesktopWindow {
    fileprivate init(_ window: wd_x_window) {
        let pid = Int32(exactly: window.pid)
        self.init(
            id: window.id, title: WindowText.decode(window.title), className: WindowText.decode(window.class_name),
            pid: pid == 0 ? nil : pid, x: Int(window.x), y: Int(window.y), width: Int(window.width),
            height: Int(window.height), isFocused: window.is_active)
    }
}
