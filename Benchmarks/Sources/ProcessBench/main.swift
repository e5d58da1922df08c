import BenchSupport
import Glibc

// The process API's promises, each beside its floor measured in the same run, in turns, so that both see the same
// machine. Usage: ProcessBench PATH-TO-RELEASE-BINARY [PART OF A GROUP'S NAME]

struct Row {
    var name: String
    var measured: String
    var floor = ""
    var ratio = ""
    var promise: String
}

func run(_ binary: String, _ wanted: String) throws {
    let (listener, port) = try listen()
    close(listener)
    let daemon = try Daemon(binary, ["--http-address", "127.0.0.1:\(port)", "--http-auth", "none"])
    defer { daemon.stop() }
    let groups: [(name: String, rows: () throws -> [Row])] = [
        ("ready", { [try ready(binary)] }),
        ("idle", { try idle(daemon) }),
        ("requests", { try requests(daemon, port) }),
        ("starts", { try starts(daemon) }),
        ("concurrent", { try concurrentStarts(daemon, connections: 16) }),
        ("capture", { try capture(daemon) }),
        ("stream", { [try streamed(daemon)] }),
        ("line", { [try lineLatency(daemon)] }),
        ("keystroke", { [try keystrokes(daemon)] }),
        ("sleepers", { try sleepers(binary) }),
    ]
    let head = Row(name: "what", measured: "measured", floor: "floor, same run", ratio: "ratio", promise: "promise")
    show(head)
    for group in groups where wanted.isEmpty || group.name.contains(wanted) {
        do {
            for row in try group.rows() { show(row) }
        } catch {
            say("\(group.name): \(error)")
        }
    }
}

func show(_ row: Row) {
    say(pad(row.name, 34) + pad(row.measured, 20) + pad(row.floor, 28) + pad(row.ratio, 8) + row.promise)
}

signal(SIGPIPE, SIG_IGN)
do {
    let arguments = CommandLine.arguments
    guard arguments.count == 2 || arguments.count == 3 else { throw BenchFailure("usage: ProcessBench BINARY [GROUP]") }
    try run(arguments[1], arguments.count == 3 ? arguments[2] : "")
} catch {
    print("ProcessBench: \(error)")
    exit(1)
}
