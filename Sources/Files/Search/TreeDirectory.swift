import AgentCore
import CPlatform
import Glibc

/// An open directory of a tree that is searched. Closed when nothing uses it any more.
final class TreeDirectory: Sendable {
    private let file: OwnedDescriptor
    /// From the directory on that the rules count from: empty, or with a slash at its end.
    let path: [UInt8]
    /// How many directories lie above it, up to the root.
    let depth: Int
    let rules: IgnoreRules?
    let place: GlobPattern.Place?

    /// - Parameter number: of the descriptor, which it takes over.
    init(_ number: CInt, path: [UInt8], depth: Int, rules: IgnoreRules?, place: GlobPattern.Place?) {
        file = OwnedDescriptor(number)
        (self.path, self.depth, self.rules, self.place) = (path, depth, rules, place)
    }

    var number: CInt { file.number }

    /// Opens a directory in another; a link to one is not followed.
    /// - Returns: the descriptor, or -errno.
    static func open(_ number: CInt, _ name: UnsafePointer<CChar>) -> CInt {
        wa_openat(number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0)
    }
}

/// An entry of a directory as the kernel has it. It is valid only while it is looked at.
struct TreeEntry {
    enum Kind { case file, directory, link, other }

    let directory: TreeDirectory
    /// Ends with NUL, which is not counted.
    let name: UnsafeRawBufferPointer
    let kind: Kind

    var namePointer: UnsafePointer<CChar>? { name.baseAddress?.assumingMemoryBound(to: CChar.self) }

    /// From the directory on that the rules count from.
    var path: [UInt8] { directory.path + name }

    func info() -> stat? {
        var info = stat()
        guard let namePointer, fstatat(directory.number, namePointer, &info, AT_SYMLINK_NOFOLLOW) == 0 else {
            return nil
        }
        return info
    }

    /// Looks at what ``wa_read_entries`` has read, until the body returns false.
    /// - Returns: how many bytes were looked at, those of the last entry not included if the body returned false.
    static func each(
        in bytes: UnsafeRawBufferPointer, of directory: TreeDirectory, _ body: (TreeEntry) -> Bool
    ) -> Int {
        // Behind two 8-byte numbers come the record's length (2 bytes), the kind and the name.
        let header = 19
        var offset = 0
        while bytes.count - offset > header {
            let length = Int(bytes.loadUnaligned(fromByteOffset: offset + 16, as: UInt16.self))
            guard length > header, length <= bytes.count - offset else { break }
            let field = UnsafeRawBufferPointer(rebasing: bytes[(offset + header)..<(offset + length)])
            let name = UnsafeRawBufferPointer(rebasing: field[..<(field.firstIndex(of: 0) ?? 0)])
            if !isSkipped(name) {
                let entry = TreeEntry(directory: directory, name: name, kind: kind(bytes[offset + 18], name, directory))
                guard body(entry) else { return offset }
            }
            offset += length
        }
        return bytes.count
    }

    /// Nothing, `.`, `..` and `.git`.
    private static func isSkipped(_ name: UnsafeRawBufferPointer) -> Bool {
        guard name.first == UInt8(ascii: ".") else { return name.isEmpty }
        switch name.count {
        case 1: return true
        case 2: return name[1] == UInt8(ascii: ".")
        case 4: return name.elementsEqual(".git".utf8)
        default: return false
        }
    }

    private static func kind(_ type: UInt8, _ name: UnsafeRawBufferPointer, _ directory: TreeDirectory) -> Kind {
        switch CInt(type) {
        case CInt(DT_REG): return .file
        case CInt(DT_DIR): return .directory
        case CInt(DT_LNK): return .link
        case CInt(DT_UNKNOWN):
            // Some file systems don't tell.
            let entry = TreeEntry(directory: directory, name: name, kind: .other)
            return entry.info().map { kind(of: $0.st_mode) } ?? .other
        default: return .other
        }
    }

    private static func kind(of mode: mode_t) -> Kind {
        switch mode & S_IFMT {
        case S_IFREG: .file
        case S_IFDIR: .directory
        case S_IFLNK: .link
        default: .other
        }
    }
}
