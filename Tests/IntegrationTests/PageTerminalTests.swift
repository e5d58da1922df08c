import AgentTestSupport
import Foundation
import Testing

/// The page's terminal, fed with what programs write, in a browser.
@Suite(.serialized, .blocking) struct PageTerminalTests {
    /// What is written to a terminal of 5 rows and 20 columns, and what is on it then.
    private static let screens: [(name: String, bytes: String, screen: String)] = [
        ("lines", "one\r\ntwo\tx", "one\ntwo     x"),
        ("wrap", "abcdefghijklmnopqrstuvw", "abcdefghijklmnopqrst\nuvw"),
        ("no wrap", "\u{1b}[?7labcdefghijklmnopqrstuvw", "abcdefghijklmnopqrsw"),
        ("wrap waits for the next character", "abcdefghijklmnopqrst\r\nx", "abcdefghijklmnopqrst\nx"),
        ("wide characters", "日本x\u{1b}[1;2Hy", " y本x"),
        ("a wide character that does not fit", "abcdefghijklmnopqrs日", "abcdefghijklmnopqrs\n日"),
        ("combining marks", "e\u{301}x", "e\u{301}x"),
        ("cursor", "\u{1b}[2;3Ha\u{1b}[Ab\u{1b}[5Dc\u{1b}[2Bd", "c  b\n  a\n d"),
        ("erase in line", "abcdef\u{1b}[3D\u{1b}[K\u{1b}[1G\u{1b}[1K", " bc"),
        ("erase in display", "a\r\nb\r\nc\u{1b}[2;1H\u{1b}[Jd", "a\nd"),
        ("insert and delete", "abcdef\u{1b}[1;3H\u{1b}[2P\u{1b}[1@x", "abxef"),
        ("insert mode", "abc\u{1b}[1;2H\u{1b}[4hXY\u{1b}[4lZ", "aXYZc"),
        ("insert and delete lines", "a\r\nb\r\nc\u{1b}[2;1H\u{1b}[Lx\u{1b}[1;1H\u{1b}[M", "x\nb\nc"),
        ("scroll region", "a\r\nb\r\nc\r\nd\u{1b}[2;3r\u{1b}[3;1H\nx", "a\nc\nx\nd"),
        ("reverse index", "a\r\nb\u{1b}[1;1H\u{1b}Mx", "x\na\nb"),
        ("origin mode", "\u{1b}[2;4r\u{1b}[?6h\u{1b}[1;1Hx\u{1b}[9;1Hy", "\nx\n\ny"),
        ("scrolling", "1\r\n2\r\n3\r\n4\r\n5\r\n6", "2\n3\n4\n5\n6"),
        ("alternate screen", "main\u{1b}[?1049h\u{1b}[Hother\u{1b}[?1049l!", "main!"),
        ("line drawing", "\u{1b}(0lqk\u{1b}(B x", "┌─┐ x"),
        ("repeat", "ab\u{1b}[3b", "abbbb"),
        ("tabs", "\u{1b}[3g\u{1b}[5G\u{1b}H\r\tx", "    x"),
        ("save and restore", "ab\u{1b}7\u{1b}[3;3Hc\u{1b}8d", "abd\n\n  c"),
        ("strings are not shown", "a\u{1b}]0;title\u{7}b\u{1b}P1$r\u{1b}\\c\u{1b}_x\u{1b}\\d", "abcd"),
        ("unknown sequences are not shown", "a\u{1b}[?9999h\u{1b}[99z\u{1b}%Gb", "ab"),
        ("a control within a sequence", "ab\u{1b}[1\r;5Hx", "ab  x"),
        ("soft reset", "\u{1b}[4h\u{1b}[?7l\u{1b}[!pabc\u{1b}[1;1Hx", "xbc"),
        // Recorded of `dialog`-like drawing with ncurses: clear, colours, boxes by cursor addressing.
        (
            "ncurses",
            "\u{1b}[?1049h\u{1b}[1;5r\u{1b}(B\u{1b}[m\u{1b}[4l\u{1b}[?7h\u{1b}[H\u{1b}[2J\u{1b}[1;3H\u{1b}[1m\u{1b}[34m\u{1b}[47mOK"
                + "\u{1b}[39;49m\u{1b}(B\u{1b}[m\u{1b}[3;2H\u{1b}[7mYes\u{1b}[27m No\u{1b}[5d\u{1b}[1Gq\u{1b}[3X",
            "  OK\n\n Yes No\n\nq"
        ),
    ]

    @Test(.timeLimit(.minutes(10))) func programsWriteToIt() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            for (name, bytes, screen) in Self.screens {
                // All at once, and byte by byte: a sequence or a character may come in pieces.
                for step in [1 << 20, 1] {
                    let shown = try visit.browser.run(
                        """
                        const bytes = new TextEncoder().encode(\(PageVisit.quoted(bytes)));
                        const terminal = new Terminal(5, 20);
                        for (let i = 0; i < bytes.length; i += \(step)) terminal.feed(bytes.slice(i, i + \(step)));
                        return terminal.text;
                        """)
                    #expect(shown as? String == screen, "\(name), by \(step)")
                }
            }
        }
    }

    @Test(.timeLimit(.minutes(10))) func itAnswersAndColours() async throws {
        let daemon = try DaemonProcess(tcp: true)
        try await blocking {
            let visit = try PageVisit(daemon)
            let answers =
                try visit.browser.run(
                    #"""
                    let said = "", title = "";
                    const terminal = new Terminal(5, 20, { reply: (text) => { said += text; }, onTitle: (text) => { title = text; } });
                    terminal.feed(new TextEncoder().encode("ab\x1b[6n\x1b[5n\x1b[c\x1b]2;A title\x1b\\\x1b[?1h\x1b[?2004h\x1b="));
                    return [said, title, terminalKey({ key: "ArrowUp" }, terminal.modes), terminalKey({ key: "c", ctrlKey: true }, terminal.modes),
                        terminalKey({ key: "F5", shiftKey: true }, terminal.modes), pastedText("x\ny\x1b[201~", terminal.modes)];
                    """#) as? [String]
            #expect(
                answers == [
                    "\u{1b}[1;3R\u{1b}[0n\u{1b}[?62;22c", "A title", "\u{1b}OA", "\u{3}", "\u{1b}[15;2~",
                    "\u{1b}[200~x\ry[201~\u{1b}[201~",
                ])
            let styles =
                try visit.browser.run(
                    #"""
                    const terminal = new Terminal(5, 20);
                    terminal.feed(new TextEncoder().encode("\x1b[1;31ma\x1b[38;5;196mb\x1b[48;2;1;2;3mc\x1b[38:2::4:5:6md\x1b[mf"));
                    return terminal.grid.lines[0].styles.slice(0, 5).map((s) => [s.fg, s.bg, s.flags].join());
                    """#) as? [String]
            #expect(styles == ["1,,1", "196,,1", "196,#010203,1", "#040506,#010203,1", ",,0"])
            // A resize keeps the line of the cursor.
            let resized =
                try visit.browser.run(
                    #"""
                    const terminal = new Terminal(5, 20);
                    terminal.feed(new TextEncoder().encode("1\r\n2\r\n3\r\n4\r\n5"));
                    terminal.resize(3, 10);
                    return [terminal.text, terminal.scrollback.map((line) => line.text).join()];
                    """#) as? [String]
            #expect(resized == ["3\n4\n5", "1,2"])
        }
    }
}
