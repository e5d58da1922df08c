import AgentTestSupport
import Foundation
import Glibc

/// A headless Chromium, driven through chromedriver (W3C WebDriver). Every call blocks.
final class Browser {
    private let directory: TemporaryDirectory
    private let driver: pid_t
    private let connection: RawConnection
    private var session = ""

    init(width: Int = 1400, height: Int = 900) throws {
        directory = try TemporaryDirectory()
        let log = "\(directory.path)/log"
        driver = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec chromedriver --port=0 >\(log) 2>&1"],
            ProcessInfo.processInfo.environment.merging(["HOME": directory.path, "TMPDIR": directory.path]) { $1 })
        guard let port = Self.port(log) else {
            kill(driver, SIGKILL)
            waitpid(driver, nil, 0)
            throw DeadlineExceeded(what: "chromedriver's port: \(ProcFS.text(log))")
        }
        connection = try RawConnection(port: port, timeout: 120)
        let arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--window-size=\(width),\(height)", "--user-data-dir=\(directory.path)/profile",
        ]
        let answer = try post(
            "/session",
            ["capabilities": ["alwaysMatch": ["browserName": "chrome", "goog:chromeOptions": ["args": arguments]]]])
        guard let id = (answer as? [String: Any])?["sessionId"] as? String else {
            throw DeadlineExceeded(what: "a session: \(answer ?? "nothing")")
        }
        session = "/session/\(id)"
    }

    deinit {
        // Ends Chromium, too.
        if !session.isEmpty { _ = try? connection.request("DELETE", session) }
        kill(driver, SIGTERM)
        waitpid(driver, nil, 0)
    }

    /// Looks for the line that tells the port; nothing announces that it is there.
    private static func port(_ log: String) -> Int? {
        for _ in 0..<3000 {
            let text = ProcFS.text(log)
            if let range = text.range(of: "successfully on port "), text.hasSuffix("\n") {
                return Int(text[range.upperBound...].prefix { $0.isNumber })
            }
            poll(nil, 0, 10)
        }
        return nil
    }

    private func post(_ path: String, _ body: [String: Any]) throws -> Any? {
        let response = try connection.request("POST", path, body: RawConnection.json(body))
        let value = response.json["value"]
        guard response.status == 200 else { throw DeadlineExceeded(what: "\(path): \(response.text)") }
        return value
    }

    func open(_ url: String) throws { _ = try post("\(session)/url", ["url": url]) }

    /// The value of a script's `return`.
    func run(_ script: String) throws -> Any? {
        try post("\(session)/execute/sync", ["script": script, "args": [Any]()])
    }

    /// Moves the pointer to a place of the page and clicks.
    func click(x: Int, y: Int) throws {
        try perform([
            "type": "pointer", "id": "mouse", "parameters": ["pointerType": "mouse"],
            "actions": [
                ["type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": "viewport"],
                ["type": "pointerDown", "button": 0], ["type": "pointerUp", "button": 0],
            ],
        ])
    }

    /// Presses and releases the key of each character; `\u{E007}` is Enter (WebDriver, 17.4.2).
    func type(_ text: String) throws {
        let keys = text.flatMap { key -> [[String: Any]] in
            [["type": "keyDown", "value": String(key)], ["type": "keyUp", "value": String(key)]]
        }
        try perform(["type": "key", "id": "keyboard", "actions": keys])
    }

    private func perform(_ source: [String: Any]) throws {
        _ = try post("\(session)/actions", ["actions": [source]])
    }

    func screenshot() throws -> Data {
        let response = try connection.request("GET", "\(session)/screenshot")
        guard let text = response.json["value"] as? String, let data = Data(base64Encoded: text) else {
            throw DeadlineExceeded(what: "a screenshot: \(response.status)")
        }
        return data
    }
}
