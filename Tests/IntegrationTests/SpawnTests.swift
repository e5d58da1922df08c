import AgentTestSupport
import Foundation
import Glibc
import Testing

/// What a daemon of the tests gets from the process that starts it.
@Suite("Spawning", .blocking) struct SpawnTests {
    /// A socket of another test that stayed open in a daemon would never end for its peer.
    @Test func nothingIsInheritedButWhatIsGiven() throws {
        var ends: [CInt] = [-1, -1]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { for end in ends { close(end) } }
        let other = try inode(ends[0])
        let daemon = try DaemonProcess()
        let files = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(daemon.pid)/fd/\($0)")
        }
        #expect(files.count > 3)
        #expect(!files.contains("socket:[\(other)]"))
    }

    private func inode(_ descriptor: CInt) throws -> UInt64 {
        var info = stat()
        guard fstat(descriptor, &info) == 0 else { throw DeadlineExceeded(what: "fstat") }
        return UInt64(info.st_ino)
    }
}
