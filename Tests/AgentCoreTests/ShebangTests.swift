import Testing

@testable import AgentCore

@Suite struct ShebangTests {
    @Test(arguments: [
        ("#!/bin/bash\necho hi", ["/bin/bash"]),
        ("#!/bin/bash", ["/bin/bash"]),
        ("#!/usr/bin/env python3\nprint(1)", ["/usr/bin/env", "python3"]),
        ("#!/usr/bin/env -S bash -eu\n", ["/usr/bin/env", "-S", "bash", "-eu"]),
        ("#! /bin/sh  -e\t-u \n", ["/bin/sh", "-e", "-u"]),
        ("\n\n  #!/bin/bash -x\n  echo hi\n", ["/bin/bash", "-x"]),
        ("#!/bin/bash\r\necho hi\r\n", ["/bin/bash"]),
        ("#!bash\n", ["bash"]),
        ("#!/opt/é\n", ["/opt/é"]),
    ])
    func namesTheInterpreter(_ text: String, _ words: [String]) {
        #expect(Shebang(text)?.words == words)
        #expect(Shebang.command(for: text, shell: "/bin/zsh") == words + ["-c", text])
    }

    @Test(arguments: [
        "", "#", "#!", "#!\n/bin/bash", "#! \t\necho hi", "# !/bin/bash", "echo '#!/bin/bash'", "echo\n#!/bin/bash",
    ])
    func otherTextsAreTheShells(_ text: String) {
        #expect(Shebang(text) == nil)
        #expect(Shebang.command(for: text, shell: "/bin/zsh") == ["/bin/zsh", "-c", text])
    }
}
