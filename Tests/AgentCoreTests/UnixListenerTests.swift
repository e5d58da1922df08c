import AgentCore
import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Testing

@Suite struct UnixListenerTests {
    private func mode(_ path: String) -> mode_t {
        var info = stat()
        return lstat(path, &info) == 0 ? info.st_mode & 0o777 : 0
    }

    @Test func privateSocketInAPrivateDirectory() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/a/b/s"
        let old = umask(0)
        let listener = try UnixListener.bind(path: path)
        umask(old)
        #expect(mode(path) == 0o600)
        #expect(mode("\(directory.path)/a/b") == 0o700)
        #expect(wa_unix_probe(path) == 0)
        listener.remove()
        #expect(access(path, F_OK) != 0)
        close(listener.descriptor)
    }

    @Test func widerModeIsExact() throws {
        let directory = try TemporaryDirectory()
        let listener = try UnixListener.bind(path: "\(directory.path)/s", mode: 0o666)
        #expect(mode(listener.path) == 0o666)
        close(listener.descriptor)
    }

    @Test func aLiveSocketIsLeftAlone() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/s"
        let first = try UnixListener.bind(path: path)
        let error = #expect(throws: CoreError.self) { try UnixListener.bind(path: path) }
        #expect(error?.code == .socketInUse)
        #expect(
            error?.message == "process \(getpid()) of uid \(geteuid()) already listens on \(path); "
                + "stop it or choose another path")
        #expect(wa_unix_probe(path) == 0)
        close(first.descriptor)
    }

    /// Closes the socket of a path. Until other tests' children have executed, they hold it, too.
    private func abandon(_ listener: UnixListener) async throws {
        close(listener.descriptor)
        try await eventually("no process listens") { wa_unix_probe(listener.path) == -ECONNREFUSED }
    }

    @Test func aStaleSocketIsReplaced() async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/s"
        try await abandon(try UnixListener.bind(path: path))
        let second = try UnixListener.bind(path: path)
        #expect(wa_unix_probe(path) == 0)
        close(second.descriptor)
    }

    @Test func aFileIsNeverDeleted() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/s"
        try Data("precious".utf8).write(to: URL(fileURLWithPath: path))
        #expect(throws: CoreError(.pathOccupied, "")) { try UnixListener.bind(path: path) }
        #expect(readTextFile(path) == "precious")
        let link = "\(directory.path)/link"
        symlink(path, link)
        #expect(throws: CoreError(.pathOccupied, "")) { try UnixListener.bind(path: link) }
    }

    @Test func removalSparesASuccessor() async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/s"
        let first = try UnixListener.bind(path: path)
        try await abandon(first)
        let second = try UnixListener.bind(path: path)
        first.remove()
        #expect(wa_unix_probe(path) == 0)
        second.remove()
        #expect(access(path, F_OK) != 0)
        close(second.descriptor)
    }

    @Test func pathLengthAtBelowAndAbove() throws {
        let directory = try TemporaryDirectory()
        func path(_ length: Int) -> String {
            "\(directory.path)/" + String(repeating: "s", count: length - directory.path.utf8.count - 1)
        }
        let limit = wa_unix_path_max()
        for length in [limit - 1, limit] { close(try UnixListener.bind(path: path(length)).descriptor) }
        #expect(throws: CoreError(.invalid, "")) { try UnixListener.bind(path: path(limit + 1)) }
        #expect(throws: CoreError(.invalid, "")) { try UnixListener.bind(path: "relative") }
    }

    /// Two daemons that start at once: one serves, the other gets an error, in whichever order.
    @Test func oneOfManyAtOnceWins() async throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/s"
        try await abandon(try UnixListener.bind(path: path))
        let winners = await withTaskGroup(of: CInt?.self) { group in
            for _ in 0..<16 { group.addTask { try? UnixListener.bind(path: path).descriptor } }
            return await group.reduce(into: [CInt]()) { list, won in if let won { list.append(won) } }
        }
        #expect(winners.count == 1)
        #expect(wa_unix_probe(path) == 0)
        for descriptor in winners { close(descriptor) }
    }

    @Test func otherPeoplesDirectoriesAreRefused() throws {
        let directory = try TemporaryDirectory()
        try requirePrivateDirectory(directory.path)
        chmod(directory.path, 0o777)
        #expect(throws: CoreError(.pathOccupied, "")) { try requirePrivateDirectory(directory.path) }
        chmod(directory.path, 0o700)
        symlink(directory.path, "\(directory.path)/link")
        #expect(throws: CoreError(.pathOccupied, "")) { try requirePrivateDirectory("\(directory.path)/link") }
    }
}
