import AgentProc
import ArgumentParser
import CPlatform
import FoundationEssentials
import Glibc
import LocalAgent

/// A process whose output comes to standard output and whose input is standard input, over as many connections as it
/// takes. One thread serves signals, connection, input and output together.
final class ProcSession {
    enum Role {
        /// The process is this command's: signals go to it, and it ends when its output is read no more.
        case run
        /// The process goes on without this command: only Ctrl-C goes to it.
        case attach
    }

    private struct Frame: Decodable {
        struct Attached: Decodable {
            var offset: Int
            var stdin: Bool
            var pty: ProcessState.Size?
        }
        struct Gone: Decodable {
            var offset: Int
            var bytes: Int
        }
        var attached: Attached?
        var gone: Gone?
        var stdin_closed: Bool?
        var exit: ProcessState?
    }

    private let client: ProcClient
    private let id: String
    private let role: Role
    private let signals: CaughtSignals
    private let terminal = Terminal(STDIN_FILENO)
    private var reconnection: Reconnection
    /// Where the output goes on; nil until the agent has said where it begins.
    private var offset: Int?
    private var output = StandardOutput()
    private var missing = MissingOutput()
    private var input: ProcInput
    private var screen = ScreenModes()
    private var detachKeys = DetachKeys()
    private var isPty = false
    private var ended: ProcessState?
    private var forwarded = false

    /// - Parameters:
    ///   - instance: the start of the daemon that has the process, where that is known.
    ///   - offset: where the output shall begin; nil shows the last of it.
    ///   - takesInput: whether standard input is for the process.
    init(
        _ client: ProcClient, id: String, instance: String?, role: Role, offset: Int?, takesInput: Bool,
        signals: CaughtSignals
    ) {
        (self.client, self.id, self.role, self.offset, self.signals) = (client, id, role, offset, signals)
        reconnection = Reconnection(client, id: id, instance: instance)
        input = ProcInput(isOpen: takesInput)
        wa_ignore_sigpipe()
    }

    /// The signals that a session wants caught, from before its process is started.
    static func catchSignals() throws -> CaughtSignals {
        try CaughtSignals([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT])
    }

    /// Returns when the process has ended.
    func run() throws -> ProcessState {
        do {
            while true {
                do {
                    let state = try serve(connect())
                    terminal?.restore()
                    missing.sayTotal()
                    return state
                } catch let failure as CommandFailure {
                    try reconnection.lost(failure) { pause in
                        signals.wait(pause)
                        try handleSignals(nil)
                    }
                }
            }
        } catch {
            leave()
            if role == .run, (error as? ExitCode) == StandardOutput.closed {
                // As in a shell's pipeline, where SIGPIPE would have ended it.
                _ = try? client.signal(id, "terminate", allowing: [404, 409])
            }
            throw error
        }
    }

    private func connect() throws -> LocalWebSocket {
        let route = "\(ProcClient.route)/\(id)/attach\(offset.map { "?offset=\($0)" } ?? "")"
        let socket: LocalWebSocket
        do {
            socket = try LocalWebSocket(client.http, route, limit: ProcClient.limit)
            try reconnection.reached(101, socket.response.headers["workspace-agent-instance"])
        } catch let refusal as LocalWebSocket.Refusal {
            try reconnection.reached(refusal.answer.status, refusal.answer.instance)
            throw client.http.refusal(refusal.answer)
        }
        return socket
    }

    /// Passes everything on until the process has ended and its output is written.
    private func serve(_ socket: LocalWebSocket) throws -> ProcessState {
        try input.resend(to: socket, isPty: isPty)
        while true {
            while output.isEmpty, ended == nil, let message = try socket.next(waiting: false) {
                try take(message, socket)
            }
            if output.isEmpty, let ended { return ended }
            let ofSocket = (output.isEmpty ? POLLIN : 0) | (socket.hasUnsent ? POLLOUT : 0)
            let takesInput = input.isOpen && !socket.hasUnsent && ended == nil
            var wanted = [
                pollfd(fd: signals.descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: ofSocket == 0 ? -1 : socket.descriptor, events: Int16(ofSocket), revents: 0),
                pollfd(fd: takesInput ? STDIN_FILENO : -1, events: Int16(POLLIN), revents: 0),
                pollfd(fd: output.isEmpty ? -1 : STDOUT_FILENO, events: Int16(POLLOUT), revents: 0),
            ]
            poll(&wanted, nfds_t(wanted.count), -1)
            if wanted[0].revents != 0 { try handleSignals(socket) }
            if wanted[3].revents != 0 { try output.writeSome() }
            if wanted[2].revents != 0 { try takeInput(socket) }
            try socket.flush()
            input.settle(socket)
        }
    }

    private func take(_ message: LocalWebSocket.Message, _ socket: LocalWebSocket) throws {
        switch message {
        case .binary(let bytes):
            offset = offset.map { $0 + bytes.count }
            if terminal != nil, isPty { screen.look(at: bytes) }
            output.add(bytes)
        case .close(let code, let reason):
            // Going away, or no word at all; anything else is about us.
            guard [1000, 1001, 1005, 1012].contains(code) else {
                throw CommandFailure(message: "the agent closed the connection (\(code)): \(reason)")
            }
            throw CommandFailure(message: "the agent at \(client.http.socket) closed the connection", isLost: true)
        case .text(let text):
            guard let frame = try? JSONDecoder().decode(Frame.self, from: Data(text.utf8)) else { return }
            if let attached = frame.attached { try begin(attached, socket) }
            if let gone = frame.gone {
                offset = gone.offset + gone.bytes
                missing.add(gone.bytes, at: gone.offset)
            }
            if frame.stdin_closed == true { input.isOpen = false }
            if let exit = frame.exit { ended = exit }
        }
    }

    private func begin(_ attached: Frame.Attached, _ socket: LocalWebSocket) throws {
        offset = attached.offset
        isPty = attached.pty != nil
        if !attached.stdin { input.isOpen = false }
        guard isPty, let terminal else { return }
        terminal.makeRaw()
        try resize(Terminal.size(STDIN_FILENO, STDOUT_FILENO), socket)
    }

    private func resize(_ size: ProcessState.Size?, _ socket: LocalWebSocket) throws {
        guard isPty, let size else { return }
        try socket.send(#"{"resize":{"rows":\#(size.rows),"cols":\#(size.cols)}}"#)
    }

    private func takeInput(_ socket: LocalWebSocket) throws {
        guard var bytes = input.read() else { return try input.end(socket) }
        if role == .attach, isPty, terminal != nil {
            let (kept, detach) = detachKeys.filter(bytes)
            if detach {
                leave()
                note("detached; workspace-agent proc attach \(id) comes back to it")
                throw ExitCode.success
            }
            bytes = kept
        }
        try input.send(bytes, to: socket)
    }

    /// - Parameter socket: nil while there is no connection.
    private func handleSignals(_ socket: LocalWebSocket?) throws {
        while let number = signals.next() {
            switch number {
            case SIGWINCH:
                if let socket { try resize(Terminal.size(STDIN_FILENO, STDOUT_FILENO), socket) }
            case SIGTSTP:
                terminal?.restore()
                signals.stop()
            case SIGCONT:
                if isPty { terminal?.makeRaw() }
                if let socket { try resize(Terminal.size(STDIN_FILENO, STDOUT_FILENO), socket) }
            default: try forward(number)
            }
        }
    }

    private func forward(_ number: Int32) throws {
        // A process that has just ended needs none, and what a lost agent means is found out elsewhere.
        func send(_ name: String) { _ = try? client.signal(id, name, allowing: [404, 409]) }
        if role == .attach {
            guard number == SIGINT else { throw ExitCode(128 + number) }
            return send("SIGINT")
        }
        guard forwarded else {
            forwarded = true
            return send(number == SIGTERM ? "terminate" : SignalName.name(number))
        }
        send("kill")
        throw ExitCode(128 + number)
    }

    /// Gives the terminal back before the process has ended.
    private func leave() {
        guard let terminal else { return }
        let wasRaw = terminal.isRaw
        terminal.restore()
        if wasRaw, isatty(STDOUT_FILENO) != 0 { try? StandardOutput.write("\(screen.undoing)\r\n") }
    }
}

/// Standard input on its way to a process.
struct ProcInput {
    /// Whether more is to be read.
    var isOpen: Bool
    /// What the connection had not taken whole when it was last looked at.
    private var unsent: [UInt8] = []
    private var isEnded = false

    init(isOpen: Bool) { self.isOpen = isOpen }

    /// What can be read now; nil at the end.
    func read() -> [UInt8]? {
        var area = [UInt8](repeating: 0, count: 64 << 10)
        let count = Glibc.read(STDIN_FILENO, &area, area.count)
        if count < 0, errno == EINTR || errno == EAGAIN { return [] }
        return count > 0 ? Array(area.prefix(count)) : nil
    }

    mutating func send(_ bytes: [UInt8], to socket: LocalWebSocket) throws {
        guard !bytes.isEmpty else { return }
        unsent = bytes
        try socket.send(bytes)
        settle(socket)
    }

    /// Forgets what the connection has taken.
    mutating func settle(_ socket: LocalWebSocket) {
        if !socket.hasUnsent { unsent = [] }
    }

    /// Tells the process that there is no more.
    mutating func end(_ socket: LocalWebSocket) throws {
        (isOpen, isEnded) = (false, true)
        try socket.send(#"{"eof":true}"#)
    }

    /// Sends over a new connection what a broken one had not taken.
    /// - Parameter isPty: a terminal's end of input is a key, which is not pressed again.
    mutating func resend(to socket: LocalWebSocket, isPty: Bool) throws {
        if !unsent.isEmpty { try send(unsent, to: socket) }
        if isEnded, !isPty { try socket.send(#"{"eof":true}"#) }
    }
}
