import AgentTestSupport
import Foundation
import Glibc
import Testing

/// A file system that no longer answers holds up only those who want something of it.
@Suite(.timeLimit(.minutes(5)), .blocking, .enabled(if: HangingFileSystem.isAllowed)) struct FileHangTests {
    @Test func othersAreServed() async throws {
        let daemon = try DaemonProcess()
        let scratch = try TemporaryDirectory()
        let dead = "\(scratch.path)/dead"
        mkdir(dead, 0o755)
        try Data("alive".utf8).write(to: URL(fileURLWithPath: "\(scratch.path)/f"))
        let hanging = try HangingFileSystem(over: dead)
        defer { hanging.unmount() }
        // More than there are places.
        let waiting = try (0..<24).map { number in
            let connection = try daemon.connect()
            try connection.send("GET", "/api/v0/read-file?path=\(dead)/\(number)")
            return connection
        }
        try await eventually("requests hang") { hanging.holds }
        let connection = try daemon.connect()
        let read = "/api/v0/read-file?path=\(scratch.path)/f"
        #expect(try connection.request("GET", read).text == "alive")
        // Once as many hang as may, others for the same mount are refused, and it is named.
        try await eventually("a further one is refused", within: .seconds(60)) {
            let other = try daemon.connect()
            try other.send("GET", "/api/v0/read-file?path=\(dead)/x")
            var poll = pollfd(fd: other.descriptor, events: Int16(POLLIN), revents: 0)
            return Glibc.poll(&poll, 1, 1_000) > 0 && (try? other.response().status) == 503
        }
        #expect(try connection.request("GET", read).text == "alive")
        try await eventually("the file system is named", within: .seconds(60)) {
            let health = try connection.request("GET", "/healthz")
            return health.text.contains("degraded") && health.text.contains("file system \(dead) does not answer")
        }
        hanging.unmount()
        for connection in waiting { #expect(try connection.response().status != 200) }
        try await eventually("all is well again") {
            !(try connection.request("GET", "/healthz").text.contains("does not answer"))
        }
        #expect(try await daemon.stop() == 0)
    }
}
