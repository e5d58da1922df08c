/// Random changes of a work tree, as shell commands and as the paths that file events would name.
struct RandomEdits {
    struct Edit {
        var script: String
        /// Bytes of the changed paths; none when everything must be looked at.
        var paths: [[UInt8]]
    }

    static let start = """
        mk r; printf '* text=auto\\n*.bin -text\\n' > .gitattributes; printf '*.o\\nout/\\n!d1/keep.o\\n' > .gitignore
        for d in . d1 d1/d2 'e f'; do mkdir -p "$d"; for n in a 'b c' ü.txt x.bin; do lines 1 40 > "$d/$n"; done; done
        printf 'a\\r\\nb\\r\\n' > crlf; : > empty; ln -s a link; printf 'x\\0y' > raw; ci
        """

    private var state: UInt64

    init(seed: UInt64, root: String) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }

    private mutating func number(_ below: Int) -> Int {
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        return Int(truncatingIfNeeded: state >> 11) % below
    }

    private mutating func pick(_ values: [String]) -> String { values[number(values.count)] }

    private mutating func path() -> String {
        let directory = pick(["", "", "d1/", "d1/d2/", "e f/", "new/", "new/deep/", "out/"])
        return directory
            + pick(["a", "b c", "ü.txt", "x.bin", "crlf", "empty", "link", "raw", "n1", "n\"2", "y.o", "keep.o"])
    }

    mutating func next() -> Edit {
        let path = path()
        let name = "'\(path)'"
        let parent = path.lastIndex(of: "/").map { String(path[..<$0]) }
        let make = parent.map { "mkdir -p '\($0)' 2>/dev/null; " } ?? ""
        // What appears with a directory comes with the directory's event.
        let top = path.split(separator: "/").first.map(String.init) ?? path
        let named = [Array(path.utf8)] + (parent == nil ? [] : [Array(top.utf8)])
        let quiet = " 2>/dev/null; true"
        switch number(18) {
        case 0, 1: return Edit(script: "\(make)[ -L \(name) ] || echo \(number(99)) >> \(name)\(quiet)", paths: named)
        case 2, 3:
            return Edit(
                script: "\(make)[ -f \(name) ] && sed -i '\(number(40) + 1)s/.*/changed \(number(9))/' \(name)\(quiet)",
                paths: named)
        case 4: return Edit(script: "\(make)rm -rf \(name); : > \(name)\(quiet)", paths: named)
        case 5:
            return Edit(
                script: "\(make)rm -rf \(name); printf 'a\\r\\nb\(number(9))\\r\\n' > \(name)\(quiet)", paths: named)
        case 6: return Edit(script: "rm -f \(name)\(quiet)", paths: named)
        case 7: return Edit(script: "\(make)rm -rf \(name); ln -s target\(number(3)) \(name)\(quiet)", paths: named)
        case 8: return Edit(script: "[ -L \(name) ] || chmod \(pick(["+x", "-x"])) \(name)\(quiet)", paths: named)
        case 9: return Edit(script: "\(make)rm -rf \(name); printf 'no end' > \(name)\(quiet)", paths: named)
        case 10: return Edit(script: "\(make)rm -rf \(name); mkdir \(name); echo in > \(name)/f\(quiet)", paths: named)
        case 11:
            let directory = pick(["d1", "d1/d2", "e f", "new"])
            return Edit(script: "rm -rf '\(directory)'\(quiet)", paths: [Array(directory.utf8)])
        case 12:
            let to = self.path()
            let toTop = to.split(separator: "/").first.map(String.init) ?? to
            let toParent = to.lastIndex(of: "/").map { "mkdir -p '\(to[..<$0])'; " } ?? ""
            return Edit(
                script: "\(toParent)mv -f \(name) '\(to)'\(quiet)",
                paths: named + [Array(to.utf8), Array(toTop.utf8)])
        case 13: return Edit(script: "git add -A \(name)\(quiet)", paths: [])
        case 14: return Edit(script: "git rm -q -r --cached \(name)\(quiet)", paths: [])
        case 15: return Edit(script: "git add -A; git commit -qm c\(quiet)", paths: [])
        case 16:
            return Edit(
                script: "echo '\(pick(["n1", "!y.o", "/d1", "*.txt", "!out/"]))' >> .gitignore",
                paths: [Array(".gitignore".utf8)])
        default: return Edit(script: "\(make)rm -rf \(name); printf 'b\\0\(number(9))' > \(name)\(quiet)", paths: named)
        }
    }
}
