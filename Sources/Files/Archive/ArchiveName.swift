import AgentCore

/// The place of an archive's entry below the directory that it is extracted to.
struct ArchiveName {
    /// Without slashes, "." and "..".
    var elements: [[UInt8]]

    /// - Throws: ``FilesError`` `.invalid` for an absolute name and for one with `..` in it.
    init(_ name: [UInt8]) throws(FilesError) {
        guard name.first != UInt8(ascii: "/") else { throw Self.refused(name, "the name is absolute") }
        elements = Self.elements(name)
        guard !elements.contains(Self.parent) else { throw Self.refused(name, "the name has \"..\" in it") }
    }

    var path: [UInt8] { Array(elements.joined(separator: [UInt8(ascii: "/")])) }
    var parent: [UInt8] { Array(elements.dropLast().joined(separator: [UInt8(ascii: "/")])) }
    var name: [UInt8] { elements.last ?? [] }

    /// Refuses a symbolic link at this place that would lead out of the directory. Only `..` at the beginning of a
    /// target can be judged: behind a name, which may be another link, it leads anywhere.
    func check(target: [UInt8], of entry: [UInt8]) throws(FilesError) {
        let quoted = goQuoted(utf8: target)
        guard !target.isEmpty else { throw Self.refused(entry, "it is a symbolic link to nothing") }
        guard target.first != UInt8(ascii: "/") else {
            throw Self.refused(entry, "the symbolic link is absolute (\(quoted)); leave it out of the archive")
        }
        let elements = Self.elements(target)
        let up = elements.prefix { $0 == Self.parent }.count
        guard !elements.dropFirst(up).contains(Self.parent) else {
            throw Self.refused(entry, "the symbolic link's target \(quoted) has \"..\" behind a name")
        }
        guard up < self.elements.count else {
            throw Self.refused(
                entry, "the symbolic link leads out of the directory (\(quoted)); leave it out of the archive")
        }
    }

    static func refused(_ name: [UInt8], _ why: String) -> FilesError {
        FilesError(.invalid, "archive entry \(goQuoted(utf8: name)): \(why)")
    }

    private static let parent = Array("..".utf8)

    private static func elements(_ name: [UInt8]) -> [[UInt8]] {
        name.split(separator: UInt8(ascii: "/")).filter { !$0.elementsEqual([UInt8(ascii: ".")]) }.map { Array($0) }
    }
}
