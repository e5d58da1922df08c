import AgentTestSupport
import CLibgit2
import Foundation
import Glibc
import Testing

@testable import GitWatch

/// The worker's end: by a fault of libgit2, and when no client needs it any more.
@Suite struct WorkerEndTests {
    /// Why libgit2 has a process of its own, and why it is never asked for the content of a work tree file.
    @Test(.enabled(if: LIBGIT2_VERSION.hasPrefix("1.5."))) func libgit2AbortsOverAnEmptyFile() async throws {
        let scene = try Scene(
            "mk r; git config core.autocrlf true; echo '* text=auto eol=crlf' > .gitattributes; echo 1 > a; ci; : > a")
        await #expect(processExitsWith: .signal(SIGABRT)) { [root = scene.root as String] in
            let library = try #require(Libgit.load().library)
            var repository: OpaquePointer?
            try library.check(library.api.git_repository_open(&repository, root), "open")
            var index: OpaquePointer?
            try library.check(library.api.git_repository_index(&index, repository), "index")
            var diff: OpaquePointer?
            let handle = try #require(repository)
            try library.check(library.api.git_diff_index_to_workdir(&diff, handle, index, nil), "diff")
            typealias Print =
                @convention(c) (OpaquePointer?, UInt32, git_diff_line_cb?, UnsafeMutableRawPointer?) -> Int32
            let symbol = try #require(dlsym(dlopen("libgit2.so.\(LIBGIT2_SOVERSION)", RTLD_NOW), "git_diff_print"))
            _ = unsafeBitCast(symbol, to: Print.self)(
                diff, GIT_DIFF_FORMAT_PATCH.rawValue, { _, _, _, _ in 0 }, nil)
        }
        // Our own way over the same file.
        let tree = try #require(Discovery.workTree(at: scene.root))
        let ours = try TestLibgit.with { try PlainRepository($0, tree, command: scene.command).snapshot().diff }
        #expect(ours == (try scene.oracle()))
    }

    /// The worker dies in the middle of libgit2's scan: the repository goes to the git program for good.
    @Test(arguments: [SIGABRT, SIGSEGV]) func aCrashInAScanSendsTheRepositoryToTheCLI(signal: Int32) async throws {
        let scene = try Scene(
            """
            mkdir bin
            cat > bin/git <<END
            #!/bin/sh
            echo "\\$*" >> "$HOME/calls"
            while [ -e "$HOME/hold" ]; do sleep 0.02; done
            exec $(command -v git) "\\$@"
            END
            chmod +x bin/git
            mk r; echo 1 > a; ci; echo 2 > a
            """)
        var environment = scene.environment
        environment["PATH"] = "\(scene.directory.path)/bin:/usr/local/bin:/usr/bin:/bin"
        let home = "\(scene.directory.path)/home"
        func calls() -> [Substring] { ProcFS.text("\(home)/calls").split(separator: "\n") }
        let fixture = try WatcherFixture(environment: environment)
        fixture.watcher.add(paths: [scene.root], for: fixture.chat)
        let reader = try fixture.open()
        try await eventually("the first snapshot") { reader.diff(scene.root)?.contains("+2") == true }
        try await eventually("watches and the scan after them") {
            fixture.report.watches > 0 && fixture.report.scans >= 2
        }
        #expect(!calls().contains { $0.contains("diff --full-index") }, "libgit2 reads it")
        let worker = fixture.report.workerPID
        let before = calls().count
        close(open("\(home)/hold", O_WRONLY | O_CREAT, 0o600))
        fixture.watcher.refresh(reader.session)
        // git has been asked for the list, so libgit2's turn has begun; its main thread has said so as
        // soon as it rests.
        try await eventually("a scan hangs") { calls().count > before && ProcFS.state(worker) == "S" }
        kill(worker, signal)
        unlink("\(home)/hold")
        try await eventually("the end is noticed") { fixture.report.crashes == 1 }
        for number in 3..<6 {
            try scene.run("echo \(number) > a")
            try await eventually("an edit") { reader.diff(scene.root)?.contains("+\(number)\n") == true }
        }
        #expect(reader.diff(scene.root) == String(decoding: try scene.oracle(), as: UTF8.self))
        #expect(calls().contains { $0.contains("diff --full-index") }, "the git program reads it")
        #expect(fixture.report.workerPID != worker && fixture.report.crashes == 1)
        #expect(reader.messages.allSatisfy { $0.type == "changes" })
        await fixture.stop()
    }

    /// In a process of its own, where every thread and descriptor is the watcher's.
    @Test func nothingIsLeftAfterTheLastConnection() async throws {
        let scene = try Scene("mk r; echo 1 > a; ci; echo 2 > a")
        await #expect(processExitsWith: .success) {
            [root = scene.root as String, environment = scene.environment as [String: String]] in
            let fixture = try WatcherFixture(environment: environment, idleTime: .milliseconds(300))
            fixture.watcher.add(paths: [root], for: fixture.chat)
            #expect(!Self.threads().contains("git-watch"), "no connection, no thread")
            for _ in 0..<2 {
                let reader = try fixture.open()
                try await eventually("the diff") { reader.diff(root)?.contains("+2") == true }
                try await eventually("watches") { fixture.report.watches > 0 }
                #expect(Self.threads().contains("git-watch") && Self.links().contains("anon_inode:inotify"))
                let worker = fixture.report.workerPID
                #expect(worker > 0 && ProcFS.children(of: getpid()).map(\.pid) == [worker])
                fixture.watcher.detach(reader.session)
                try await eventually("no thread") { !Self.threads().contains("git-watch") }
                #expect(ProcFS.children(of: getpid()).isEmpty, "no process, no zombie")
                #expect(!Self.links().contains("anon_inode:inotify"))
                #expect(fixture.report.workerPID == 0 && fixture.report.watches == 0)
            }
            await fixture.stop()
        }
    }

    private static func threads() -> [String] {
        names("/proc/self/task").map { ProcFS.text("/proc/self/task/\($0)/comm").filter { $0 != "\n" } }
    }

    private static func links() -> [String] {
        names("/proc/self/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        }
    }

    private static func names(_ path: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
    }
}
