import AgentTestSupport
import Foundation
import Testing

/// The file commands with a daemon, as scripts use them.
@Suite(.sharedDaemon, .timeLimit(.minutes(5))) struct FileCommandTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// A script in which `$A` is the program under test.
    private func shell(_ script: String) throws -> CommandResult {
        try CommandResult.of(
            ["/bin/bash", "-c", "cd \(directory.path); \(script)"],
            environment: ["A": DaemonProcess.binary, "WORKSPACE_AGENT_HTTP_SOCKET": shared().daemon.socket])
    }

    @Test func bytesComeAsTheyWereWritten() throws {
        let result = try shell(
            """
            head -c 3000000 /dev/urandom > in; $A file write 'd/a b' < in > tag && $A file read 'd/a b' | cmp - in && \
            $A file read "$PWD/d/a b" --offset 2999990 | cmp - <(tail -c 10 in) && \
            $A file read 'd/a b' --offset 100 --limit 1000 | cmp - <(head -c 1100 in | tail -c 1000) && stat -c %s 'd/a b'
            : | $A file write empty > tag; $A file read empty; stat -c %s empty
            echo x | $A file write --mode 0750 script > tag; stat -c %a script
            echo y | $A file write --append script > tag; $A file read script
            """)
        #expect(result.output == "3000000\n0\n750\nx\ny\n")
        #expect(result.errors == "")
    }

    @Test func writesAreConditional() throws {
        let result = try shell(
            """
            echo a | $A file write --new f > tag; echo b | $A file write --new f; echo $?
            echo c | $A file write --if-match "$(cat tag)" f > next; cat f
            head -c 20000000 /dev/zero 2>/dev/null | $A file write --if-match "$(cat tag)" f; echo $?; cat f
            """)
        #expect(result.output == "1\nc\n1\nc\n")
        let lines = result.errors.split(separator: "\n")
        #expect(lines.count == 2 && lines.allSatisfy { $0.hasPrefix("workspace-agent: ") && $0.contains("/f") })
    }

    @Test func inputThatBreaksOffWritesNothing() throws {
        let result = try shell("echo old > f; $A file write f < .; echo $?; cat f; ls")
        #expect(result.output == "1\nold\nf\n")
        #expect(result.errors.hasPrefix("workspace-agent: cannot read standard input: "))
    }

    @Test func linesAreNumbered() throws {
        let result = try shell(
            """
            seq 10 20 > f; $A file read f --lines --from 3 --count 2; $A file read f --lines --from 100; echo $?
            $A file read none --lines; echo $?; $A file read none; echo $?; $A file read .; echo $?
            """)
        #expect(result.output == "3\t12\n4\t13\n1\n1\n1\n1\n")
        let path = directory.path
        #expect(
            result.errors == """
                workspace-agent: offset 100 is beyond the file length of 12 lines
                workspace-agent: file does not exist: \(path)/none
                workspace-agent: open \(path)/none: no such file or directory
                workspace-agent: open \(path): not a file

                """)
    }

    @Test func editsPrintTheirDiff() throws {
        let result = try shell(
            #"""
            printf 'a\nb\n' > f; $A file edit f --search b --replace c --dry-run; cat f
            $A file edit f --search b --replace c --no-diff; cat f
            echo '[{"insert_line": 2, "text": "d"}, {"search": "a\n", "replace": ""}]' | $A file edit f --edits -
            $A file edit f --search none --replace c; echo $?; cat f
            """#)
        let path = directory.path
        #expect(
            result.output == """
                --- \(path)/f
                +++ \(path)/f
                @@ -1,2 +1,2 @@
                 a
                -b
                +c
                a
                b
                a
                c
                --- \(path)/f
                +++ \(path)/f
                @@ -1,2 +1,2 @@
                -a
                 c
                +d
                1
                c
                d

                """)
        #expect(result.errors.hasPrefix("workspace-agent: edit \(path)/f: search string not found in file."))
        #expect(result.errors.split(separator: "\n").count == 1)
    }

    @Test func linesAreFound() throws {
        let result = try shell(
            #"""
            mkdir d; printf 'one\nTwo\nthree.\n' > d/f.txt; echo one > d/g.c; printf 'a\xff\n' > $'d/\xff'
            $A file grep 'T[a-z]+' d; $A file grep two d --ignore-case --context 1; $A file grep . d --fixed --glob '*.txt'
            $A file grep one d --json | tr -d '\n' | head -c 12; echo
            $A file grep none d; echo $?; $A file grep '(' d; echo $?; $A file grep one none; echo $?
            """#)
        let path = "\(directory.path)/d/f.txt"
        #expect(
            result.output == """
                \(path):2:Two
                \(path)-1-one
                \(path):2:Two
                \(path)-3-three.
                \(path):3:three.
                {"matches":[
                1
                2
                2

                """)
        let errors = result.errors.split(separator: "\n")
        #expect(errors.count == 2 && errors.allSatisfy { $0.hasPrefix("workspace-agent: ") }, "\(result.errors)")
    }

    @Test func filesAreFound() throws {
        let result = try shell(
            #"""
            mkdir -p d/e; touch -d @2 d/new.c; touch -d @1 $'d/e/\xff.c'; touch d/x.h
            $A file glob '*.c' d | od -An -c | tr -d ' \n'; echo; $A file glob '*.c' --limit 1; $A file glob '*.none'; echo $?
            """#)
        let path = directory.path
        #expect(
            result.output == """
                \(path)/d/new.c\\n\(path)/d/e/377.c\\n
                \(path)/d/new.c
                0

                """)
        #expect(result.errors.contains("--limit can help"), "\(result.errors)")
    }

    @Test func anAgentThatIsAwayIsOneLine() throws {
        for command in ["read f", "write f < /dev/null", "glob x", "edit f --search a --replace b"] {
            let result = try shell("$A file \(command) --http-socket /nonexistent/socket")
            #expect(result.code == 1)
            #expect(result.errors.split(separator: "\n").count == 1 && result.errors.contains("/nonexistent/socket"))
        }
        #expect(try shell("$A file grep x --http-socket /nonexistent/socket").code == 2)
    }
}
