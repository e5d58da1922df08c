import AgentTestSupport
import Foundation
import Testing

/// A browser with the page of a daemon. Every call blocks.
final class PageVisit {
    let daemon: DaemonProcess
    let browser: Browser
    var page: String { "http://127.0.0.1:\(daemon.port)/ui" }

    init(_ daemon: DaemonProcess, mode: String? = nil, width: Int = 1400, height: Int = 900) throws {
        self.daemon = daemon
        browser = try Browser(width: width, height: height)
        let body = mode.map { ["mode": $0] } ?? [:]
        let answer = try daemon.connect().request("POST", "/api/v0/ui/sessions", body: RawConnection.json(body))
        let url = try #require(answer.json["url"] as? String, "\(answer.status) \(answer.text)")
        try browser.open(url)
        try browser.wait("the page knows the daemon", "document.getElementById('host')?.textContent !== ''")
    }

    /// Goes to a section, or to something in one.
    func show(_ parts: String...) throws {
        let hash = parts.map { $0.addingPercentEncoding(withAllowedCharacters: .alphanumerics.union(["-"])) ?? $0 }
        _ = try browser.run("location.hash = \"\(hash.joined(separator: "/"))\"")
    }

    /// Waits until the main part of the page shows a text.
    func wait(for text: String, in selector: String = "main", seconds: Int = 60) throws {
        try browser.wait(
            "\(selector) shows “\(text)”", seconds: seconds,
            "!!document.querySelector('\(selector)')?.textContent.includes(\(Self.quoted(text)))")
    }

    /// Clicks the button, or what looks like one, with this text.
    func press(_ text: String) throws {
        let script =
            "[...document.querySelectorAll('button, a.button')].find((b) => b.innerText === \(Self.quoted(text)))"
        try browser.wait("a button “\(text)”", "!!\(script) && !\(script).disabled")
        _ = try browser.run("\(script).click()")
    }

    /// Puts a text into a field, as typing does.
    func fill(_ selector: String, _ text: String) throws {
        _ = try browser.run(
            """
            const field = document.querySelector('\(selector)');
            field.value = \(Self.quoted(text));
            field.dispatchEvent(new Event('input', { bubbles: true }));
            """)
    }

    /// The page had no error, and asked no one but its daemon for anything.
    func expectQuiet(allowing allowed: [String] = []) throws {
        let errors = try browser.log("browser").filter { line in !allowed.contains { line.contains($0) } }
        #expect(errors.isEmpty)
        let hosts = try browser.log("performance").compactMap { message -> String? in
            let event = (try? JSONSerialization.jsonObject(with: Data(message.utf8))) as? [String: Any]
            guard let inner = event?["message"] as? [String: Any], let params = inner["params"] as? [String: Any],
                ["Network.requestWillBeSent", "Network.webSocketCreated"].contains(inner["method"] as? String ?? "")
            else { return nil }
            let request = params["request"] as? [String: Any]
            let url = URL(string: request?["url"] as? String ?? params["url"] as? String ?? "")
            // The browser's own pages, `data:` and `blob:` are no requests to a host.
            guard let url, let host = url.host, ["http", "https", "ws", "wss"].contains(url.scheme) else { return nil }
            return "\(host):\(url.port ?? 80)"
        }
        #expect(!hosts.isEmpty)
        #expect(Set(hosts) == ["127.0.0.1:\(daemon.port)"])
    }

    static func quoted(_ text: String) -> String {
        let json = RawConnection.json([text])
        return String(json.dropFirst().dropLast())
    }
}

/// Runs what blocks on a thread that may.
func blocking(_ body: @escaping @Sendable () throws -> Void) async throws {
    try await withTaskExecutorPreference(BlockingExecutor.shared) { try body() }
}
