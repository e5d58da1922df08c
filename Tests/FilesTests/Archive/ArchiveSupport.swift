import AgentCore
import AgentTestSupport
import CTestSupport
import Foundation
import Glibc
import Logging
import NIOCore
import Synchronization
import Testing

@testable import Files

/// An archive and what is in it, for tests.
struct Member: Equatable {
    var entry: TarEntry
    var content: [UInt8] = []

    static func file(
        _ name: String, _ content: String = "", mode: UInt32 = 0o644, seconds: Int = 1_700_000_000
    ) -> Member {
        let content = Array(content.utf8)
        return Member(
            entry: TarEntry(
                kind: .file, name: Array(name.utf8), size: content.count, mode: mode, seconds: seconds),
            content: content)
    }

    static func directory(_ name: String, mode: UInt32 = 0o755, seconds: Int = 1_700_000_000) -> Member {
        Member(entry: TarEntry(kind: .directory, name: Array(name.utf8), mode: mode, seconds: seconds))
    }

    static func link(_ name: String, _ target: String, _ kind: TarEntry.Kind = .symbolicLink) -> Member {
        Member(
            entry: TarEntry(
                kind: kind, name: Array(name.utf8), target: Array(target.utf8), mode: 0o777, seconds: 1_700_000_000))
    }

    static func special(_ name: String, _ kind: TarEntry.Kind) -> Member {
        Member(entry: TarEntry(kind: kind, name: Array(name.utf8)))
    }
}

func archive(_ members: [Member]) -> [UInt8] {
    members.flatMap { member in
        TarWriter.header(member.entry) + member.content
            + [UInt8](repeating: 0, count: TarBlock.padding(of: member.content.count))
    } + TarBlock.end
}

/// What routes work with.
func testContext() -> FilesContext {
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    let clock = AgentClock(ContinuousClock())
    return FilesContext(
        work: DiskWork(clock: clock, executor: BlockingExecutor.shared, health: HealthRegistry()),
        temporaries: TemporaryFiles(directory: nil, logger: logger), paths: NoPathStore(), fileMask: 0o022, home: "/",
        environment: [:])
}

/// What the reader makes of an archive that comes in pieces of these sizes, one after the other and again.
func members(of archive: [UInt8], pieces: [Int] = [100_000]) throws -> [Member] {
    var reader = TarReader()
    var members: [Member] = []
    var rest = archive[...]
    var turn = 0
    func take() throws {
        while let event = try reader.next() {
            switch event {
            case .entry(let entry): members.append(Member(entry: entry))
            case .content(let bytes): members[members.count - 1].content += bytes.readableBytesView
            case .finished:
                let member = members[members.count - 1]
                guard member.content.count == member.entry.size else { throw Mismatch() }
            case .end: break
            }
        }
    }
    while !rest.isEmpty {
        reader.feed(ByteBuffer(bytes: rest.prefix(pieces[turn % pieces.count])))
        rest = rest.dropFirst(pieces[turn % pieces.count])
        turn += 1
        try take()
    }
    try reader.finish()
    return members
}

struct Mismatch: Error {}

/// The failure's message; nil when there is none.
func failure(_ body: () throws -> Void) -> String? {
    do {
        try body()
        return nil
    } catch {
        return (error as? FilesError)?.message ?? "\(error)"
    }
}

/// Whether a program is there and does what the tests need of it.
func works(_ command: String...) -> Bool { (try? CommandResult.of(command))?.code == 0 }

extension TemporaryDirectory {
    func write(_ name: String, _ bytes: some Collection<UInt8>) throws {
        try Data(bytes).write(to: URL(fileURLWithPath: "\(path)/\(name)"))
    }

    func read(_ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: "\(path)/\(name)")))
    }

    func text(_ name: String) -> String? {
        (try? read(name)).map { String(decoding: $0, as: UTF8.self) }
    }

    func info(_ name: String) -> stat? {
        var info = stat()
        return lstat("\(path)/\(name)", &info) == 0 ? info : nil
    }

    func mode(_ name: String) -> String? { info(name).map { String($0.st_mode, radix: 8) } }

    /// All paths in it, sorted.
    var tree: [String] {
        (FileManager.default.enumerator(atPath: path)?.allObjects as? [String] ?? []).sorted()
    }
}

/// Nobody.
let otherUser: uid_t = 65_534

/// Runs the body on a thread that has the rights of another user, if the tests have those of root.
func asOtherUser<T: Sendable>(_ body: @escaping @Sendable () throws -> T) throws -> T {
    let result = Handover<Result<T, any Error>>()
    let done = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
        let own = Result {
            guard geteuid() != 0 || test_become_user(otherUser) == 0 else { throw Mismatch() }
            return try body()
        }
        result.value.withLock { $0 = own }
        done.signal()
    }
    done.wait()
    return try #require(result.value.withLock { $0 }).get()
}

private final class Handover<Value: Sendable>: Sendable {
    let value = Mutex<Value?>(nil)
}
