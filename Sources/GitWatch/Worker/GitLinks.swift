import Glibc

/// Submodules as the index has them. git looks into each for changes, with the submodule's own configuration,
/// so its filters must be known, too, wherever its git directory is and whether or not .gitmodules names it.
final class GitLinks {
    private var record: [UInt8] = []
    private(set) var layout = IndexLayout()
    /// Of the submodules that were asked for their filters.
    private(set) var innerLayouts: [String: UInt32] = [:]

    /// Lists the index.
    var run: GitCommand.Run { GitCommand.Run(arguments: ["ls-files", "-s", "-z"], output: feed) }

    private func feed(_ bytes: UnsafeRawBufferPointer) throws {
        var rest = bytes[...]
        while let end = rest.firstIndex(of: 0) {
            record += rest[..<end]
            if let tab = record.firstIndex(of: 9) {
                layout.add(record[(tab + 1)...], isLink: record.starts(with: "160000 ".utf8))
            }
            record.removeAll(keepingCapacity: true)
            rest = rest[(end + 1)...]
        }
        record += rest
        guard record.count <= 2 * GitWatchLimits.pathBytes else {
            throw ScanError(.failed, "a name in the index is too long")
        }
        guard layout.links.count <= GitWatchLimits.listedLinks else { throw ScanError(.failed, "too many submodules") }
    }

    /// The filters of those that are checked out, and of those inside them.
    /// - Returns: nil when one cannot be asked, or there are more than ``GitWatchLimits/submodules``.
    func filters(_ command: GitCommand, _ root: String) throws -> Set<String>? {
        var found: Set<String> = []
        var waiting = Self.checkedOut(layout.links, root)
        var asked = 0
        while let next = waiting.popLast() {
            asked += 1
            guard asked <= GitWatchLimits.submodules, let directory = next else { return nil }
            var settings: [UInt8] = []
            let inner = GitLinks()
            let ended = try command.run(
                [GitCommand.collecting(["config", "-z", "--list"]) { settings = $0 }, inner.run], in: directory)
            guard ended.allSatisfy({ $0.status == 0 }) else { return nil }
            found.formUnion(CLIRepository.facts(settings).filters)
            innerLayouts[directory] = Self.digest(inner, directory)
            waiting += Self.checkedOut(inner.layout.links, directory)
        }
        return found
    }

    /// Equal for equal layouts of the repository and its submodules, as long as the process runs.
    func digest(_ tree: WorkTree) -> UInt32 {
        var hasher = Hasher()
        hasher.combine(layout.digest(GitDirectories.refs(tree)))
        hasher.combine(innerLayouts)
        return UInt32(truncatingIfNeeded: hasher.finalize())
    }

    private static func digest(_ links: GitLinks, _ directory: String) -> UInt32 {
        links.layout.digest(Discovery.workTree(at: directory).map(GitDirectories.refs) ?? [])
    }

    /// nil for one whose name cannot be an argument.
    private static func checkedOut(_ paths: Set<GitPath>, _ root: String) -> [String?] {
        paths.compactMap { path in
            var info = stat()
            guard lstat((path + Array("/.git".utf8)).below(root), &info) == 0 else { return nil }
            return .some(String(validating: path, as: UTF8.self).map { "\(root)/\($0)" })
        }
    }
}
