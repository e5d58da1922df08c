/// What the git CLI lists, without content.
enum CLIListing {
    static let untracked = ["ls-files", "-o", "-z", "--exclude-standard"]

    /// Listings under way while the repository is opened.
    final class Pending {
        private let processes: GitCommand.Pending
        private let output: Output
        let listsTracked: Bool

        private final class Output {
            var raw: [UInt8] = []
            var others: [UInt8] = []
        }

        /// - Parameter tracked: also list tracked files that may differ from HEAD.
        init(_ command: GitCommand, _ root: String, tracked: Bool) throws {
            let output = Output()
            var runs = [GitCommand.collecting(CLIListing.untracked) { output.others = $0 }]
            if tracked {
                // git compares content where a file is as young as the index, and converts it for that.
                // libgit2 does not see all that git calls configuration, so git is asked.
                let listed = try command.collect(["config", "-z", "--list"], in: root)
                guard listed.ended.status == 0 else { throw CLIListing.failure(listed.ended) }
                let safe = try CLIRepository.overrides(CLIRepository.facts(listed.output).filters)
                let arguments = [
                    "diff", "--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=all", "HEAD",
                ]
                runs.append(GitCommand.collecting(safe + arguments) { output.raw = $0 })
            }
            processes = try command.begin(runs, in: root)
            self.output = output
            listsTracked = tracked
        }

        func finish() throws -> (tracked: [GitPath], untracked: [GitPath]) {
            for run in try processes.finish() where run.status != 0 { throw CLIListing.failure(run) }
            var tracked: [GitPath] = []
            var meta = true
            for part in output.raw.split(separator: 0) {
                if !meta { tracked.append(Array(part)) }
                meta.toggle()
            }
            return (tracked, CLIListing.names(output.others))
        }
    }

    /// Untracked files at or below the paths, all of them when there are none.
    static func untracked(_ command: GitCommand, _ root: String, _ paths: [GitPath]) throws -> [GitPath] {
        let listed = try command.collect(untracked + pathspecs(paths), in: root)
        guard listed.ended.status == 0 else { throw failure(listed.ended) }
        return Self.names(listed.output)
    }

    /// The arguments that limit a listing to the paths, if they can be given.
    private static func pathspecs(_ paths: [GitPath]) -> [String] {
        // Names that are no UTF-8 cannot be arguments here, and too many do not fit.
        let names = paths.compactMap { String(validating: $0, as: UTF8.self) }
        guard names.count == paths.count, !paths.isEmpty, paths.reduce(0, { $0 + $1.count + 1 }) < 64 << 10 else {
            return []
        }
        return ["--"] + names
    }

    /// Directories at or below the given ones (all when there are none) whose untracked files git ignores, whether or
    /// not they hold tracked ones. What lies in them is left out.
    static func ignoredDirectories(_ command: GitCommand, _ root: String, below tops: [GitPath]) throws -> Set<GitPath>
    {
        let listed = try command.collect(
            ["ls-files", "-o", "-i", "-z", "--directory", "--exclude-standard"] + pathspecs(tops), in: root)
        guard listed.ended.status == 0 else { throw failure(listed.ended) }
        // Also lists directories of which only all that is in them now is ignored.
        let candidates =
            tops
            + listed.output.split(separator: 0).filter { $0.last == UInt8(ascii: "/") }.map { Array($0.dropLast()) }
        if candidates.isEmpty { return [] }
        // It refuses literal pathspecs. A name that begins with a colon is none after this, and one that is a pattern
        // would be taken for tracked where it matches a file in the index.
        let prefix = Array("./".utf8)
        let input = candidates.reduce(into: []) { $0 += prefix + $1 + [0] }
        var output: [UInt8] = []
        let checked = try command.run(
            [
                GitCommand.collecting(
                    ["check-ignore", "-z", "--stdin", "--no-index"], extra: ["GIT_LITERAL_PATHSPECS": "0"], input: input
                ) { output = $0 }
            ], in: root)
        // 1: none is.
        if let ended = checked.first, ![0, 1].contains(ended.status) { throw failure(ended) }
        return Set(output.split(separator: 0).map { Array($0.dropFirst(prefix.count)) })
    }

    /// Names that end in NUL, without repositories inside.
    static func names(_ bytes: [UInt8]) -> [GitPath] {
        bytes.split(separator: 0).compactMap { $0.last == UInt8(ascii: "/") ? nil : Array($0) }
    }

    static func failure(_ ended: GitCommand.Ended) -> ScanError {
        let text = ended.errors.split(separator: "\n").first.map(String.init) ?? "status \(ended.status)"
        if ended.errors.contains("dubious ownership") || ended.errors.contains("unsafe repository") {
            return ScanError(.refused, "the repository belongs to another user; see safe.directory in git-config")
        }
        // Whether it is gone for good is seen without git.
        let passing = [".lock", "index file", "bad signature", "Unable to create", "not a git repository"]
        return ScanError(passing.contains { ended.errors.contains($0) } ? .transient : .failed, "git: \(text)")
    }
}
