import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import NIOCore
import Synchronization
import Testing

@testable import AgentProc

@Suite struct SpoolTests {
    private let disk = BlockingPool(threads: 1)

    private func append(_ bytes: [UInt8], to spool: Spool) -> Spool.Verdict {
        bytes.withUnsafeBytes { spool.append($0) }
    }

    @Test func keepsEverythingUpToTheLimitAndSaysSo() async throws {
        let directory = try TemporaryDirectory()
        let store = try SpoolStore(directory: directory.path, disk: disk, processLimit: 1000)
        let spool = store.makeSpool(id: "a")
        #expect(append(Array(repeating: 1, count: 999), to: spool) == .accepted)
        #expect(append([2, 3], to: spool) == .accepted)
        #expect(append([4], to: spool) == .off)
        #expect(await spool.availability() == .upTo(1000))
        #expect(try spool.read(offset: 998, count: 10).readableBytesView.elementsEqual([1, 2]))
        #expect(store.bytes == 1000)
        #expect(try mode(of: "\(directory.path)/a.out") == 0o600)
    }

    @Test func theOldestExitedMakesRoom() async throws {
        let directory = try TemporaryDirectory()
        let store = try SpoolStore(directory: directory.path, disk: disk, processLimit: 1000, totalLimit: 1500)
        let (a, b, c) = (store.makeSpool(id: "a"), store.makeSpool(id: "b"), store.makeSpool(id: "c"))
        #expect(append(Array(repeating: 1, count: 700), to: a) == .accepted)
        #expect(append(Array(repeating: 2, count: 700), to: b) == .accepted)
        _ = await (a.availability(), b.availability())
        // Both still run: nothing may be taken from them.
        #expect(append(Array(repeating: 3, count: 200), to: c) == .off)
        guard case .dropped = await c.availability() else {
            Issue.record("c was kept")
            return
        }
        store.finished(a)
        let d = store.makeSpool(id: "d")
        #expect(append(Array(repeating: 4, count: 200), to: d) == .accepted)
        #expect(await d.availability() == .upTo(200))
        guard case .dropped(let why) = await a.availability() else {
            Issue.record("a was kept")
            return
        }
        #expect(why.contains("make room"))
        #expect(store.bytes == 900)
    }

    @Test func removedWithTheProcess() async throws {
        let directory = try TemporaryDirectory()
        let store = try SpoolStore(directory: directory.path, disk: disk)
        let spool = store.makeSpool(id: "a")
        _ = append([1, 2, 3], to: spool)
        _ = await spool.availability()
        store.remove(spool)
        store.remove(spool)
        #expect(store.bytes == 0)
        try await eventually("the file goes") { access("\(directory.path)/a.out", F_OK) != 0 }
    }

    @Test func leftoversOfAnEarlierLifeGo() throws {
        let directory = try TemporaryDirectory()
        try Data([1]).write(to: URL(fileURLWithPath: "\(directory.path)/old.out"))
        try Data([1]).write(to: URL(fileURLWithPath: "\(directory.path)/other.txt"))
        _ = try SpoolStore(directory: directory.path, disk: disk)
        #expect(directoryEntries(directory.path) == ["other.txt"])
    }

    /// A directory that takes no file stands for every failing disk here; a full one is tested
    /// with the whole daemon on a tiny tmpfs.
    @Test func aFailingDiskEndsTheSpoolOnly() async throws {
        let directory = try TemporaryDirectory()
        let store = try SpoolStore(directory: "\(directory.path)/spool", disk: disk)
        rmdir("\(directory.path)/spool")
        let spool = store.makeSpool(id: "a")
        #expect(append([1, 2, 3], to: spool) == .accepted)
        guard case .dropped(let why) = await spool.availability() else {
            Issue.record("a spool without a file")
            return
        }
        #expect(why.contains("No such file"))
        #expect(append([4], to: spool) == .off)
        try await eventually("the bytes are given back") { store.bytes == 0 }
    }

    /// The state directory may be where others can put something under a name of ours.
    @Test(arguments: ["fifo", "link", "file", "directory"])
    func whatLiesInItsPlaceIsLeftAlone(kind: String) async throws {
        let directory = try TemporaryDirectory()
        let other = "\(directory.path)/other"
        try Data([9]).write(to: URL(fileURLWithPath: other))
        let store = try SpoolStore(directory: "\(directory.path)/spool", disk: disk)
        let spool = store.makeSpool(id: "a")
        try put(kind, at: "\(directory.path)/spool/a.out", other)
        #expect(append([1, 2, 3], to: spool) == .accepted)
        guard case .dropped(let why) = await spool.availability() else {
            Issue.record("it was written to")
            return
        }
        #expect(why.components(separatedBy: "/spool/a.out").count == 2, "\(why)")
        await store.settle()
        #expect(try Data(contentsOf: URL(fileURLWithPath: other)) == Data([9]))
        var info = stat()
        #expect(lstat("\(directory.path)/spool/a.out", &info) == 0)
    }

    @Test(arguments: ["fifo", "link", "hard link"])
    func whatTookItsPlaceIsNotRead(kind: String) async throws {
        let directory = try TemporaryDirectory()
        let (path, other) = ("\(directory.path)/spool/a.out", "\(directory.path)/other")
        try Data([9, 9, 9]).write(to: URL(fileURLWithPath: other))
        let store = try SpoolStore(directory: "\(directory.path)/spool", disk: disk)
        let spool = store.makeSpool(id: "a")
        #expect(append([1, 2, 3], to: spool) == .accepted)
        #expect(await spool.availability() == .upTo(3))
        unlink(path)
        try put(kind, at: path, other)
        // A thread of its own, which a FIFO would hold for ever.
        let pool = BlockingPool(threads: 1)
        let refused = Mutex<Bool?>(nil)
        pool.submit { _ in
            let result = Result { try spool.read(offset: 0, count: 3) }
            refused.withLock { $0 = (try? result.get()) == nil }
        }
        try await eventually("the read returns") { refused.withLock { $0 } != nil }
        #expect(refused.withLock { $0 } == true)
    }

    @Test func aLinkInPlaceOfTheDirectoryIsNotFollowed() throws {
        let directory = try TemporaryDirectory()
        let other = "\(directory.path)/other"
        try #require(mkdir(other, 0o700) == 0)
        try Data([1]).write(to: URL(fileURLWithPath: "\(other)/old.out"))
        try #require(symlink(other, "\(directory.path)/spool") == 0)
        #expect(throws: CoreError(.pathOccupied, "")) {
            _ = try SpoolStore(directory: "\(directory.path)/spool", disk: disk)
        }
        #expect(directoryEntries(other) == ["old.out"])
    }

    private func put(_ kind: String, at path: String, _ other: String) throws {
        let done =
            switch kind {
            case "fifo": mkfifo(path, 0o600)
            case "link": symlink(other, path)
            case "hard link": link(other, path)
            case "directory": mkdir(path, 0o700)
            default: close(open(path, O_WRONLY | O_CREAT, 0o600))
            }
        try #require(done == 0)
    }

    private func mode(of path: String) throws -> mode_t {
        var info = stat()
        guard stat(path, &info) == 0 else { throw CoreError.system(errno, path) }
        return info.st_mode & 0o777
    }
}
