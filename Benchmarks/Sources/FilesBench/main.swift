import BenchSupport
import Glibc

// The file API's promises, each beside its floor measured in the same run, in turns, so that both see the same
// machine. Usage: FilesBench PATH-TO-RELEASE-BINARY [PART OF A SECTION'S NAME]

struct Row {
    var name: String
    var measured: String
    var floor = ""
    var ratio = ""
    var promise: String
}

func run(_ binary: String, _ wanted: String) throws {
    let daemon = try Daemon(binary)
    defer { daemon.stop() }
    let client = try FilesClient(daemon.socket)
    let sections: [(name: String, rows: () throws -> [Row])] = [
        ("transfers", { try transfers(daemon, client) }), ("edit", { try editing(client) }),
        ("search", { try search(client) }),
    ]
    show(Row(name: "what", measured: "measured", floor: "floor, same run", ratio: "ratio", promise: "promise"))
    for section in sections where wanted.isEmpty || section.name.contains(wanted) {
        do {
            for row in try section.rows() { show(row) }
        } catch {
            say("\(section.name): \(error)")
        }
    }
}

func show(_ row: Row) {
    say(pad(row.name, 34) + pad(row.measured, 14) + pad(row.floor, 34) + pad(row.ratio, 8) + row.promise)
}

signal(SIGPIPE, SIG_IGN)
do {
    let arguments = CommandLine.arguments
    guard arguments.count == 2 || arguments.count == 3 else { throw BenchFailure("usage: FilesBench BINARY [SECTION]") }
    try run(arguments[1], arguments.count == 3 ? arguments[2] : "")
} catch {
    print("FilesBench: \(error)")
    exit(1)
}
