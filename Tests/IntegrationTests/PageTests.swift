import AgentTestSupport
import Foundation
import Glibc
import Testing

/// The page at /ui in a real browser, over the built daemon.
@Suite(.serialized, .blocking) struct PageTests {
    @Test(.timeLimit(.minutes(10))) func sectionsShowWhatIs() async throws {
        let directory = try TemporaryDirectory()
        let project = "\(directory.path)/project"
        let daemon = try DaemonProcess(tcp: true, arguments: ["--directory", project], directory: directory)
        try Self.makeProject(project)
        for line in ["sync start base", "sync complete base", "sync want app base extra"] {
            let words = [DaemonProcess.binary, "exp"] + line.split(separator: " ").map(String.init)
            let result = try CommandResult.of(
                words, environment: ["CODER_AGENT_SOCKET_PATH": "\(daemon.directory.path)/agent.sock"])
            #expect(result.code == 0, "\(result)")
        }
        try await blocking {
            let visit = try PageVisit(daemon)
            _ = try daemon.connect().run("echo from the start")
            try visit.wait(for: "Standalone")
            try visit.wait(for: "1 known")
            try visit.browser.wait("a plot has a line", "!!document.querySelector('.plot-line')?.getAttribute('d')")

            try visit.show("processes")
            try visit.wait(for: "echo from the start", in: ".rows")
            try visit.show("units")
            try visit.wait(for: "1 completed", in: ".bar")
            try visit.browser.wait(
                "three nodes and two edges",
                """
                document.querySelectorAll('.graph .node').length === 3 && document.querySelectorAll('.graph .edge').length === 2
                """)
            try visit.wait(for: "base", in: ".timeline")
            try visit.show("changes")
            try visit.wait(for: "+changed", in: ".diff-line.added")
            try visit.show("files")
            try visit.wait(for: "a.txt", in: ".tree")
            try visit.show("files", "\(project)/a.txt")
            try visit.wait(for: "changed", in: "pre")
            try visit.show("desktop")
            try visit.wait(for: "The desktop does not run.")
            try visit.show("scripts")
            try visit.wait(for: "No scripts.")
            try visit.show("log")
            try visit.wait(for: "agent socket is listening", in: ".log")
            try visit.expectQuiet()
        }
        #expect(try await daemon.stop() == 0)
    }

    /// A repository with a change.
    private static func makeProject(_ path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        let git = ["git", "-C", path, "-c", "user.name=A", "-c", "user.email=a@example.com"]
        try Data("as it was\n".utf8).write(to: URL(fileURLWithPath: "\(path)/a.txt"))
        for words in [["init", "-q"], ["add", "-A"], ["commit", "-qm", "One"]] {
            #expect(try CommandResult.of(git + words).code == 0)
        }
        try Data("changed\n".utf8).write(to: URL(fileURLWithPath: "\(path)/a.txt"))
    }

    @Test(.timeLimit(.minutes(10))) func aThousandProcessesAreARowEachInSight() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let connection = try daemon.connect()
            for number in 1...1000 { _ = try connection.start(": number \(number) of many") }
            let visit = try PageVisit(daemon)
            try visit.show("processes")
            try visit.wait(for: "1000 of 1,000 processes", in: ".bar")
            try visit.browser.wait("rows", "document.querySelectorAll('.row').length > 5")
            #expect(try visit.browser.run("return document.querySelectorAll('.row').length < 60") as? Bool == true)
            // The last one is a key away.
            _ = try visit.browser.run("document.querySelector('.row').focus()")
            try visit.browser.type("\u{E010}")
            try visit.browser.wait("the last row has the focus", "document.activeElement.dataset.index === '999'")
            try visit.fill("input[type=search]", "number 77 ")
            try visit.wait(for: "1 of 1,000 processes", in: ".bar")
            try visit.expectQuiet()
        }
    }

    @Test(.timeLimit(.minutes(10))) func tenMegabytesOfOutputAreBounded() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            // Held back until the page follows it.
            let id = try daemon.connect().start(
                "read go; seq -f '%07g filler that makes the line longer' 250000; echo done", ["stdin": true])
            try visit.show("processes", id)
            try visit.browser.wait("an input", "!!document.querySelector('.input-line input')")
            // The most text that one frame adds: a page that draws all at once stands still meanwhile.
            _ = try visit.browser.run(
                """
                window.most = 0;
                new MutationObserver((records) => {
                    const added = records.flatMap((record) => [...record.addedNodes]).filter((node) => node.className === "line");
                    window.most = Math.max(window.most, added.reduce((sum, line) => sum + line.textContent.length, 0));
                }).observe(document.querySelector('.output'), { childList: true, subtree: true });
                document.querySelector('.input-line input').value = 'go';
                document.querySelector('.input-line').requestSubmit();
                """)
            try visit.wait(for: "exit 0", in: ".output", seconds: 120)
            let length = try visit.browser.run("return document.querySelector('.output').textContent.length") as? Int
            #expect((100_000...1_300_000).contains(length ?? 0))
            let most = try visit.browser.run("return window.most") as? Int
            #expect((1...70_000).contains(most ?? 0), "\(most ?? 0) characters in one frame")
            try visit.wait(for: "0250000 filler", in: ".output")
            try visit.press("Show earlier output")
            try visit.wait(for: "Follow the output")
            try visit.expectQuiet()
        }
    }

    @Test(.timeLimit(.minutes(10))) func outputIsTextAndNothingElse() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            let command =
                #"printf '<img src=x onerror="window.hit=1"><script>hit=1</script> \033[31mred\033[0m \033]0;title\007end\n'"#
            let id = try daemon.connect().start(command)
            try visit.show("processes", id)
            try visit.wait(for: "<script>hit=1</script> red end", in: ".output")
            #expect(
                try visit.browser.run("return document.querySelectorAll('.output img, .output script').length") as? Int
                    == 0)
            #expect(try visit.browser.run("return window.hit === undefined") as? Bool == true)
            try visit.browser.wait("a colour", "document.querySelector('.output span')?.textContent === 'red'")
            try visit.expectQuiet()
        }
    }

    @Test(.timeLimit(.minutes(10))) func aTerminalIsTypedInto() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            try visit.show("processes", "new")
            try visit.browser.wait("the form", "!!document.querySelector('.form textarea')")
            try visit.fill(".form textarea", "PS1='ready> ' sh -i")
            try visit.press("Start")
            try visit.wait(for: "ready>", in: ".term")
            try visit.browser.type("echo $((6*7)) $(tput cols)\u{E007}")
            try visit.wait(for: "42 ", in: ".term-screen")
            // The program has the size that the page shows.
            try visit.browser.wait(
                "the size",
                """
                (() => { const t = current.view.update && document.querySelector('.term-screen').innerText;
                return Number(/42 (\\d+)/.exec(t)?.[1]) > 80; })()
                """)
            try visit.browser.type("exit\u{E007}")
            try visit.wait(for: "The process has ended: exit 0.")
            try visit.expectQuiet()
        }
    }
}
