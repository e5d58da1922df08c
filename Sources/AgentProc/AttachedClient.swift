import AgentCore
import AgentHTTP
import NIOCore

/// One client attached to a process over a WebSocket: it gets the output from an offset on and, where the process takes
/// input, types (docs/contracts/process-api.md#attach). A client that stalls holds up nothing but itself.
struct AttachedClient {
    private let process: ManagedProcess
    private let webSocket: WebSocket
    private let clock: AgentClock
    private let follower: OutputFollower

    init(_ process: ManagedProcess, _ webSocket: WebSocket, pool: BlockingPool, clock: AgentClock) {
        self.process = process
        self.webSocket = webSocket
        self.clock = clock
        follower = OutputFollower(process, pool: pool)
    }

    /// Returns when the process has ended and the client was told so, or when the client has gone.
    /// - Parameter offset: where the output begins; nil replays the last of it.
    func run(from offset: Int?) async {
        // What a full-screen program drew before cannot be seen from the last of its output.
        let redraws = offset == nil && process.totalBytes > 0
        await withTaskGroup { group in
            group.addTask { await sendOutput(from: offset ?? process.replayStart) }
            group.addTask { await takeInput(redraws: redraws) }
            // While what it has typed waits for the process, nothing else would notice that it has gone.
            group.addTask { await webSocket.waitUntilClosed() }
            await group.next()
            follower.stop()
            group.cancelAll()
        }
    }

    private func sendOutput(from start: Int) async {
        var offset = start
        do {
            try await send(
                Message(
                    attached: .init(
                        offset: offset, stdin: process.input?.isOpen ?? false, pty: process.snapshot().terminal)))
            while true {
                switch await follower.next(from: offset) {
                case .bytes(let bytes):
                    offset += bytes.readableBytes
                    try await webSocket.send(bytes)
                case .gone(let count):
                    try await send(Message(gone: .init(offset: offset, bytes: count)))
                    offset += count
                case .quiet: continue
                case .ended(let snapshot):
                    try await send(Message(exit: OutputAnswer(process, snapshot, rendered: nil)))
                    return await webSocket.close(.normal)
                case .stopped: return await webSocket.close(.goingAway)
                }
            }
        } catch {
            // The client has gone.
        }
    }

    /// - Parameter redraws: whether the first size that the client names has programs draw their screens anew.
    private func takeInput(redraws: Bool) async {
        var isTold = false
        var redraws = redraws
        while let message = await webSocket.next() {
            switch message {
            case .binary(let bytes):
                guard let input = process.input else {
                    return await webSocket.close(
                        .policyViolation, reason: "the process takes no input; start it with stdin or pty")
                }
                if await input.write(bytes) || isTold || Task.isCancelled { continue }
                isTold = true
                try? await send(Message(stdin_closed: true))
            case .text(let text):
                let control: Control?
                do {
                    control = try await ClientMessage.decode(Control.self, from: text)
                } catch {
                    return await webSocket.close(.unsupportedData, reason: "a text message is JSON")
                }
                if let mistake = await perform(control, &redraws) {
                    try? await send(Message(error: .init(message: mistake)))
                }
            }
        }
    }

    /// A text message.
    private struct Control: Decodable {
        struct Size: Decodable {
            var rows: WholeNumber?
            var cols: WholeNumber?
        }
        var resize: Size?
        var eof: Bool?
    }

    /// - Returns: why nothing was done, if so. The client stays connected: a newer one may say more than we know.
    private func perform(_ control: Control?, _ redraws: inout Bool) async -> String? {
        guard let control, control.resize != nil || control.eof == true else {
            return #"unknown message; known are {"resize":{"rows":N,"cols":N}} and {"eof":true}"#
        }
        if let size = control.resize {
            guard let rows = try? TerminalSize.lines("rows", size.rows),
                let cols = try? TerminalSize.lines("cols", size.cols)
            else { return "rows and cols must be from 1 to 10000" }
            guard await process.resize(TerminalSize(rows: rows, cols: cols), redrawing: redraws ? clock : nil) else {
                return "the process has no terminal; start it with pty"
            }
            redraws = false
        }
        if control.eof == true { process.input?.end() }
        return nil
    }

    /// What the client is told besides the output.
    private struct Message: Encodable {
        struct Attached: Encodable {
            var offset: Int
            var stdin: Bool
            var pty: TerminalSize?
        }
        struct Gone: Encodable {
            var offset: Int
            var bytes: Int
        }
        struct Failure: Encodable { var message: String }
        var attached: Attached?
        var gone: Gone?
        var stdin_closed: Bool?
        var error: Failure?
        var exit: OutputAnswer?
    }

    private func send(_ message: Message) async throws { try await webSocket.send(WireJSON.text(message)) }
}
