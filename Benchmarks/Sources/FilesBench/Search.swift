import BenchSupport
import Glibc

/// grep beside ripgrep, glob beside git, on a tree of 60,000 files in 5,000 directories, hot in the page cache.
func search(_ client: FilesClient) throws -> [Row] {
    let tree = try SourceTree()
    // It removes its files when it goes.
    defer { withExtendedLifetime(tree) {} }
    let root = tree.root
    var rows: [Row] = []
    for (name, member, options) in [
        ("grep, regex", #""pattern":"needle_[0-9]+""#, "'needle_[0-9]+'"),
        ("grep, fixed text", #""pattern":"needle_77","fixed":true"#, "-F needle_77"),
        ("grep, any case", #""pattern":"NEEDLE_77","fixed":true,"ignore_case":true"#, "-i -F NEEDLE_77"),
    ] {
        let command = "cd \(root) && rg --hidden --no-config -n \(options) > /dev/null"
        let (ours, floor) = try inTurns(7) {
            _ = try client.post("grep", #"{"root":"\#(root)",\#(member)}"#)
        } floor: {
            try shell(command)
        }
        rows.append(row(name, ours, "ripgrep", floor, "≤ 3"))
    }
    for (name, pattern, commands) in [
        (
            "glob, all files", "**",
            [("git ls-files", "ls-files"), ("git ls-files -co", "ls-files -co --exclude-standard")]
        ),
        ("glob, one kind of file", "*.swift", [("git ls-files -co", "ls-files -co --exclude-standard '*.swift'")]),
    ] {
        for (label, command) in commands {
            let (ours, floor) = try inTurns(7) {
                _ = try client.post("glob", #"{"root":"\#(root)","pattern":"\#(pattern)"}"#)
            } floor: {
                try shell("git -C \(root) \(command) > /dev/null")
            }
            // The index alone tells neither what is new nor when it changed.
            rows.append(row(name, ours, label, floor, label == "git ls-files" ? "" : "≤ 2"))
        }
    }
    return rows
}

private func row(_ name: String, _ ours: Double, _ label: String, _ floor: Double, _ promise: String) -> Row {
    Row(
        name: name, measured: milli(ours), floor: "\(label) \(milli(floor))", ratio: round2(ours / floor),
        promise: promise)
}

/// The median seconds of both, measured in turns.
private func inTurns(
    _ count: Int, _ body: () throws -> Void, floor: () throws -> Void
) throws -> (ours: Double, floor: Double) {
    var (ours, floors) = ([Double](), [Double]())
    for turn in 0...count {
        var begin = seconds()
        try body()
        let time = seconds() - begin
        begin = seconds()
        try floor()
        // The first fills the caches.
        guard turn > 0 else { continue }
        ours.append(time)
        floors.append(seconds() - begin)
    }
    return (percentile(ours, 0.5), percentile(floors, 0.5))
}

/// Runs a command; grep's "nothing found" is no failure.
func shell(_ command: String) throws {
    let pid = try spawn(["sh", "-c", command])
    var status: CInt = 0
    waitpid(pid, &status, 0)
    guard [0, 1].contains(status >> 8 & 0xFF), status & 0x7F == 0 else {
        throw BenchFailure("status \(status >> 8) of \(command) (is ripgrep installed?)")
    }
}

/// A repository like one of source code: the same files each time.
private final class SourceTree {
    private let directory: String
    var root: String { "\(directory)/tree" }
    private var state: UInt64 = 7

    init() throws {
        var template = Array("/tmp/wa-bench-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw BenchFailure("mkdtemp") }
        directory = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        mkdir(root, 0o755)
        let kinds = ["ts", "ts", "ts", "js", "json", "md", "swift", "py", "c", "h", "css", "txt"]
        for package in 0..<40 {
            mkdir("\(root)/package\(package)", 0o755)
            for module in 0..<125 {
                let place = "\(root)/package\(package)/module\(module)"
                mkdir(place, 0o755)
                for (number, kind) in kinds.enumerated() { try write("\(place)/file\(number).\(kind)", text()) }
            }
        }
        try write(
            "\(root)/.gitignore",
            Array("node_modules/\nbuild/\n*.o\n*.log\n/out\n*.py[co]\n.env.*\n!.env.example\n".utf8))
        try shell("cd \(root) && git init -q && git add -A && git -c user.name=x -c user.email=x commit -qm x")
    }

    deinit { try? shell("rm -rf \(directory)") }

    /// 1 to 11 KiB of lines of words, a needle in one of 500 files.
    private func text() -> [UInt8] {
        let words = ["get", "Value", "setName", "index", "makeBuffer", "stream", "request", "answer", "path", "entry"]
        let size = 1_024 + next(10_240)
        var text: [UInt8] = []
        while text.count < size {
            text += Array(repeating: UInt8(ascii: " "), count: next(12))
            for _ in 0..<(2 + next(8)) { text += Array("\(words[next(words.count)]) ".utf8) }
            text += Array("(\(next(10_000)));\n".utf8)
        }
        if next(500) == 0 { text += Array("needle_\(next(100))\n".utf8) }
        return text
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    private func next(_ bound: Int) -> Int {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return Int((value ^ (value >> 31)) % UInt64(bound))
    }

    private func write(_ path: String, _ bytes: [UInt8]) throws {
        let descriptor = creat(path, 0o644)
        defer { close(descriptor) }
        guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count else { throw BenchFailure("write \(path)") }
    }
}
