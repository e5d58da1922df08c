import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The page when a file, the session or the daemon is not as it was.
@Suite(.serialized, .blocking) struct PageLifeTests {
    @Test(.timeLimit(.minutes(10))) func anEditOfAFileThatChangedIsAConflict() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let file = "\(daemon.directory.path)/note.txt"
        let url = URL(fileURLWithPath: file)
        try Data("one\r\ntwo\r\n".utf8).write(to: url)
        try await blocking {
            let visit = try PageVisit(daemon)
            try visit.show("files", file)
            try visit.press("Edit")
            try visit.browser.wait("the editor", "!!document.querySelector('textarea.editor')")
            try visit.fill("textarea.editor", "one\nand two\n")
            try visit.press("Save")
            try visit.wait(for: "Saved at")
            // Line endings stay as they were.
            #expect(ProcFS.text(file) == "one\r\nand two\r\n")

            try Data("theirs\n".utf8).write(to: url)
            try visit.fill("textarea.editor", "mine\n")
            try visit.press("Save")
            try visit.wait(for: "changed by someone else")
            #expect(ProcFS.text(file) == "theirs\n")
            try visit.press("Save over it")
            try visit.browser.wait("it is saved", "!document.querySelector('.conflict')")
            #expect(ProcFS.text(file) == "mine\r\n")
            // The refusal is in the browser's console.
            try visit.expectQuiet(allowing: ["412"])
        }
    }

    @Test(.timeLimit(.minutes(10))) func whyTheDesktopDoesNotStart() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            try visit.show("desktop")
            try visit.wait(for: "The desktop does not run.")
            try visit.browser.wait("no problem yet", "document.querySelector('.problem').textContent === ''")
            try visit.press("Start the desktop")
            try visit.wait(
                for: "the last start failed: Failed to start desktop session: portabledesktop was found neither",
                in: ".problem")
        }
    }

    @Test(.timeLimit(.minutes(10))) func aRestartIsSaidAndSurvived() async throws {
        let first = try DaemonProcess(tcp: true)
        let (directory, port) = (first.directory, first.port)
        let id = try first.connect().start("echo before; sleep 1000")
        let visit = try PageVisit(first)
        try visit.show("processes", id)
        try visit.wait(for: "before", in: ".output")
        #expect(try await first.stop() == 0)
        try visit.wait(for: "The daemon does not answer.", in: "#banners")

        let second = try DaemonProcess(arguments: ["--http-address", "127.0.0.1:\(port)"], directory: directory)
        try visit.wait(for: "The daemon was restarted", in: "#banners")
        try visit.browser.wait("it is no longer away", "!document.querySelector('[data-name=away]')")
        try visit.wait(for: "no longer knows this process")
        _ = try second.connect().run("echo after the restart")
        try visit.show("processes")
        try visit.wait(for: "echo after the restart", in: ".rows")
        #expect(try await second.stop() == 0)
    }

    @Test(.timeLimit(.minutes(10))) func aReadOnlySessionHasNoControls() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let file = "\(daemon.directory.path)/note.txt"
        try Data("to read\n".utf8).write(to: URL(fileURLWithPath: file))
        try await blocking {
            let id = try daemon.connect().start("echo seen; sleep 1000", ["pty": ["rows": 24, "cols": 80]])
            let visit = try PageVisit(daemon, mode: "read-only")
            try visit.wait(for: "read-only", in: "header")
            try visit.show("processes", id)
            try visit.wait(for: "seen", in: ".output")
            for section in ["overview", "processes", "units", "changes", "files", "desktop", "scripts", "log"] {
                try visit.show(section)
                try visit.browser.wait(section, "document.title.toLowerCase().startsWith('\(section)')")
                let buttons = try visit.browser.run(
                    """
                    return [...document.querySelectorAll('main button, main a.button')].map((b) => b.innerText)
                        .filter((t) => /start|send|new|edit|rename|delete|save/i.test(t)).join();
                    """)
                #expect(buttons as? String == "")
            }
            try visit.show("files", file)
            try visit.wait(for: "to read", in: "pre")
            try visit.show("desktop")
            try visit.wait(for: "A read-only session does not show the desktop")
            try visit.expectQuiet()
        }
    }

    @Test(.timeLimit(.minutes(10))) func anEndedSessionSaysHowToGetIn() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            try visit.wait(for: "End this session", in: "main")
            _ = try visit.browser.run("document.getElementById('end-session').click()")
            try visit.wait(for: "workspace-agent ui", in: "#banners")
        }
    }

    /// A web page among a repository's files, or in what a process wrote, must not run with the session of ours.
    @Test(.timeLimit(.minutes(10))) func aFileThatIsAWebPageRunsNothing() async throws {
        let daemon = try DaemonProcess(tcp: true)
        let file = "\(daemon.directory.path)/page.html"
        let text = "<!doctype html><title>x</title><script>localStorage.ran = 'yes'</script>"
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        let read = try daemon.connect().request("GET", "/api/v0/read-file?path=\(file)")
        #expect(read.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'")
        #expect(read.headers["x-content-type-options"] == "nosniff")
        let id = try daemon.connect().start("cat \(file)")
        _ = try daemon.connect().finish(id)
        try await blocking {
            let visit = try PageVisit(daemon)
            let origin = "http://127.0.0.1:\(daemon.port)"
            for path in ["/api/v0/read-file?path=\(file)", "/api/v0/processes/\(id)/output/raw"] {
                try visit.browser.open(origin + path)
                try visit.browser.open("\(origin)/ui")
                #expect(try visit.browser.run("return localStorage.ran ?? 'no'") as? String == "no", "\(path)")
            }
        }
    }
}
