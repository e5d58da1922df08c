import AgentTestSupport
import Foundation
import Testing

/// `make install`, `make uninstall` and `make deb`, with the program that the tests are built with.
@Suite("Packaging", .blocking, .serialized) struct PackagingTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path

    private func run(_ command: String, _ variables: [String: String] = [:]) throws -> String {
        let result = try CommandResult.of(
            ["sh", "-euc", "cd '\(Self.root)'; \(command)"],
            environment: ["BINARY": DaemonProcess.binary].merging(variables) { _, new in new })
        #expect(result.code == 0, "\(command): \(result.errors)")
        return result.output
    }

    private func make(_ target: String, _ directory: String, _ more: String = "") throws {
        _ = try run("make -s \(target) BINARY=\"$BINARY\" DESTDIR=\(directory) PREFIX=/usr \(more)")
    }

    /// Files and links, with their modes.
    private func tree(_ directory: String) throws -> [String] {
        try run("cd \(directory); find . -not -type d -printf '%m %P\\n' | sort").split(separator: "\n").map(
            String.init)
    }

    @Test func installAndUninstallAreInverse() throws {
        let directory = try TemporaryDirectory()
        let root = directory.path
        for path in ["usr/bin/other", "usr/share/man/man1/other.1", "usr/lib/systemd/user/other.service"] {
            _ = try run("install -D /dev/null \(root)/\(path)")
        }
        let before = try tree(root)
        try make("install", root, "CODER_LINK=yes")
        let added = try tree(root).filter { !before.contains($0) }
        #expect(
            added == [
                "644 usr/lib/systemd/system/workspace-agent@.service",
                "644 usr/lib/systemd/user/workspace-agent.service", "644 usr/lib/systemd/user/workspace-agent.socket",
                "644 usr/share/bash-completion/completions/workspace-agent",
                "644 usr/share/fish/vendor_completions.d/workspace-agent.fish",
                "644 usr/share/man/man1/workspace-agent.1.gz",
                "644 usr/share/zsh/vendor-completions/_workspace-agent", "755 usr/bin/workspace-agent",
                "777 usr/bin/coder",
            ])
        let version = try CommandResult.of(["\(root)/usr/bin/workspace-agent", "version"]).output
        #expect(version.hasPrefix("workspace-agent "))
        // What the systemd unit names is what was installed.
        #expect(try run("cat \(root)/usr/lib/systemd/*/*.service").contains("ExecStart=/usr/bin/workspace-agent agent"))
        #expect(try !run("grep -r @BINDIR@ \(root)/usr/lib || true").contains("@"))
        try make("install", root, "CODER_LINK=yes")
        try make("uninstall", root)
        #expect(try tree(root) == before)
    }

    @Test func theNameCoderIsTakenFromNoOtherProgram() throws {
        let directory = try TemporaryDirectory()
        let link = "\(directory.path)/usr/bin/coder"
        _ = try run("install -D /dev/null \(link)")
        let refused = try CommandResult.of(
            ["\(Self.root)/scripts/install.sh", "install"],
            environment: [
                "BINARY": DaemonProcess.binary, "DESTDIR": directory.path, "PREFIX": "/usr", "CODER_LINK": "yes",
            ])
        #expect(refused.code == 1 && refused.errors.contains("\(link) is there and is not ours"))
        #expect(try tree(directory.path).count == 1, "nothing is installed")
        try make("install", directory.path)
        try make("uninstall", directory.path)
        #expect(try tree(directory.path).count == 1, "it stays")
    }

    /// Every command and every flag that the program has.
    @Test func theManualPageNamesEverything() throws {
        let page = try run("scripts/manpage.py \"$BINARY\"")
        for text in ["workspace\\-agent agent", "workspace\\-agent sync start", "\\-\\-http\\-socket", "EXIT STATUS"] {
            #expect(page.contains(text), "\(text)")
        }
        // A renderer complains of what it does not understand.
        let shown = try CommandResult.of([
            "sh", "-c", "scripts/manpage.py \"$BINARY\" | groff -man -Tutf8 -ww 2>&1 >/dev/null",
        ])
        #expect(shown.output == "" || shown.output.contains("not found"))
    }

    @Test func thePackageHasWhatItShould() throws {
        let directory = try TemporaryDirectory()
        let fast = ["DEB_COMPRESSION": "none", "SOURCE_DATE_EPOCH": "1700000000"]
        _ = try run("scripts/deb.sh \(directory.path)/a", fast)
        _ = try run("scripts/deb.sh \(directory.path)/b", fast)
        let package = try run("ls \(directory.path)/a/*.deb").trimmingCharacters(in: .newlines)
        #expect(try run("cmp \(directory.path)/a/*.deb \(directory.path)/b/*.deb && echo same") == "same\n")

        func field(_ name: String) throws -> String { try run("dpkg-deb -f \(package) \(name)") }
        #expect(try field("Package") == "workspace-agent\n")
        #expect(try package.hasSuffix("workspace-agent_0.1.0-1_\(field("Architecture").dropLast()).deb"))
        let depends = try field("Depends")
        #expect(
            depends.contains("libc6 (>= 2.") && depends.contains("libstdc++6 (>= ") && depends.contains("zlib1g (>= "))
        // Each is loaded where it is needed, and not before.
        for library in ["sqlite", "git2", "vnc", "png", "xkb", "xcb", "ssh2", "re2"] {
            #expect(!depends.contains(library), "\(library)")
        }
        let recommends = try field("Recommends")
        for name in ["libgit2-", "libsqlite3-0, ", "git, ", "openssh-client", "ca-certificates"] {
            #expect(recommends.contains(name), "\(name)")
        }
        let suggests = try field("Suggests")
        for name in ["libssh2-1", "libvncclient1, ", "libpng16-16", "libxkbcommon0, ", "libxcb1, "] {
            #expect(suggests.contains(name), "\(name)")
        }

        let contents = try run("dpkg-deb -c \(package)")
        #expect(
            contents.split(separator: "\n").allSatisfy { $0.contains(" root/root ") && $0.contains(" 2023-11-14 ") })
        for line in [
            "-rwxr-xr-x root/root", "./usr/bin/workspace-agent\n", "./etc/default/workspace-agent\n",
            "./usr/lib/systemd/system/workspace-agent@.service\n", "./usr/lib/systemd/user/workspace-agent.socket\n",
            "./usr/share/man/man1/workspace-agent.1.gz\n", "./usr/share/doc/workspace-agent/copyright\n",
            "./usr/share/doc/workspace-agent/third-party.gz\n",
        ] {
            #expect(contents.contains(line), "\(line)")
        }
        #expect(!contents.contains("/coder"), "the name is another program's")
        #expect(try run("dpkg-deb -I \(package) conffiles") == "/etc/default/workspace-agent\n")

        // dpkg itself unpacks it, and its sums are right.
        let unpacked = "\(directory.path)/root"
        _ = try run("dpkg-deb -R \(package) \(unpacked); cd \(unpacked); md5sum --quiet -c DEBIAN/md5sums")
        // The licences of what is linked into it come along.
        let notices = try run("zcat \(unpacked)/usr/share/doc/workspace-agent/third-party.gz")
        for text in ["==== swift-nio/NOTICE.txt", "The BoringSSL Authors", "CNIOLLHTTP/LICENSE"] {
            #expect(notices.contains(text), "\(text)")
        }
        #expect(try CommandResult.of(["\(unpacked)/usr/bin/workspace-agent", "version"]).code == 0)
    }
}
