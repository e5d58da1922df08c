import AgentCore

/// What the checks look at; another one in tests.
struct DoctorMachine: Sendable {
    var environment: [String: String]
    /// Where `/proc` and `/sys` are.
    var root = ""

    /// The directories where programs are searched, as the daemon does.
    var searchPath: [String] {
        (environment["PATH"] ?? EnvironmentBuilder.defaultPath).split(separator: ":").map(String.init)
    }

    func program(_ name: String) -> String? { findExecutable(name, in: searchPath) }

    /// The first line that a program prints on stdout or stderr; nil when it fails or takes longer than 3 s.
    func firstLine(of program: String, _ arguments: [String]) -> String? {
        CapturedProgram.output(
            of: program, arguments, environment: environment, withErrors: true, atMost: .seconds(3)
        )?.split(separator: "\n").first.map(String.init)
    }

    func text(_ path: String) -> String? { readTextFile(root + path) }

    /// The number that a file begins with.
    func number(_ path: String) -> Int? { text(path).flatMap { Int($0.prefix { $0.isNumber }) } }
}
