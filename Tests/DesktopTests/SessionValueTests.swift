import AgentTestSupport
import Glibc
import Testing

@testable import AgentCore
@testable import Desktop

@Suite struct SessionValueTests {
    private static let report =
        #"{"vncPort":5901,"display":":1","geometry":"1920x1080","xvncPid":12,"openboxPid":13,"sessionDir":"/tmp/x","more":[]}"#
    private static let number = report.replacing(#"":1""#, with: "1")

    private func find(_ text: String) throws -> UpReport { try UpReport.find(in: Array(text.utf8)) }

    @Test func findsTheReportAmongNoise() throws {
        let pretty = Self.number.replacing(",", with: ",\n  ")
        for text in [
            Self.report, Self.number, pretty, "starting\n{\"level\":1}\n\(Self.report)\n",
            "\(Self.number)\n{}\nbye {\n",
        ] {
            let report = try find(text)
            #expect(report.vncPort == 5901 && report.display == ":1" && report.xvncPid == 12)
            #expect(report.openboxPid == 13 && report.sessionDir == "/tmp/x")
        }
    }

    @Test(arguments: [
        ("", "printed nothing"), (" \n\n", "printed nothing"), ("hello", "no JSON"), ("{}", "no JSON"),
        (report.replacing("5901", with: "0"), "vncPort 0"), (report.replacing("5901", with: "65536"), "vncPort 65536"),
        (report.replacing(#""xvncPid":12"#, with: #""xvncPid":1"#), "xvncPid 1"),
        (report.replacing(#"":1""#, with: #""host:1""#), "display"),
        (report.replacing(#"":1""#, with: #"":""#), "display"),
        (report.replacing(#"":1""#, with: #"":01""#), "display"),
        (report.replacing(#"":1""#, with: #"":1;rm""#), "display"),
        (number.replacing(#""display":1"#, with: #""display":-1"#), "display \":-1\""),
        (number.replacing(#""display":1"#, with: #""display":99999"#), "display \":99999\""),
        (number.replacing(#""display":1"#, with: #""display":null"#), "no JSON"),
        (report.replacing("5901", with: "\"5901\""), "no JSON"),
    ])
    func saysWhatIsWrongWithAReport(text: String, problem: String) {
        do {
            _ = try find(text)
            Issue.record("taken: \(text)")
        } catch let error as UpReport.Problem {
            #expect(error.text.contains(problem))
        } catch {
            Issue.record("\(error)")
        }
    }

    /// Unknown fields of a state file do not hide the others.
    @Test func cleansUpByAnyStateFile() throws {
        let world = try TemporaryDirectory()
        let files = SessionFiles(stateDirectory: world.path)
        mkdir(files.directory, 0o700)
        func read(_ text: String) throws -> StateFile? {
            try OwnFile.replace(files.state, with: Array(text.utf8))
            return files.readState()
        }
        for text in [Self.report, Self.number, Self.number.replacing(",", with: ",\n\t")] {
            let state = try #require(try read(text))
            #expect(
                state.display == ":1" && state.xvncPid == 12 && state.openboxPid == 13 && state.sessionDir == "/tmp/x")
        }
        let odd = try #require(try read(#"{"display":{"screen":0},"xvncPid":12,"openboxPid":"none"}"#))
        #expect(odd.display == nil && odd.xvncPid == 12 && odd.openboxPid == nil && odd.sessionDir == nil)
        for text in ["", "[]", "{", "12"] { #expect(try read(text) == nil) }
    }

    @Test func readsListeners() {
        func line(_ address: String, state: String = "0A") -> String {
            "   0: \(address):170D 00000000:0000 \(state) 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 100"
        }
        let cases: [(String, String, Bool)] = [
            ("0100007F", "127.0.0.1", true), ("0200017F", "127.1.0.2", true), ("00000000", "0.0.0.0", false),
            ("0101A8C0", "192.168.1.1", false),
            ("00000000000000000000000001000000", "[0:0:0:0:0:0:0:1]", true),
            ("00000000000000000000000000000000", "[::]", false),
            ("0000000000000000FFFF00000100007F", "[0:0:0:0:0:ffff:7f00:1]", true),
            ("0000000000000000FFFF000000000000", "[0:0:0:0:0:ffff:0:0]", false),
            ("000080FE000000000000000001000000", "[fe80:0:0:0:0:0:0:1]", false),
        ]
        for (hex, address, isLoopback) in cases {
            let listener = ListeningSockets.parse(line(hex))
            #expect(
                listener == .init(address: address, port: 5901, inode: 4711, isLoopback: isLoopback), "\(hex)")
        }
        #expect(ListeningSockets.parse(line("0100007F", state: "01")) == nil)
        for bad in ["", "sl local_address", line("01"), line("0100007X")] {
            #expect(ListeningSockets.parse(bad) == nil)
        }
    }

    @Test func readsProcessStates() throws {
        let line = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2"
        let parsed = try #require(ProcessHandle.parse(Array(line.utf8)))
        #expect(parsed.name == "a) b (c" && parsed.startTime == 987654)
        for bad in ["", "12 (a S 1", "12 (a) S 1 2 3", ") ("] { #expect(ProcessHandle.parse(Array(bad.utf8)) == nil) }
    }

    @Test func aHandleKnowsItsProcessFromALaterOne() throws {
        let pid = try DaemonProcess.spawn(["/bin/sleep", "1000"], [:])
        let handle = try #require(ProcessHandle(pid: pid))
        #expect(handle.name == "sleep" && handle.isAlive && ProcessHandle.isRunning(pid))
        #expect(ProcessHandle(handle.identity) != nil)
        var other = handle.identity
        other.startTime -= 1
        #expect(ProcessHandle(other) == nil)
        handle.signal(SIGKILL)
        var info = siginfo_t()
        waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT)
        // A zombie counts as gone.
        #expect(!handle.isAlive && ProcessHandle(pid: pid) == nil && !ProcessHandle.isRunning(pid))
        waitpid(pid, nil, 0)
        #expect(!handle.isAlive)
        for pid: Int32 in [-1, 0, 1, getpid(), 4_194_303] { #expect(ProcessHandle(pid: pid) == nil) }
    }

    @Test func longStateDirectoriesGetAShortSocket() throws {
        #expect(SessionFiles(stateDirectory: "/s").socket == "/s/desktop/rfb.sock")
        let directory = "/\(String(repeating: "d", count: 120))"
        let socket = SessionFiles(stateDirectory: directory).socket
        #expect(socket.utf8.count < 100 && socket == SessionFiles(stateDirectory: directory).socket)
        #expect(socket != SessionFiles(stateDirectory: "\(directory)x").socket)
        #expect(!SessionFiles(stateDirectory: "/a,b").socket.contains(","))
    }

    @Test func onlyADirectoryOfThisStartMayBeRemoved() throws {
        let world = try TemporaryDirectory()
        let files = SessionFiles(stateDirectory: "\(world.path)/state")
        let now = Int64(time(nil))
        let own = "\(world.path)/session"
        try createDirectories("\(own)/deep/er", mode: 0o700)
        try createDirectories(files.directory, mode: 0o700)
        let link = "\(world.path)/link"
        symlink(own, link)
        #expect(files.sessionDirectory(own, started: now - 5) != nil)
        // Made before the start, not there, not absolute, a link, above our own files, the root.
        #expect(files.sessionDirectory(own, started: now + 60) == nil)
        let wrong = [
            nil, "/", "relative", "\(own)/../session", "\(world.path)/none", link, world.path, files.directory,
        ]
        for path in wrong { #expect(files.sessionDirectory(path, started: now - 5) == nil, "\(path ?? "nil")") }
        #expect(files.sessionDirectory("/usr", started: now - 5) == nil)

        // What a link in it points to stays, and so does another directory that took its place.
        let kept = "\(world.path)/kept"
        try createDirectories(kept, mode: 0o700)
        symlink(kept, "\(own)/deep/link")
        let directory = try #require(files.sessionDirectory(own, started: now - 5))
        rename(own, "\(own).moved")
        try createDirectories(own, mode: 0o700)
        SessionFiles.remove(directory)
        #expect(access(own, F_OK) == 0)
        rmdir(own)
        rename("\(own).moved", own)
        SessionFiles.remove(directory)
        #expect(access(own, F_OK) != 0 && access(kept, F_OK) == 0)
    }

    /// Of a display without a lock: only one that has no server any more loses its socket.
    @Test func socketsOfDisplaysGoWithTheirServer() async throws {
        let number = 50_000 + Int.random(in: 0..<10_000)
        let path = "/tmp/.X11-unix/X\(number)"
        let lock = "/tmp/.X\(number)-lock"
        mkdir("/tmp/.X11-unix", 0o1777)
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(bound == 0 && listen(listener, 1) == 0)
        defer { for file in [path, lock] { unlink(file) } }
        #expect(SessionFiles.display(of: getpid()) == ":\(number)")
        SessionFiles.removeSocket(ofDisplay: ":\(number)")
        #expect(access(path, F_OK) == 0, "a server listens")
        close(listener)
        close(creat(lock, 0o600))
        SessionFiles.removeSocket(ofDisplay: ":\(number)")
        #expect(access(path, F_OK) == 0, "the server that has the lock removes it")
        unlink(lock)
        for odd in ["", ":", ":x", ":-1", ":99999", ":1/../\(number)", "host:\(number)"] {
            SessionFiles.removeSocket(ofDisplay: odd)
        }
        #expect(access(path, F_OK) == 0)
        // A child that has not executed yet may hold it for a moment.
        try await eventually("it is removed") {
            SessionFiles.removeSocket(ofDisplay: ":\(number).0")
            return access(path, F_OK) != 0
        }
    }

    @Test func namesOfViewerFilesLeadNowhereElse() {
        for name in ["rfb.js", "vnc.html", "a b", "ü.js"] { #expect(ViewerFiles.isPlain(name)) }
        for name in ["", ".", "..", ".git", "a/b", "a\\b", "a\0.js", "../x", "/etc"] {
            #expect(!ViewerFiles.isPlain(name))
        }
    }
}
