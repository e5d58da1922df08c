import AgentCore
import Glibc

/// A directory of ours that has nothing but a link `coder` to this program. It is the last entry of PATH for what the
/// daemon starts, since scripts and metadata of templates call `coder stat` and the like; a `coder` elsewhere on PATH
/// wins.
enum CoderLink {
    /// Makes the directory and the link, or mends them. Blocks.
    /// - Parameters:
    ///   - state: the daemon's state directory, which exists.
    ///   - program: what the link leads to, absolute.
    /// - Returns: the directory.
    /// - Throws: `CoreError` that names the path: another user made the directory or can change it, its name has a colon
    ///   (PATH's separator), or the disk refuses.
    static func make(in state: String, to program: String) throws -> String {
        let directory = "\(state)/bin"
        guard !directory.contains(":") else {
            throw CoreError(.invalid, "\(directory) has a colon, which separates the entries of PATH")
        }
        try createDirectories(directory, mode: 0o700)
        try requirePrivateDirectory(directory)
        let link = "\(directory)/coder"
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = readlink(link, &target, target.count)
        if length > 0, target.prefix(length).map(UInt8.init(bitPattern:)) == Array(program.utf8) { return directory }
        // In one step: what runs already may look for it at any time.
        let temporary = "\(link).\(UInt64.random(in: 0 ... .max)).tmp"
        guard symlink(program, temporary) == 0 else { throw CoreError.system(errno, "cannot make \(link)") }
        guard rename(temporary, link) == 0 else {
            let number = errno
            unlink(temporary)
            throw CoreError.system(number, "cannot replace \(link)")
        }
        return directory
    }
}
