import AgentCore
import AgentHTTP
import FoundationEssentials
import NIOCore

/// One client attached to a process over a WebSocket: it gets the output from an offset on and, where the process takes
/// input, types (spec: process API, attach). A client that stalls holds up nothing but itself.
struct AttachedClient {
    /// Why the client is disconnected.
    private struct Mistake: Error { var reason: String }

    private let process: ManagedProcess
    private let webSocket: WebSocket
    private let follower: OutputFollower

    init(_ process: ManagedProcess, _ webSocket: WebSocket, pool: BlockingPool) {
        self.process = process
        self.webSocket = webSocket
        follower = OutputFollower(process, pool: pool)
    }

    /// Returns when the process has ended and the client was told so, or when the client has gone.
    /// - Parameter offset: where the output begins; nil replays the last of it.
    func run(from offset: Int?) async {
        await withTaskGroup { group in
            group.addTask { await sendOutput(from: offset ?? process.replayStart) }
            group.addTask { await takeInput() }
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

    private func takeInput() async {
        var isTold = false
        do {
            while let message = await webSocket.next() {
                switch message {
                case .binary(let bytes):
                    guard let input = process.input else {
                        throw Mistake(reason: "the process takes no input; start it with stdin or pty")
                    }
                    if await input.write(bytes) || isTold || Task.isCancelled { continue }
                    isTold = true
                    try? await send(Message(stdin_closed: true))
                case .text(let text): try control(text)
                }
            }
        } catch let mistake as Mistake {
            await webSocket.close(.policyViolation, reason: mistake.reason)
        } catch {
            // There are no others.
        }
    }

    private func control(_ text: String) throws {
        struct Control: Decodable {
            struct Size: Decodable {
                var rows: WholeNumber?
                var cols: WholeNumber?
            }
            var resize: Size?
            var eof: Bool?
        }
        guard let control = try? JSONDecoder().decode(Control.self, from: Data(text.utf8)),
            control.resize != nil || control.eof == true
        else { throw Mistake(reason: #"a text message is {"resize":{"rows":N,"cols":N}} or {"eof":true}"#) }
        if let size = control.resize {
            guard let rows = try? TerminalSize.lines("rows", size.rows),
                let cols = try? TerminalSize.lines("cols", size.cols)
            else { throw Mistake(reason: "rows and cols must be from 1 to 10000") }
            guard process.resize(TerminalSize(rows: rows, cols: cols)) else {
                throw Mistake(reason: "the process has no terminal; start it with pty")
            }
        }
        if control.eof == true { process.input?.end() }
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
        var attached: Attached?
        var gone: Gone?
        var stdin_closed: Bool?
        var exit: OutputAnswer?
    }

    private func send(_ message: Message) async throws { try await webSocket.send(WireJSON.text(message)) }
}
