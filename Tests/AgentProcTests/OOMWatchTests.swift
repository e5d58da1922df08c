import AgentTestSupport
import Foundation
import Testing

@testable import AgentProc

@Suite struct OOMWatchTests {
    private func write(_ count: Int, _ path: String) throws {
        // In place, as the kernel's file changes: the watch keeps it open.
        let text = "low 0\nhigh 0\nmax 3\noom 1\noom_kill \(count)\noom_group_kill 0\n"
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try handle.truncate(atOffset: 0)
        try handle.write(contentsOf: Data(text.utf8))
        try handle.close()
    }

    @Test func oneKillExplainsOneDeath() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/memory.events"
        try Data().write(to: URL(fileURLWithPath: path))
        try write(2, path)
        let watch = try #require(OOMWatch(path: path))
        #expect(!watch.claim())
        try write(3, path)
        #expect(watch.claim())
        #expect(!watch.claim())
        try write(5, path)
        #expect(watch.claim())
        #expect(watch.claim())
        #expect(!watch.claim())
    }

    @Test func withoutTheFileNothingIsClaimed() throws {
        #expect(OOMWatch(path: nil) == nil)
        #expect(OOMWatch(path: "/nonexistent/memory.events") == nil)
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/other"
        try Data("high 1\n".utf8).write(to: URL(fileURLWithPath: path))
        #expect(OOMWatch(path: path) == nil)
    }
}
