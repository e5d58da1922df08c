import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// Limits of the desktop at, below and above, where no other suite meets them.
@Suite struct DesktopLimitTests {
    @Test func filesOfTheViewer() async throws {
        let world = try SessionWorld()
        let novnc = "\(world.directory.path)/novnc"
        let depth = SessionLimits.viewerDepth
        let deepest = (1..<depth).map { "d\($0)" }.joined(separator: "/")
        try createDirectories("\(novnc)/\(deepest)/d\(depth)", mode: 0o700)
        let sizes = [("below", -1), ("at", 0), ("above", 1)]
        for (name, difference) in sizes {
            close(creat("\(novnc)/\(name).js", 0o600))
            truncate("\(novnc)/\(name).js", SessionLimits.viewerFileBytes + difference)
        }
        for path in ["\(deepest)/a.js", "\(deepest)/d\(depth)/a.js"] {
            try "deep".write(toFile: "\(novnc)/\(path)", atomically: true, encoding: .utf8)
        }
        try await withServer(world, novnc: novnc) { server in
            try await server.blocking { server in
                func get(_ path: String) throws -> RawConnection.Response {
                    try server.connect().request("GET", "\(ViewerFiles.path)/\(path)")
                }
                for (name, difference) in sizes.dropLast() {
                    let answer = try get("\(name).js")
                    #expect(answer.status == 200)
                    #expect(answer.body.count == SessionLimits.viewerFileBytes + difference)
                }
                #expect(try get("above.js").status == 404)
                #expect(try get("\(deepest)/a.js").text == "deep")
                #expect(try get("\(deepest)/d\(depth)/a.js").status == 404)
            }
        }
    }

    @Test func whatAProgramPrints() {
        let calls = Atomic(0)
        let output = ProgramOutput(limit: 100) { calls.add(1, ordering: .relaxed) }
        func print(_ count: Int) {
            [UInt8](repeating: 65, count: count).withUnsafeBytes { output.appendOutput($0) }
        }
        print(99)
        print(1)
        #expect(output.output.count == 100 && calls.load(ordering: .relaxed) == 0)
        print(1)
        print(1_000_000)
        #expect(output.output.count == 101 && calls.load(ordering: .relaxed) == 1, "reported once, no more kept")
        output.close()
        print(1)
        #expect(output.output == [])
    }

    @Test(arguments: [-1, 0, 1, 5_000, 100_000]) func whatAProgramComplains(difference: Int) {
        let limit = SessionLimits.upErrorBytes
        let output = ProgramOutput(limit: 1) {}
        #expect(output.errors == nil)
        let text = String(repeating: "x", count: limit + difference - 4) + " end"
        // In pieces, as pipes give them.
        for piece in Array(text.utf8).chunks(of: 1_000) { piece.withUnsafeBytes { output.appendErrors($0) } }
        let kept = output.errors ?? ""
        #expect(kept.utf8.count == min(text.utf8.count, limit) && kept.hasSuffix("x end"))
    }

    @Test func aDesktopThatIsTooLargeForAPicture() async throws {
        // One row more than the limit.
        try await withDesktop("16384x4097") { _, driver in
            #expect(driver.size.width * driver.size.height > DesktopLimits.screenshotPixels)
            do {
                try await driver.perform(#"{"action":"screenshot","scaled_width":10,"scaled_height":10}"#)
                Issue.record("it is too large")
            } catch let error as DesktopError {
                #expect(error.message == "The desktop is too large for a screenshot: 16384 by 4097 pixels.")
            }
            // Everything else goes on.
            try await driver.perform(#"{"action":"mouse_move","coordinate":[16383,4096]}"#)
        }
    }
}

extension Array {
    fileprivate func chunks(of size: Int) -> [[Element]] {
        stride(from: 0, to: count, by: size).map { Array(self[$0..<Swift.min($0 + size, count)]) }
    }
}
