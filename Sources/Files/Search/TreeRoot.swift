import AgentCore
import CPlatform
import Glibc

/// The open root of a tree that is searched.
struct TreeRoot: Sendable {
    let directory: TreeDirectory
    /// How many bytes of an entry's ``TreeEntry/path`` are not below the root.
    let prefix: Int
    /// The number of the device that it lies on.
    let device: dev_t

    /// Opens the root, a link to a directory too.
    /// - Parameters:
    ///   - path: absolute.
    ///   - pattern: for the paths of files below the root.
    /// - Returns: nil when it is no directory.
    /// - Throws: ``FilesError``: `open P: …`.
    init?(_ path: String, pattern: GlobPattern?, ignoreFiles: IgnoreFiles?) throws(FilesError) {
        let number = withPath(path) { wa_open($0, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0) }
        if number == -ENOTDIR, Self.exists(path) { return nil }
        guard number >= 0 else { throw FilesError.system(number, "open", path) }
        var (rules, above): (IgnoreRules?, [UInt8]) = (nil, [])
        if let ignoreFiles, let real = Self.realPath(number) { (rules, above) = ignoreFiles.rules(above: real) }
        rules = ignoreFiles?.rules(in: number, path: above, outer: rules)
        directory = TreeDirectory(number, path: above, depth: 0, rules: rules, place: pattern?.start)
        prefix = above.count
        device = Self.device(number)
    }

    static func device(_ number: CInt) -> dev_t {
        var info = stat()
        return fstat(number, &info) == 0 ? info.st_dev : 0
    }

    /// It may be something above it that is no directory.
    private static func exists(_ path: String) -> Bool {
        var info = stat()
        return withPath(path) { stat($0, &info) } == 0
    }

    /// The path of an open directory, without links.
    private static func realPath(_ number: CInt) -> [UInt8]? {
        let path = [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { area, count in
            count = area.withMemoryRebound(to: CChar.self) { area in
                area.baseAddress.map { max(0, readlink("/proc/self/fd/\(number)", $0, area.count)) } ?? 0
            }
        }
        return path.first == UInt8(ascii: "/") ? path : nil
    }
}
