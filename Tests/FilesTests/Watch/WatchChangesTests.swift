import Testing

@testable import Files

struct WatchChangesTests {
    private func told(_ all: (WatchChanges.Change, String)...) -> [String] {
        var changes = WatchChanges()
        for (change, path) in all { changes.add(change, Array(path.utf8)) }
        #expect(changes.count == all.count || changes.count < all.count)
        let told = changes.take().map { path, change in
            let path = String(decoding: path, as: UTF8.self)
            switch change {
            case .create: return "+\(path)"
            case .modify: return "~\(path)"
            case .delete: return "-\(path)"
            case .move(let from): return "\(String(decoding: from, as: UTF8.self))>\(path)"
            }
        }
        #expect(changes.count == 0)
        return told
    }

    private func from(_ path: String) -> WatchChanges.Change { .move(from: Array(path.utf8)) }

    @Test func oneEventForAPath() {
        #expect(told((.create, "a"), (.modify, "a"), (.modify, "b"), (.modify, "b")) == ["+a", "~b"])
        // In the order of the last changes.
        #expect(told((.create, "a"), (.create, "b"), (.modify, "a")) == ["+b", "+a"])
        // What was there for a moment only is no event.
        #expect(told((.create, "a"), (.delete, "a"), (.modify, "b"), (.delete, "b")) == ["-b"])
        #expect(told((.delete, "a"), (.create, "a"), (.modify, "a")) == ["~a"])
        #expect(told((.create, "a"), (.delete, "a"), (.create, "a")) == ["+a"])
    }

    @Test func moves() {
        #expect(told((from("a"), "b")) == ["a>b"])
        #expect(told((.modify, "a"), (from("a"), "b"), (.modify, "b")) == ["a>b"])
        // As editors save: the other name is new to the client, and gone.
        #expect(told((.create, "t"), (.modify, "t"), (from("t"), "f")) == ["t>f"])
        #expect(told((from("a"), "b"), (from("b"), "c")) == ["-b", "a>c"])
        #expect(told((from("a"), "b"), (.delete, "b")) == ["-a", "-b"])
        #expect(told((from("a"), "b"), (.create, "a")) == ["a>b", "+a"])
        // There and back.
        #expect(told((from("a"), "b"), (from("b"), "a")) == ["-b", "~a"])
    }
}
