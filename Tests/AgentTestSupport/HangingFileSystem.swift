import Glibc
import Synchronization

/// A FUSE file system whose server takes requests and never answers them: what looks into it waits in the kernel
/// and cannot be killed, as with a dead sshfs or NFS server.
public final class HangingFileSystem: Sendable {
    private let path: String
    private let mounted = Mutex(true)
    private let server: Server

    /// Whether this machine lets us mount one.
    public static var isAllowed: Bool {
        guard geteuid() == 0, let directory = try? TemporaryDirectory(),
            let probe = try? HangingFileSystem(over: directory.path)
        else { return false }
        probe.unmount()
        return true
    }

    /// - Parameter path: a directory, which it hides.
    public init(over path: String) throws {
        self.path = path
        let device = open("/dev/fuse", O_RDWR | O_CLOEXEC)
        guard device >= 0 else { throw DeadlineExceeded(what: "open /dev/fuse: errno \(errno)") }
        let options = "fd=\(device),rootmode=40000,user_id=0,group_id=0,allow_other"
        guard mount("hanging", path, "fuse", UInt(MS_NOSUID | MS_NODEV), options) == 0 else {
            close(device)
            throw DeadlineExceeded(what: "mount: errno \(errno)")
        }
        server = Server(device)
        var thread = pthread_t()
        pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<Server>.fromOpaque(argument).takeRetainedValue().serve()
                return nil
            }, Unmanaged.passRetained(server).toOpaque())
        pthread_detach(thread)
    }

    /// Whether something waits for an answer.
    public var holds: Bool { server.requests.load(ordering: .relaxed) > 0 }

    private final class Server: Sendable {
        let device: CInt
        let requests = Atomic(0)

        init(_ device: CInt) { self.device = device }

        /// Answers the kernel's greeting (26, FUSE_INIT) alone; returns when the file system is gone.
        func serve() {
            var area = [UInt8](repeating: 0, count: 64 << 10)
            while case let count = read(device, &area, area.count), count > 0 || errno == EINTR {
                guard count >= 40 else { continue }
                guard area[4] == 26 else {
                    requests.add(1, ordering: .relaxed)
                    continue
                }
                // fuse_out_header with the request's number, fuse_init_out with version 7.31.
                var answer = [UInt8](repeating: 0, count: 16 + 64)
                answer[0] = 80
                answer.replaceSubrange(8..<16, with: area[8..<16])
                (answer[16], answer[20]) = (7, 31)
                answer[16 + 21] = 0x10
                _ = write(device, answer, answer.count)
            }
            close(device)
        }
    }

    /// Takes it away; all that waits for it gets an error.
    public func unmount() {
        let first = mounted.withLock { mounted in
            defer { mounted = false }
            return mounted
        }
        guard first else { return }
        umount2(path, CInt(MNT_FORCE))
        umount2(path, CInt(MNT_DETACH))
    }

    deinit { unmount() }
}
