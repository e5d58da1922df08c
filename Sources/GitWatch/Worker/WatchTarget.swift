/// A directory that is watched, by what its events mean.
enum WatchTarget: Hashable, Sendable {
    /// Of the work tree, or of a submodule's: every entry counts.
    case tree(GitPath)
    /// The root of another repository inside the work tree, which git does not look into: only its `.git` counts.
    case inner(GitPath)
    /// Of git, an absolute path: HEAD, index, rules or settings.
    case git(String)

    /// What worker and daemon send each other: a byte for the kind, then the path.
    var encoded: GitPath {
        switch self {
        case .tree(let path): [0] + path
        case .git(let path): [1] + Array(path.utf8)
        case .inner(let path): [2] + path
        }
    }

    init?(encoded: GitPath) {
        let path = Array(encoded.dropFirst())
        switch encoded.first {
        case 0: self = .tree(path)
        case 1: self = .git(String(decoding: path, as: UTF8.self))
        case 2: self = .inner(path)
        default: return nil
        }
    }

    /// What the operating system takes.
    func cString(_ root: String) -> [CChar] {
        switch self {
        case .tree(let path), .inner(let path): path.below(root)
        case .git(let path): path.utf8.map { CChar(bitPattern: $0) } + [0]
        }
    }
}
