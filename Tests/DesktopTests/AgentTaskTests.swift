import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Tasks as an AI agent does them: real programs on the desktop of the built daemon, through the API alone, in three
/// geometries that the agent declares.
@Suite(.timeLimit(.minutes(15)), .blocking) struct AgentTaskTests {
    /// An agent that works with a screen of a size of its own.
    private final class Agent {
        let daemon: DaemonProcess
        let directory: TemporaryDirectory
        /// What it declares, in JSON; empty for native.
        let declared: String

        init(_ daemon: DaemonProcess, _ directory: TemporaryDirectory, _ width: Int, _ height: Int) {
            (self.daemon, self.directory) = (daemon, directory)
            declared = width == 0 ? "" : #","scaled_width":\#(width),"scaled_height":\#(height)"#
        }

        @discardableResult
        func act(_ name: String, _ fields: String = "", status: Int = 200) throws -> [String: Any] {
            let body = #"{"action":"\#(name)"\#(declared)\#(fields.isEmpty ? "" : ",")\#(fields)}"#
            let answer = try daemon.connect().request("POST", "/api/v0/desktop/action", body: body)
            guard answer.status == status else { throw DeadlineExceeded(what: "\(body): \(answer.text)") }
            return answer.json
        }

        func output(_ name: String, _ fields: String = "") throws -> String? {
            try act(name, fields)["output"] as? String
        }

        func text(_ text: String) throws -> String { "\"text\":\(try json(text))" }

        func json(_ text: String) throws -> String {
            String(
                decoding: try JSONSerialization.data(withJSONObject: text, options: .fragmentsAllowed), as: UTF8.self)
        }

        /// Opens a program and gives its window.
        func open(_ command: String, title: String) throws -> Window {
            try act("open", try text(command))
            return try window(title)
        }

        func window(_ title: String) throws -> Window {
            let answer = try act("wait_for_window", "\"title\":\(try json(title)),\"timeout_ms\":60000")
            guard answer["met"] as? Bool == true, let window = (answer["windows"] as? [[String: Any]])?.first else {
                throw DeadlineExceeded(what: "a window \(title): \(answer)")
            }
            return Window(window)
        }

        /// What can be waited for is, and a program needs a moment for the rest.
        func still() throws { try act("wait_stable", #""ms":300,"timeout_ms":30000"#) }

        func clipboard(_ expected: String, copy: () throws -> Void = {}) throws {
            var found: String?
            for _ in 0..<100 {
                try copy()
                found = try output("clipboard_get")
                if found == expected { return }
                poll(nil, 0, 50)
            }
            throw DeadlineExceeded(what: "\(expected) on the clipboard, where \(found ?? "nothing") is")
        }
    }

    private struct Window {
        var id, x, y, width, height: Int
        var title: String

        init(_ fields: [String: Any]) {
            func number(_ name: String) -> Int { fields[name] as? Int ?? -1 }
            (id, x, y, width, height) = (number("id"), number("x"), number("y"), number("w"), number("h"))
            title = fields["title"] as? String ?? ""
        }
    }

    private static func withDaemon(_ body: (DaemonProcess, TemporaryDirectory) async throws -> Void) async throws {
        let directory = try TemporaryDirectory()
        mkdir("\(directory.path)/tmp", 0o700)
        let daemon = try DaemonProcess(
            environment: [
                "PATH": "\(SessionWorld.fixtures):/usr/local/bin:/usr/bin:/bin", "HOME": directory.path,
                "TMPDIR": "\(directory.path)/tmp", "LC_ALL": "C.UTF-8",
                "CODER_AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH": "\(directory.path)/boundary.sock",
            ], directory: directory)
        let result = await Result {
            try Agent(daemon, directory, 0, 0).act("screenshot")
            try await Xvnc(on: try #require(display(directory))).windowManager()
            try await body(daemon, directory)
        }
        #expect(try await daemon.stop() == 0)
        try result.get()
    }

    private static let geometries = [(0, 0), (1280, 720), (1024, 768)]

    @Test func aCommandInATerminal() async throws {
        try await Self.withDaemon { daemon, directory in
            for (width, height) in Self.geometries {
                let agent = Agent(daemon, directory, width, height)
                let window = try agent.open("xterm -fn fixed -T 'Terminal 1' -e /bin/sh", title: "Terminal")
                #expect(window.title == "Terminal 1" && window.id > 0)
                let (middleX, middleY) = (window.x + window.width / 2, window.y + window.height / 2)
                try agent.act("left_click", "\"coordinate\":[\(middleX),\(middleY)]")
                // Waits until the keyboard is the window's.
                try agent.act("focus_window", "\"id\":\(window.id)")
                try agent.still()
                try agent.act("type", try agent.text("PS1=; clear; echo \"it's\" \\\"$((6*7))\\\" '€'\n"))
                try agent.still()
                // The first of 24 rows.
                let row = "\"coordinate\":[\(window.x + window.width / 20),\(window.y + window.height / 30)]"
                // Again on a machine that was too slow for it: a pause makes it another triple click.
                try agent.clipboard("it's \"42\" €\n") {
                    try agent.act("triple_click", row)
                    try agent.act("wait", #""duration":500"#)
                }
                // Outside, so that the pointer is not in the picture.
                try agent.act("mouse_move", #""coordinate":[5000,5000]"#)
                try agent.still()
                try Self.compare(agent, window)
                try agent.act("close_window", "\"id\":\(window.id)")
                try await eventually("no window") {
                    (try agent.act("windows")["windows"] as? [Any])?.isEmpty == true
                }
                try agent.act("focus_window", "\"id\":\(window.id)", status: 404)
            }
        }
    }

    /// The picture of a window's region against what ImageMagick's import sees; in the agent's own coordinates the
    /// edges may be rounded to other pixels.
    private static func compare(_ agent: Agent, _ window: Window) throws {
        let answer = try agent.act(
            "zoom", "\"region\":[\(window.x),\(window.y),\(window.width),\(window.height)]")
        let data = try #require((answer["screenshot_data"] as? String).flatMap { Data(base64Encoded: $0) })
        let (mine, theirs) = ("\(agent.directory.path)/mine.png", "\(agent.directory.path)/theirs.png")
        try data.write(to: URL(fileURLWithPath: mine))
        let display = try #require(Self.display(agent.directory))
        let shot = try CommandResult.of(
            ["import", "-window", "\(window.id)", theirs], environment: ["DISPLAY": display])
        #expect(shot.code == 0, "\(shot)")
        let size = try CommandResult.of(["identify", "-format", "%w %h", theirs]).output.split(separator: " ")
        let native = size.compactMap { Int($0) }
        let found = [answer["screenshot_width"] as? Int ?? 0, answer["screenshot_height"] as? Int ?? 0]
        #expect(native.count == 2 && zip(native, found).allSatisfy { abs($0 - $1) <= 3 }, "\(native), \(found)")
        guard agent.declared.isEmpty else { return }
        let compared = try CommandResult.of(["compare", "-metric", "AE", theirs, mine, "null:"])
        #expect(compared.errors == "0", "\(compared)")
    }

    private static func display(_ directory: TemporaryDirectory) -> String? {
        let record = ProcFS.text("\(directory.path)/state/desktop/session.json")
        return record.firstMatch(of: /"display":"(:[0-9]+)"/).map { String($0.1) }
    }

    @Test func aDialog() async throws {
        try await Self.withDaemon { daemon, directory in
            for (width, height) in Self.geometries {
                let agent = Agent(daemon, directory, width, height)
                let file = "\(directory.path)/answer"
                let window = try agent.open(
                    "zenity --entry --title='A question' --text='Who?' >\(file)", title: "question")
                try agent.act("focus_window", "\"id\":\(window.id)")
                try agent.still()
                try agent.act("type", try agent.text("Zoë \"the\" 2nd"))
                try agent.still()
                try agent.act("key", try agent.text("CTRL+A ctrl+c"))
                try agent.clipboard("Zoë \"the\" 2nd")
                try agent.act("clipboard_set", try agent.text("pasted €"))
                try agent.act("key", try agent.text("ctrl+a ctrl+v"))
                try agent.still()
                try agent.act("key", try agent.text("Return"))
                try await eventually("the dialog's answer") { ProcFS.text(file) == "pasted €\n" }
                unlink(file)
            }
        }
    }

    private static let page = """
        <html><head><title>Loading</title><style>body{margin:0;height:5000px;font:20px monospace}
        input{position:absolute;left:40px;top:40px;width:400px} p{position:absolute;left:40px;top:90px;margin:0}
        </style></head><body><input id=field><p id=text>The quick brown fox</p><script>
        const at = (e, f) => { const r = e.getBoundingClientRect(), edge = (outerWidth - innerWidth) / 2;
          return [Math.round(screenX + edge + r.left + r.width * f),
            Math.round(screenY + outerHeight - innerHeight - edge + r.top + r.height / 2)] };
        const place = () => { document.title = 'Ready ' + [...at(field, .5), ...at(text, .012), ...at(text, .99)].join(' ') };
        onload = place; onresize = place;
        field.oninput = () => { document.title = 'Typed ' + field.value };
        onclick = e => { if (e.ctrlKey) document.title = 'Control click' };
        onscroll = () => { clearTimeout(window.timer); window.timer = setTimeout(() => { document.title = 'Scrolled ' + scrollY }, 300) };
        </script></body></html>
        """

    @Test func aBrowser() async throws {
        try await Self.withDaemon { daemon, directory in
            let file = "\(directory.path)/page.html"
            try Data(Self.page.utf8).write(to: URL(fileURLWithPath: file))
            for (index, (width, height)) in Self.geometries.enumerated() {
                let agent = Agent(daemon, directory, width, height)
                let window = try agent.open(
                    "exec chromium --no-sandbox --test-type --disable-gpu --no-first-run --disable-dev-shm-usage "
                        + "--force-device-scale-factor=1 --user-data-dir=\(directory.path)/profile\(index) "
                        + "--window-position=0,0 --window-size=1100,800 file://\(file)", title: "Ready")
                try agent.still()
                let words = try agent.window("Ready").title.split(separator: " ")
                let native = words.dropFirst().prefix(6).compactMap { Int($0) }
                try #require(native.count == 6, "\(words)")
                // Where the page says, in the agent's coordinates.
                func point(_ at: Int) -> String {
                    let (x, y) = (native[at], native[at + 1])
                    return width == 0 ? "[\(x),\(y)]" : "[\(x * width / 1920),\(y * height / 1080)]"
                }
                try agent.act("left_click", "\"coordinate\":\(point(0))")
                try agent.still()
                try agent.act("type", try agent.text("it's \"quoted\""))
                _ = try agent.window("Typed it's \"quoted\"")
                try agent.act("left_click_drag", "\"start_coordinate\":\(point(2)),\"coordinate\":\(point(4))")
                try agent.act("key", try agent.text("CTRL+C"))
                try agent.clipboard("The quick brown fox")
                try agent.act("left_click", "\"coordinate\":\(point(0)),\"modifiers\":[\"ctrl\"]")
                _ = try agent.window("Control click")
                let picture = try agent.act(
                    "scroll", "\"coordinate\":\(point(2)),\"scroll_amount\":10,\"screenshot\":true")
                #expect(picture["screenshot_width"] as? Int == (width == 0 ? 1920 : width))
                #expect((picture["screenshot_data"] as? String ?? "").count > 1_000)
                _ = try agent.window("Scrolled ")
                try agent.act("key", try agent.text("CTRL+T"))
                _ = try agent.window("New Tab")
                try agent.act("key", try agent.text("ctrl+w"))
                try agent.act("close_window", "\"id\":\(window.id)")
                try await eventually("no browser") {
                    let windows = try agent.act("windows")["windows"] as? [[String: Any]] ?? []
                    return !windows.contains { $0["id"] as? Int == window.id }
                }
            }
        }
    }

    @Test func whatCannotBeOpenedIsTold() async throws {
        try await Self.withDaemon { daemon, directory in
            let agent = Agent(daemon, directory, 0, 0)
            for (command, message, detail) in [
                ("no-such-program -x", "The program cannot be started: /bin/sh: 1: no-such-program: not found", nil),
                ("echo why >&2; exit 3", "The program ended at once, with code 3.", "why"),
                ("kill -TERM $$", "The program ended at once, by SIGTERM.", nil),
                ("/etc/passwd", "The program cannot be started: /bin/sh: 1: /etc/passwd: Permission denied", nil),
            ] as [(String, String, String?)] {
                let answer = try agent.act("open", try agent.text(command), status: 400)
                #expect(answer["message"] as? String == message && answer["detail"] as? String == detail, "\(answer)")
            }
            #expect(try agent.output("open", try agent.text("true")) == "open action performed")
            #expect(try agent.output("open", try agent.text("exec sleep 1000")) == "open action performed")
        }
    }
}
