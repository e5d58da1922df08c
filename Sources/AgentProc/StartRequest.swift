import AgentCore
import AgentHTTP
import Glibc

/// What to start, checked.
public struct StartRequest: Sendable, Hashable {
    public enum Program: Sendable, Hashable {
        /// Run by `sh -c`.
        case shell(String)
        case argv([String])
    }

    public var program: Program
    public var workdir: String?
    public var environment: [String: String] = [:]
    public var background = false
    public var clientToken: String?
    public var timeout: Duration?
    public var input = ProgramInput.nothing

    public init(_ program: Program, workdir: String? = nil, environment: [String: String] = [:]) {
        self.program = program
        self.workdir = workdir
        self.environment = environment
    }

    /// The arguments to execute.
    ///
    /// Linux takes no single argument of 128 KiB or more, so a longer command is passed in pieces
    /// that the shell puts together again: `set --` removes them before the command itself runs.
    var arguments: [String] {
        switch program {
        case .argv(let argv): return argv
        case .shell(let command):
            guard command.utf8.count > ProcLimits.kernelArgumentBytes else { return ["/bin/sh", "-c", command] }
            let pieces = Self.pieces(of: command)
            let joined = pieces.indices.map { "${\($0 + 1)}" }.joined()
            return ["/bin/sh", "-c", "eval \"set --\n\(joined)\"", "sh"] + pieces
        }
    }

    /// What lists show as the command, and whether that is all of it.
    var displayCommand: (text: String, isCut: Bool) {
        let limit = ProcLimits.shownCommandBytes
        var bytes: [UInt8] = []
        switch program {
        case .shell(let command): bytes = Array(command.utf8.prefix(limit + 1))
        case .argv(let argv):
            for (index, argument) in argv.enumerated() where bytes.count <= limit {
                if index > 0 { bytes.append(UInt8(ascii: " ")) }
                bytes += argument.utf8.prefix(limit + 1 - min(bytes.count, limit + 1))
            }
        }
        guard bytes.count > limit else { return (String(decoding: bytes, as: UTF8.self), false) }
        var end = limit
        // Not inside a character.
        while bytes[end] & 0xC0 == 0x80 { end -= 1 }
        return (String(decoding: bytes[..<end], as: UTF8.self), true)
    }

    /// Stands for the request where it is only compared: requests are large, and those with a token are remembered for as
    /// long as their processes.
    struct Fingerprint: Sendable, Equatable {
        private let halves: [Int]

        /// 128 bits of a keyed hash, so that no two requests have the same one by chance or on purpose.
        init(_ request: StartRequest) {
            halves = (0..<2).map { half in
                var hasher = Hasher()
                hasher.combine(half)
                hasher.combine(request)
                return hasher.finalize()
            }
        }
    }

    private static func pieces(of command: String) -> [String] {
        var pieces: [String] = []
        var rest = command.utf8[...]
        while !rest.isEmpty {
            var end = rest.index(rest.startIndex, offsetBy: 100_000, limitedBy: rest.endIndex) ?? rest.endIndex
            // Not inside a character: each piece is a string of its own.
            while end < rest.endIndex, rest[end] & 0xC0 == 0x80 { end = rest.index(before: end) }
            pieces.append(String(decoding: rest[..<end], as: UTF8.self))
            rest = rest[end...]
        }
        return pieces
    }
}

/// The body of POST /start as it comes.
struct StartBody: Decodable {
    var command: String?
    var argv: [String]?
    var workdir: String?
    var env: [String: String]?
    var background: Bool?
    var client_token: String?
    var timeout_ms: WholeNumber?
    var wait_ms: WholeNumber?
    var stdin: Bool?
    var pty: Terminal?

    struct Terminal: Decodable {
        var rows: WholeNumber?
        var cols: WholeNumber?
        var term: String?
    }

    /// How long the answer may wait for the end of the process; nil answers at once.
    /// - Throws: ``HTTPProblem`` 400.
    func wait() throws -> Duration? {
        guard let wait_ms = wait_ms?.value else { return nil }
        guard (0...ProcLimits.waitMilliseconds).contains(wait_ms) else {
            throw HTTPProblem.invalid("wait_ms", "must be from 0 to \(ProcLimits.waitMilliseconds)")
        }
        return .milliseconds(wait_ms)
    }

    /// Checks every field.
    /// - Throws: ``HTTPProblem`` 400 or 413 that names the field.
    func validated() throws -> StartRequest {
        var request = StartRequest(try program())
        if let workdir, !workdir.isEmpty {
            try Self.refuseNUL("workdir", workdir)
            request.workdir = workdir
        }
        if let env { request.environment = try Self.checked(env) }
        request.background = background ?? false
        if let client_token {
            guard !client_token.isEmpty, client_token.utf8.count <= ProcLimits.clientTokenBytes else {
                throw HTTPProblem.invalid(
                    "client_token", "must have 1 to \(ProcLimits.clientTokenBytes) bytes")
            }
            try Self.refuseNUL("client_token", client_token)
            request.clientToken = client_token
        }
        if let timeout_ms = timeout_ms?.value {
            guard (1...ProcLimits.runMilliseconds).contains(timeout_ms) else {
                throw HTTPProblem.invalid("timeout_ms", "must be from 1 to \(ProcLimits.runMilliseconds)")
            }
            request.timeout = .milliseconds(timeout_ms)
        }
        if let pty {
            request.input = .terminal(
                TerminalSize(
                    rows: try TerminalSize.lines("pty.rows", pty.rows),
                    cols: try TerminalSize.lines("pty.cols", pty.cols)))
            request.environment["TERM"] = try pty.name() ?? request.environment["TERM"] ?? "xterm-256color"
        } else if stdin == true {
            request.input = .pipe
        }
        return request
    }

    private func program() throws -> StartRequest.Program {
        switch (command ?? "", argv ?? []) {
        case ("", []): throw HTTPProblem(.badRequest, "Command is required.")
        case (let command, []):
            try Self.limit("Command", command.utf8.count, ProcLimits.commandBytes)
            try Self.refuseNUL("command", command)
            return .shell(command)
        case ("", let argv):
            for argument in argv {
                try Self.refuseNUL("argv", argument)
                try Self.limit("An argument", argument.utf8.count, ProcLimits.kernelArgumentBytes)
            }
            guard argv[0] != "" else { throw HTTPProblem.invalid("argv", "must begin with a program") }
            try Self.limit("argv", argv.reduce(0) { $0 + $1.utf8.count + 1 }, ProcLimits.commandBytes)
            return .argv(argv)
        default:
            throw HTTPProblem.invalid("argv", "must not be given together with command")
        }
    }

    private static func checked(_ env: [String: String]) throws -> [String: String] {
        var bytes = 0
        for (name, value) in env {
            guard !name.isEmpty, !name.contains("=") else {
                throw HTTPProblem.invalid("env", "\"\(name)\" is not a variable name")
            }
            try refuseNUL("env", name)
            try refuseNUL("env.\(name)", value)
            bytes += name.utf8.count + value.utf8.count
            try limit(
                "Variable \"\(name)\"", name.utf8.count + value.utf8.count + 1, ProcLimits.kernelArgumentBytes)
        }
        try limit("env", bytes, ProcLimits.environmentBytes)
        return env
    }

    private static func refuseNUL(_ field: @autoclosure () -> String, _ text: String) throws {
        if text.utf8.contains(0) { throw HTTPProblem.invalid(field(), "must not contain a NUL character") }
    }

    private static func limit(_ what: @autoclosure () -> String, _ count: Int, _ maximum: Int) throws {
        guard count <= maximum else {
            throw HTTPProblem(.contentTooLarge, "\(what()) is too large.", detail: "The limit is \(maximum) bytes.")
        }
    }
}

extension StartBody.Terminal {
    /// The value of TERM, as terminfo's file names are.
    fileprivate func name() throws -> String? {
        guard let term else { return nil }
        let isName = term.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "+"), UInt8(ascii: "."),
                UInt8(ascii: "_"):
                true
            default: false
            }
        }
        guard isName, (1...ProcLimits.terminalNameBytes).contains(term.utf8.count) else {
            throw HTTPProblem.invalid(
                "pty.term", "must have 1 to \(ProcLimits.terminalNameBytes) letters, digits or characters of -+._")
        }
        return term
    }
}

extension TerminalSize {
    /// Checks the rows or columns that a client sent.
    /// - Throws: ``HTTPProblem`` 400 that names the field.
    static func lines(_ field: String, _ value: WholeNumber?) throws -> UInt16 {
        guard let value, ProcLimits.terminalLines.contains(value.value) else {
            let bounds = ProcLimits.terminalLines
            throw HTTPProblem.invalid(field, "must be from \(bounds.lowerBound) to \(bounds.upperBound)")
        }
        return UInt16(value.value)
    }
}
