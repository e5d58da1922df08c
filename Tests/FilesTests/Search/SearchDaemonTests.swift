import AgentTestSupport
import Foundation
import Testing

@testable import Files

/// The routes of a real daemon.
@Suite(.timeLimit(.minutes(10)), .blocking) struct SearchDaemonTests {
    @Test func theDaemonSearches() async throws {
        try await withTaskExecutorPreference(BlockingExecutor.shared) {
            let tree = try SearchTree([
                ".gitignore": "*.o\n", "a.c": "one\nneedle\n", "d/b.o": "needle", "d/b.c": "needle",
            ])
            let daemon = try DaemonProcess()
            let connection = try daemon.connect()
            func post(_ path: String, _ body: String) throws -> RawConnection.Response {
                try connection.send(
                    "POST /api/v0/\(path) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
                return try connection.response()
            }
            let grep = try post("grep", #"{"root":"\#(tree.root)","pattern":"need","context":1,"glob":"/*"}"#)
            #expect(grep.status == 200)
            #expect(
                grep.text
                    == #"{"matches":[{"after":[],"before":["one"],"column":1,"line":2,"path":"\#(tree.root)/a.c","#
                    + #""text":"needle"}],"truncated":false}"#)
            let glob = try post("glob", #"{"root":"\#(tree.root)","pattern":"d/*"}"#)
            #expect(glob.text == #"{"paths":["\#(tree.root)/d/b.c"],"truncated":false}"#)

            let bad = try post("grep", #"{"root":"\#(tree.root)","pattern":"("}"#)
            #expect(bad.status == 400)
            #expect(bad.text.contains(#""field":"pattern""#))
            #expect(try post("glob", #"{"root":"/nonexistent","pattern":"a"}"#).status == 404)
            #expect(
                try post("glob", #"{"root":"a","pattern":"a"}"#).text
                    == #"{"message":"file path must be absolute: \"a\""}"#)
            #expect(try post("glob", #"{"pattern":"a"}"#).status == 400)
            #expect(try connection.exchange("GET /api/v0/grep HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 405)
            _ = try await daemon.stop()
        }
    }
}
