import AgentCore
import AgentTestSupport
import Glibc
import Synchronization
import Testing

@testable import AgentProc

/// Events alone: nothing here looks for the file by itself.
@Suite struct FileWatchTests {
    private let reactor: Reactor
    private let files: FileWatch
    private let directory: TemporaryDirectory

    init() throws {
        reactor = try Reactor()
        try #require(reactor.start())
        files = FileWatch(reactor)
        directory = try TemporaryDirectory()
    }

    private func makeFile(_ name: String) { close(open("\(directory.path)/\(name)", O_CREAT | O_WRONLY, 0o600)) }

    private final class Count: Sendable {
        private let count = Atomic(0)
        var value: Int { count.load(ordering: .relaxed) }
        func add() { count.add(1, ordering: .relaxed) }
    }

    @Test func namesThatAppearAreTold() async throws {
        let (made, renamed, linked, other) = (Count(), Count(), Count(), Count())
        var all: [FileWatch.Registration] = []
        for (name, count) in [("made", made), ("renamed", renamed), ("linked", linked), ("other", other)] {
            all.append(try #require(files.add(directory.path, name: name) { count.add() }))
        }
        makeFile("made")
        try await eventually("the new file") { made.value == 1 }
        rename("\(directory.path)/made", "\(directory.path)/renamed")
        try await eventually("the new name") { renamed.value == 1 }
        link("\(directory.path)/renamed", "\(directory.path)/linked")
        try await eventually("the new link") { linked.value == 1 }
        #expect(other.value == 0)
        for registration in all { files.remove(registration) }
        await reactor.stop()
    }

    @Test func aDirectoryThatGoesIsTold() async throws {
        let path = "\(directory.path)/sub"
        mkdir(path, 0o700)
        let count = Count()
        let registration = try #require(files.add(path, name: "x") { count.add() })
        rmdir(path)
        try await eventually("its end") { count.value > 0 }
        files.remove(registration)
        await reactor.stop()
    }

    @Test func linksToDirectoriesAreFollowed() async throws {
        symlink(directory.path, "\(directory.path)/link")
        let count = Count()
        let registration = try #require(files.add("\(directory.path)/link", name: "x") { count.add() })
        makeFile("x")
        try await eventually("the file") { count.value == 1 }
        files.remove(registration)
        await reactor.stop()
    }

    @Test func whatIsNoDirectoryIsRefused() async throws {
        makeFile("file")
        for path in ["\(directory.path)/none", "\(directory.path)/file"] {
            #expect(files.add(path, name: "x") {} == nil)
        }
        await reactor.stop()
    }

    /// One descriptor for all, and none once nobody waits.
    @Test func oneDescriptorWhileAnybodyWaits() async throws {
        let own = getpid()
        func inotify() -> Int {
            directoryEntries("/proc/\(own)/fd").count { entry in
                var target = [CChar](repeating: 0, count: 64)
                let count = readlink("/proc/\(own)/fd/\(entry)", &target, 64)
                return count > 0
                    && String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
                        == "anon_inode:inotify"
            }
        }
        // Other tests have theirs at times.
        let before = inotify()
        let all = try (0..<200).map { try #require(files.add(directory.path, name: "\($0)") {}) }
        #expect(inotify() < before + 100)
        for registration in all { files.remove(registration) }
        let count = Count()
        let again = try #require(files.add(directory.path, name: "x") { count.add() })
        makeFile("x")
        try await eventually("the file") { count.value == 1 }
        files.remove(again)
        await reactor.stop()
    }
}

@Suite struct PortWatchTests {
    /// Looks only while a client waits, one task for all of them.
    @Test func looksOnlyWhileAClientWaits() async throws {
        let fixture = try ManagerFixture()
        let ports = fixture.manager.ports
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(listener) }
        // Any free port of 127.0.0.1.
        try #require(listen(listener, 1) == 0)
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(listener, $0, &length) }
        }
        let port = Int(UInt16(bigEndian: address.sin_port))
        #expect(fixture.clock.sleeping == 0)
        let (woken, never) = (Promise<Void>(), Promise<Void>())
        let tokens = [ports.add(port) { woken.fulfill() }, ports.add(1) { never.fulfill() }]
        await fixture.clock.sleepers(1)
        #expect(fixture.clock.sleeping == 1)
        fixture.clock.advance(by: PortWatch.interval)
        await woken.valueIgnoringCancellation
        await fixture.clock.sleepers(1)
        for token in tokens { ports.remove(token) }
        fixture.clock.advance(by: PortWatch.interval)
        #expect(never.fulfill())
        #expect(fixture.clock.sleeping == 0)
        await fixture.end()
    }
}
