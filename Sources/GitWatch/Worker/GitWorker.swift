import AgentCore
import CPlatform
import Glibc
import Synchronization

/// The worker process: reads requests from stdin, answers on stdout, and ends with the daemon. Requests are answered
/// by threads that are more while some of them hang, so that a slow repository does not hold up the others.
package enum GitWorker {
    /// The hidden command of the executable.
    package static let command = "git-worker"

    /// Returns when the daemon has closed its end.
    package static func run() {
        wa_ignore_sigpipe()
        wa_limit_malloc_arenas(2)
        wa_limit_memory(GitWatchLimits.workerAddressSpace, GitWatchLimits.workerDataBytes)
        let out = WorkerOutput()
        let scanner = Scanner(out)
        var frames = FrameSplitter()
        var area = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            var polls = [
                pollfd(fd: 0, events: Int16(POLLIN), revents: 0),
                pollfd(fd: out.wake, events: Int16(POLLIN), revents: 0),
            ]
            guard poll(&polls, 2, -1) > 0 else { continue }
            if polls[1].revents != 0, !out.flush() { return }
            guard polls[0].revents != 0 else { continue }
            let (count, descriptor) = area.withUnsafeMutableBytes { DescriptorPassing.receive(0, $0) }
            guard count > 0 else { return }
            if let descriptor { scanner.useInotify(descriptor) }
            let whole = area.withUnsafeBytes { frames.add(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            guard let whole else { return }
            for frame in whole {
                guard let request = WorkerFrames.request(frame) else { return }
                scanner.add(request)
            }
        }
    }
}

/// Answers on their way out; the main thread writes them.
final class WorkerOutput: Sendable {
    let wake = wa_eventfd()
    private let waiting = Mutex<[[UInt8]]>([])

    func send(_ id: UInt32, _ body: WorkerReply.Body) {
        let frame = WorkerFrames.encode(WorkerReply(id: id, body: body))
        waiting.withLock { $0.append(frame) }
        wa_eventfd_signal(wake)
    }

    /// False when the daemon is gone.
    func flush() -> Bool {
        wa_eventfd_drain(wake)
        let frames = waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
        for frame in frames {
            var rest = frame[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { write(1, $0.baseAddress, $0.count) }
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { return false }
                rest = rest.dropFirst(count)
            }
        }
        return true
    }
}
