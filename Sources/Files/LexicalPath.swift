/// Rules for paths as text, without looking at the disk.
enum LexicalPath {
    /// Without `.`, `..`, empty elements and a slash at the end. Of a relative path, leading `..` are kept; an empty
    /// path is ".".
    static func clean(_ path: String) -> String {
        let isAbsolute = path.utf8.first == UInt8(ascii: "/")
        var kept: [Substring] = []
        for element in elements(path) where element != "." {
            if element != ".." {
                kept.append(element)
            } else if let last = kept.last, last != ".." {
                kept.removeLast()
            } else if !isAbsolute {
                kept.append(element)
            }
        }
        let joined = kept.joined(separator: "/")
        if isAbsolute { return "/" + joined }
        return joined.isEmpty ? "." : joined
    }

    /// The non-empty elements between slashes.
    static func elements(_ path: String) -> [Substring] {
        path.utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) }
    }

    static func isAbsolute(_ path: String) -> Bool { path.utf8.first == UInt8(ascii: "/") }

    /// The path of an entry in a directory.
    static func join(_ directory: String, _ name: some StringProtocol) -> String {
        directory.utf8.last == UInt8(ascii: "/") ? directory + name : "\(directory)/\(name)"
    }

    /// The directory of a cleaned absolute path; of "/" itself it is "/".
    static func parent(_ path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// What is behind the last slash.
    static func name(_ path: String) -> String {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
        return String(path[path.utf8.index(after: slash)...])
    }

    /// Whether the path is the directory or lies in it; both absolute and clean.
    static func isWithin(_ path: String, _ directory: String) -> Bool {
        // By bytes: strings are equal, and prefixes, when they only look the same.
        guard directory != "/", path.utf8.starts(with: directory.utf8) else { return directory == "/" }
        let rest = path.utf8.dropFirst(directory.utf8.count)
        return rest.isEmpty || rest.first == UInt8(ascii: "/")
    }
}
