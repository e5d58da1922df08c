import AgentTestSupport
import Testing

@testable import Files

struct PathTextTests {
    @Test(arguments: ["", "a", "é", "日本", "a\u{0}b", "\u{10FFFD}"])
    func validNamesAreTheirOwnText(_ name: String) {
        #expect(PathText.text(Array(name.utf8)) == name)
        #expect(PathText.bytes(name) == Array(name.utf8))
    }

    @Test func badBytesComeBack() {
        let text = PathText.text([0x61, 0xFF, 0x62])
        #expect(text == "a\u{10FEFF}b")
        #expect(PathText.bytes(text) == [0x61, 0xFF, 0x62])
        // A name that has an escape's own character.
        let real = Array("x\u{10FEFF}".utf8)
        #expect(PathText.text(real) != "x\u{10FEFF}")
        #expect(PathText.bytes(PathText.text(real)) == real)
    }

    @Test func anyBytesComeBack() {
        var random = SeededGenerator("path texts")
        let alphabet: [UInt8] = [0x61, 0x2F, 0x80, 0xBF, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF4, 0x8F, 0xBA, 0xBB, 0xFF]
        // By bytes: strings are equal when they look the same.
        var texts: [[UInt8]: [UInt8]] = [:]
        for _ in 0..<5_000 {
            let bytes = (0..<Int.random(in: 0...8, using: &random)).map { _ in
                alphabet[Int.random(in: 0..<alphabet.count, using: &random)]
            }
            let text = PathText.text(bytes)
            #expect(PathText.bytes(text) == bytes)
            #expect(texts.updateValue(bytes, forKey: Array(text.utf8)) ?? bytes == bytes)
        }
    }

    @Test(arguments: [
        ("/", "/"), ("//a//b/", "/a/b"), ("/a/./b/../c", "/a/c"), ("/..", "/"), ("/../../a", "/a"), ("", "."),
        ("a/..", "."), ("../a", "../a"), ("a/../../b", "../b"), ("/a/...", "/a/..."),
    ])
    func pathsAreCleaned(_ path: String, _ clean: String) {
        #expect(LexicalPath.clean(path) == clean)
    }

    @Test(arguments: [
        ("/a/b", "/a", true), ("/a", "/a", true), ("/ab", "/a", false), ("/x", "/", true), ("/e\u{301}x", "/e", false),
    ])
    func containmentIsByElements(_ path: String, _ directory: String, _ expected: Bool) {
        #expect(LexicalPath.isWithin(path, directory) == expected)
    }

    @Test func theLongestMountWins() {
        let table = """
            22 1 254:0 / / rw - ext4 /dev/vda rw
            30 22 0:5 / /mnt/a\\040b rw - nfs server:/x rw
            31 30 0:6 / /mnt/a\\040b/c rw - tmpfs tmpfs rw

            """
        #expect(MountPoint.of("/mnt/a b/c/d", table: table) == "/mnt/a b/c")
        #expect(MountPoint.of("/mnt/a b/cd", table: table) == "/mnt/a b")
        #expect(MountPoint.of("/mnt", table: table) == "/")
    }
}
