import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import GitWatch

/// What another user may put in the place of a file that git reads must hold neither the worker nor git.
@Suite struct HostileFileTests {
    static let files = [
        ".git/index", ".git/config", ".git/packed-refs", ".git/shallow", ".git/commondir", ".git/info/exclude",
        ".git/info/attributes", ".git/info/grafts", ".git/objects/info/alternates", ".git/refs/heads/main",
        ".git/refs/replace/x", ".gitignore", ".gitattributes",
    ]

    /// The client gets an error with the file; the state before stays, and the next comes when it is mended.
    @Test(arguments: files) func aFIFOIsNotOpened(_ file: String) async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let scene = try Scene("mk r; echo 1 > a; mkdir .git/refs/replace; ci")
            let fixture = try WatcherFixture(environment: scene.environment)
            fixture.watcher.add(paths: [scene.root], for: fixture.chat)
            let reader = try fixture.open()
            try await eventually("watches, and the scan after them") {
                fixture.report.watches > 0 && fixture.report.scans >= 2
            }
            try scene.run("echo 2 > a; [ ! -e \(file) ] || mv \(file) ../kept; mkfifo \(file)")
            fixture.watcher.refresh(reader.session)
            try await eventually("the error", within: .seconds(40)) {
                reader.messages.contains {
                    $0.type == "error" && $0.message?.contains("\(scene.root)/\(file) is a named pipe") == true
                }
            }
            try scene.run("rm \(file); [ ! -e ../kept ] || mv ../kept \(file)")
            fixture.watcher.refresh(reader.session)
            try await eventually("the good state", within: .seconds(40)) {
                reader.diff(scene.root)?.contains("+2\n") == true
            }
            #expect(reader.latest(scene.root)?.removed == nil)
            await fixture.stop()
        }
    }

    /// A path in, or of, what is no regular file where git's files are is in no repository; the look does not wait.
    @Test func findingARootNeverWaits() throws {
        let scene = try Scene("mk r; echo 1 > a; ci; mkdir x y; mkfifo x/.git; mkdir y/.git; mkfifo y/.git/HEAD")
        try scene.run("cd y/.git; mkdir objects refs; mkfifo commondir")
        #expect(Discovery.root(of: "\(scene.root)/x/f") == scene.root)
        #expect(Discovery.workTree(at: "\(scene.root)/y") == nil)
        try scene.run("rm y/.git/commondir; ln -s ../../../f y/.git/commondir; mkfifo ../f")
        #expect(Discovery.workTree(at: "\(scene.root)/y") == nil)
        #expect(Discovery.smallFile("\(scene.directory.path)/f") == nil)
        #expect(Discovery.smallFile("/dev/zero") == nil)
    }
}
