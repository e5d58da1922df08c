import Glibc

/// Which version of a file is there: size, time of the last change and inode in hexadecimal
/// (docs/contracts/files.md#entity-tags). Each write of ours makes a new inode or changes the time.
enum EntityTag {
    static func of(_ info: stat) -> String {
        let nanoseconds = Int64(info.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(info.st_mtim.tv_nsec)
        let size = String(info.st_size, radix: 16)
        let time = String(UInt64(bitPattern: nanoseconds), radix: 16)
        return "\"\(size)-\(time)-\(String(info.st_ino, radix: 16))\""
    }

    /// Whether a list of tags, as a header has it, names the tag. A weak tag never does (RFC 9110 section 13.1.1).
    static func list(_ list: String, names tag: String) -> Bool {
        list.utf8.split(separator: UInt8(ascii: ",")).contains { entry in
            let trimmed = Substring(entry).drop { $0 == " " || $0 == "\t" }
            return trimmed.utf8.elementsEqual(tag.utf8)
                || trimmed.utf8.starts(with: tag.utf8) && trimmed.dropFirst(tag.count).allSatisfy { $0 == " " }
        }
    }
}

/// What must be true of a file for it to be written.
struct WriteCondition: Sendable {
    /// `If-Match`: one of these tags, or `*` for any file.
    var match: String?
    /// `If-None-Match`: none of these tags, or `*` for no file.
    var noneMatch: String?

    /// - Parameters:
    ///   - info: the file that is there; nil when there is none.
    ///   - path: as the client wrote it.
    /// - Throws: ``FilesError`` `.changed` with the present tag.
    func check(_ info: stat?, _ path: String) throws(FilesError) {
        let tag = info.map(EntityTag.of)
        if let match {
            guard let tag else {
                throw FilesError(.changed, "\(path) does not exist, so it is not the version that If-Match names")
            }
            guard match == "*" || EntityTag.list(match, names: tag) else {
                throw FilesError(.changed, "\(path) has changed: its entity tag is \(tag) now, not \(match)", etag: tag)
            }
        }
        if let noneMatch, let tag, noneMatch == "*" || EntityTag.list(noneMatch, names: tag) {
            throw FilesError(.changed, "\(path) exists; its entity tag is \(tag)", etag: tag)
        }
    }
}
