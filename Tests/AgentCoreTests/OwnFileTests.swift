import AgentTestSupport
import CPlatform
import Foundation
import Glibc
import Testing

@testable import AgentCore

@Suite struct OwnFileTests {
    private let directory: TemporaryDirectory
    private var path: String { "\(directory.path)/file" }

    init() throws { directory = try TemporaryDirectory() }

    /// Everything that may lie in the place of a file of ours, with the words that must name it.
    enum Intruder: String, CaseIterable {
        case fifo = "a named pipe"
        case link = "a symbolic link"
        case directory = "a directory"
        case device = "a device"
        case socket = "a socket"
        case foreign = "belongs to uid 65534"
        case secondName = "has 2 names"

        /// Making some of them takes root.
        var needsRoot: Bool { self == .device || self == .foreign }

        func put(at path: String) throws {
            switch self {
            case .fifo: #expect(mkfifo(path, 0o666) == 0)
            case .link:
                _ = FileManager.default.createFile(atPath: "\(path).target", contents: Data("x".utf8))
                #expect(symlink("\(path).target", path) == 0)
            case .directory: #expect(mkdir(path, 0o777) == 0)
            case .device: #expect(mknod(path, S_IFCHR | 0o666, 1 << 8 | 3) == 0)
            case .socket: close(wa_unix_listen(path, 0o600, 1))
            case .foreign:
                _ = FileManager.default.createFile(atPath: path, contents: Data("x".utf8))
                #expect(chown(path, 65534, 65534) == 0)
            case .secondName:
                _ = FileManager.default.createFile(atPath: "\(path).other", contents: Data("x".utf8))
                #expect(Glibc.link("\(path).other", path) == 0)
            }
        }
    }

    @Test(arguments: Intruder.allCases) func whatIsNotOursIsRefused(_ intruder: Intruder) throws {
        if intruder.needsRoot, geteuid() != 0 { return }
        try intruder.put(at: path)
        for flags in [O_RDONLY, O_WRONLY, O_WRONLY | O_CREAT | O_APPEND, O_RDWR] {
            let error = #expect(throws: CoreError.self) { close(try OwnFile.open(path, flags)) }
            #expect(error?.code == .pathOccupied)
            #expect(error?.message.contains(intruder.rawValue) == true, "\(error?.message ?? "")")
            #expect(error?.message.contains(path) == true)
        }
        #expect(throws: CoreError.self) { try OwnFile.read(path, limit: 100) }
        #expect(!OwnFile.isFree(path))
    }

    @Test func aFileIsReadUpToItsLimit() throws {
        try OwnFile.replace(path, with: Array("12345".utf8))
        #expect(try OwnFile.read(path, limit: 6) == Array("12345".utf8))
        #expect(try OwnFile.read(path, limit: 5) == Array("12345".utf8))
        #expect(throws: CoreError(.invalid, "")) { try OwnFile.read(path, limit: 4) }
        #expect(throws: CoreError(.system(ENOENT), "")) { try OwnFile.read("\(path).none", limit: 4) }
        #expect(OwnFile.isFree(path))
        #expect(OwnFile.isFree("\(path).none"))
        var info = stat()
        #expect(stat(path, &info) == 0 && info.st_mode & 0o777 == 0o600)
    }

    @Test func nothingIsTruncatedBeforeTheLook() throws {
        try OwnFile.replace(path, with: [1, 2, 3])
        close(try OwnFile.open(path, O_WRONLY | O_TRUNC))
        #expect(try OwnFile.read(path, limit: 3) == [1, 2, 3])
    }

    @Test func replacingFollowsNoLinkAndLeavesNothing() throws {
        try Intruder.link.put(at: path)
        try OwnFile.replace(path, with: [7], mode: 0o640, flush: true)
        #expect(try OwnFile.read(path, limit: 1) == [7])
        #expect(readFile("\(path).target") == Array("x".utf8))
        #expect(Set(directoryEntries(directory.path)) == ["file", "file.target"])
        // A directory is not replaced, and the file beside it goes again.
        unlink(path)
        mkdir(path, 0o700)
        #expect(throws: CoreError.self) { try OwnFile.replace(path, with: [7]) }
        #expect(Set(directoryEntries(directory.path)) == ["file", "file.target"])
    }

    @Test func aNamedFileMayBeALinkOrRoots() throws {
        try OwnFile.replace("\(path).target", with: [1], mode: 0o600)
        symlink("\(path).target", path)
        #expect(try OwnFile.readNamed(path, limit: 1) == ([1], false))
        chmod("\(path).target", 0o640)
        #expect(try OwnFile.readNamed(path, limit: 1) == ([1], true))
        #expect(throws: CoreError(.invalid, "")) { try OwnFile.readNamed(path, limit: 0) }
        for intruder in [Intruder.fifo, .directory, .socket] {
            unlink(path)
            try intruder.put(at: path)
            let error = #expect(throws: CoreError.self) { try OwnFile.readNamed(path, limit: 1) }
            #expect(error?.message.contains(intruder.rawValue) == true)
            rmdir(path)
        }
    }

    @Test(.enabled(if: geteuid() == 0)) func aNamedFileOfAnotherUserIsRefused() throws {
        try Intruder.foreign.put(at: path)
        #expect(throws: CoreError(.pathOccupied, "")) { try OwnFile.readNamed(path, limit: 1) }
        // So is a link of theirs, wherever it leads.
        let link = "\(path).link"
        symlink("/etc/passwd", link)
        lchown(link, 65534, 65534)
        #expect(throws: CoreError(.pathOccupied, "")) { try OwnFile.readNamed(link, limit: 1 << 20) }
    }

    @Test func aFIFOIsNotWaitedFor() throws {
        try Intruder.fifo.put(at: path)
        #expect(readFile(path) == nil)
        #expect(throws: CoreError.self) { try StreamLogSink(path: path, format: .human) }
    }
}
