import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The viewer's page in a real browser, over the built daemon and a real desktop.
@Suite(.serialized, .blocking) struct ViewerTests {
    private static let fixtures = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Fixtures").path

    /// A canvas as the page has it: where it is, and how much it is scaled.
    private struct Canvas {
        var left = 0.0, top = 0.0, width = 0.0, height = 0.0, own = 0.0

        init(_ browser: Browser) throws {
            let value = try browser.run(
                """
                const c = document.querySelector("#screen canvas"), r = c.getBoundingClientRect();
                return [r.left, r.top, r.width, r.height, c.width];
                """)
            let numbers = (value as? [Any])?.compactMap { ($0 as? NSNumber)?.doubleValue } ?? []
            guard numbers.count == 5 else { throw DeadlineExceeded(what: "a canvas") }
            (left, top, width, height, own) = (numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
        }

        /// Where a point of the desktop is on the page.
        func onPage(_ x: Int, _ y: Int) -> (x: Int, y: Int) {
            let scale = width / own
            return (Int((left + (Double(x) + 0.5) * scale).rounded()), Int((top + (Double(y) + 0.5) * scale).rounded()))
        }
    }

    @Test(.timeLimit(.minutes(15))) func aPersonSeesTypesAndClicks() async throws {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        let daemon = try DaemonProcess(tcp: true, environment: ["PATH": "\(Self.fixtures):\(path)"])
        let seen = "\(daemon.directory.path)/seen"
        try await offPool {
            let browser = try Browser()
            let viewer = "http://127.0.0.1:\(daemon.port)/api/v0/desktop/viewer"
            try browser.open("\(viewer)?token=\(daemon.token)")
            try wait("noVNC is connected") {
                try browser.run("return document.getElementById('status').textContent") as? String == ""
            }
            let display = try Self.display(daemon)
            let environment = ["DISPLAY": display]

            // It shows what is there.
            #expect(try CommandResult.of(["xsetroot", "-solid", "#336699"], environment: environment).code == 0)
            try wait("the colour is on the page") {
                let pixel = try browser.run(
                    """
                    const c = document.querySelector("#screen canvas");
                    return Array.from(c.getContext("2d").getImageData(c.width - 40, c.height - 40, 1, 1).data);
                    """)
                return (pixel as? [Any])?.compactMap { ($0 as? NSNumber)?.intValue } == [0x33, 0x66, 0x99, 255]
            }

            // A terminal that tells clicks, too, as text (xterm control sequences, SGR mouse mode).
            // It answers where its cursor is once it does.
            let script =
                "stty raw -echo; printf '\\033[?1000h\\033[?1006h\\033[6n'; "
                + "dd bs=1 count=6 >/dev/null 2>&1; exec cat >\(seen)"
            let xterm = try DaemonProcess.spawn(
                ["xterm", "-geometry", "80x24+100+100", "-e", "sh", "-c", script],
                ProcessInfo.processInfo.environment.merging(environment) { $1 })
            defer {
                kill(xterm, SIGTERM)
                waitpid(xterm, nil, 0)
            }
            var window = ""
            try wait("the terminal is there and listens") {
                let found = try CommandResult.of(
                    ["xdotool", "search", "--onlyvisible", "--class", "xterm"], environment: environment)
                window = found.output.split(separator: "\n").last.map(String.init) ?? ""
                return !window.isEmpty && access(seen, F_OK) == 0
            }
            let geometry = try CommandResult.of(
                ["xdotool", "getwindowgeometry", "--shell", window], environment: environment
            ).output
            let (x, y) = (try Self.value("X", geometry) + 200, try Self.value("Y", geometry) + 100)

            // A click lands where it was made.
            let target = try Canvas(browser).onPage(x, y)
            try browser.click(x: target.x, y: target.y)
            try wait("the pointer is there") {
                let place = try CommandResult.of(["xdotool", "getmouselocation", "--shell"], environment: environment)
                let at = (try Self.value("X", place.output), try Self.value("Y", place.output))
                // A page's pixel is more than one of the desktop's.
                return abs(at.0 - x) <= 2 && abs(at.1 - y) <= 2
            }
            // The window manager looks at a click before the terminal gets it, and text would overtake it.
            try wait("the click is in the file") { ProcFS.text(seen).contains("m") }
            // What is typed arrives, once and in order.
            try browser.type("Hello, viewer 1+1=2\u{E007}")
            try wait("the text is in the file") { ProcFS.text(seen).contains("\r") }
            let text = ProcFS.text(seen)
            let clicks = text.matches(of: /\u{1b}\[<0;[0-9]+;[0-9]+[Mm]/)
            #expect(clicks.map(\.output.last) == ["M", "m"], "\(text.debugDescription)")
            #expect(text.replacing(/\u{1b}\[<0;[0-9]+;[0-9]+[Mm]/, with: "") == "Hello, viewer 1+1=2\r")

            let shot = try browser.screenshot()
            #expect(shot.count > 5_000)
            if let file = ProcessInfo.processInfo.environment["WA_VIEWER_SCREENSHOT"] {
                try shot.write(to: URL(fileURLWithPath: file))
            }
        }
        #expect(try await daemon.stop() == 0)
    }

    /// Looks again and again at what nothing announces.
    private func wait(_ what: String, _ condition: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while try !condition() {
            guard ContinuousClock.now < deadline else { throw DeadlineExceeded(what: what) }
            poll(nil, 0, 20)
        }
    }

    private static func display(_ daemon: DaemonProcess) throws -> String {
        let status = try daemon.connect().request("GET", "/api/v0/desktop/status").json
        guard let port = status["vnc_port"] as? Int else { throw DeadlineExceeded(what: "a port in \(status)") }
        return ":\(port - 5900)"
    }

    /// `NAME=number` of xdotool's --shell.
    private static func value(_ name: String, _ text: String) throws -> Int {
        let line = text.split(separator: "\n").first { $0.hasPrefix("\(name)=") }
        guard let number = line.flatMap({ Int($0.dropFirst(name.count + 1)) }) else {
            throw DeadlineExceeded(what: "\(name) in \(text)")
        }
        return number
    }
}
