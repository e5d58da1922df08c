import CPlatform
import Glibc

/// Starts a detached thread with a small stack.
/// - Parameter name: shown by ps and top; at most 15 bytes are kept.
/// - Returns: false when the kernel refuses a thread; the body never runs then.
public func startThread(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
    final class Start {
        let name: String
        let body: @Sendable () -> Void
        init(_ name: String, _ body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
    }
    let start = Unmanaged.passRetained(Start(name, body))
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, 512 << 10)
    pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
    defer { pthread_attr_destroy(&attributes) }
    var thread = pthread_t()
    let rc = pthread_create(
        &thread, &attributes,
        { argument in
            guard let argument else { return nil }
            let start = Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
            wa_name_thread(start.name)
            start.body()
            return nil
        }, start.toOpaque())
    if rc != 0 { start.release() }
    return rc == 0
}

/// Makes the calling thread nicer; the other threads of the process stay as they are.
/// - Parameter increment: added to the niceness; the sum ends at 19.
func addNiceness(_ increment: CInt) {
    // 0 is the calling thread, and a niceness of -1 is not an error.
    errno = 0
    let now = getpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0)
    guard errno == 0 else { return }
    setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, min(19, now + increment))
}
