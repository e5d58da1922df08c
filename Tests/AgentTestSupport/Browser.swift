import Foundation
import Glibc

/// A headless Chromium, driven through chromedriver (W3C WebDriver). Every call blocks.
public final class Browser {
    private let directory: TemporaryDirectory
    private let driver: pid_t
    private let connection: RawConnection
    private var session = ""

    /// A window of this size in pixels.
    /// - Parameters:
    ///   - wrapper: a program and arguments in front of chromedriver (`ip netns exec …`).
    ///   - host: the IPv4 address that it is at then.
    public init(
        width: Int = 1400, height: Int = 900, wrapper: [String] = [], host: String = "127.0.0.1"
    ) throws {
        let directory = try TemporaryDirectory()
        self.directory = directory
        let log = "\(directory.path)/log"
        let access = wrapper.isEmpty ? "" : "--allowed-ips= --allowed-origins='*'"
        func start() throws -> pid_t {
            try DaemonProcess.spawn(
                wrapper + ["/bin/sh", "-c", "exec chromedriver --port=0 \(access) >\(log) 2>&1"],
                ProcessInfo.processInfo.environment.merging(["HOME": directory.path, "TMPDIR": directory.path]) { $1 })
        }
        var driver = try start()
        var port = Self.port(log)
        // It takes a port that is free with IPv6, and ends where that is taken with IPv4.
        while port == nil, ProcFS.text(log).contains("port not available") {
            waitpid(driver, nil, 0)
            unlink(log)
            driver = try start()
            port = Self.port(log)
        }
        self.driver = driver
        guard let port else {
            kill(driver, SIGKILL)
            waitpid(driver, nil, 0)
            throw DeadlineExceeded(what: "chromedriver's port: \(ProcFS.text(log))")
        }
        connection = try RawConnection(host: host, port: port, timeout: 120)
        let arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--window-size=\(width),\(height)", "--user-data-dir=\(directory.path)/profile",
        ]
        let answer = try post(
            "/session",
            [
                "capabilities": [
                    "alwaysMatch": [
                        "browserName": "chrome", "goog:chromeOptions": ["args": arguments],
                        "goog:loggingPrefs": ["browser": "ALL", "performance": "ALL"],
                    ]
                ]
            ])
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
            if text.hasSuffix("Exiting...\n") { return nil }
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

    /// Goes to an address, and waits until it is loaded.
    public func open(_ url: String) throws { _ = try post("\(session)/url", ["url": url]) }

    /// The value of a script's `return`.
    public func run(_ script: String) throws -> Any? {
        try post("\(session)/execute/sync", ["script": script, "args": [Any]()])
    }

    /// Looks again and again at a script's value, which nothing announces, until it is true.
    public func wait(_ what: String, seconds: Int = 60, _ script: String) throws {
        let deadline = ContinuousClock.now + .seconds(seconds)
        while try run("return \(script)") as? Bool != true {
            guard ContinuousClock.now < deadline else {
                let text = try run("return document.body.innerText.slice(0, 2000)") as? String
                throw DeadlineExceeded(what: "\(what); the page shows: \(text ?? "nothing")")
            }
            poll(nil, 0, 20)
        }
    }

    /// Messages since the last call: `browser` is the console, `performance` what the network did, as JSON.
    public func log(_ kind: String) throws -> [String] {
        let entries = try post("\(session)/se/log", ["type": kind]) as? [[String: Any]] ?? []
        return entries.compactMap { $0["message"] as? String }
    }

    /// Moves the pointer to a place of the page and clicks.
    public func click(x: Int, y: Int) throws {
        try perform([
            "type": "pointer", "id": "mouse", "parameters": ["pointerType": "mouse"],
            "actions": [
                ["type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": "viewport"],
                ["type": "pointerDown", "button": 0], ["type": "pointerUp", "button": 0],
            ],
        ])
    }

    /// Presses and releases the key of each character; `\u{E007}` is Enter (WebDriver, 17.4.2).
    public func type(_ text: String) throws {
        let keys = text.flatMap { key -> [[String: Any]] in
            [["type": "keyDown", "value": String(key)], ["type": "keyUp", "value": String(key)]]
        }
        try perform(["type": "key", "id": "keyboard", "actions": keys])
    }

    private func perform(_ source: [String: Any]) throws {
        _ = try post("\(session)/actions", ["actions": [source]])
    }

    /// What the window shows, as PNG.
    public func screenshot() throws -> Data {
        let response = try connection.request("GET", "\(session)/screenshot")
        guard let text = response.json["value"] as? String, let data = Data(base64Encoded: text) else {
            throw DeadlineExceeded(what: "a screenshot: \(response.status)")
        }
        return data
    }
}
