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
        var arguments = untracked
        // Names that are no UTF-8 cannot be arguments here, and too many do not fit.
        let names = paths.compactMap { String(validating: $0, as: UTF8.self) }
        if names.count == paths.count, !paths.isEmpty, paths.reduce(0, { $0 + $1.count + 1 }) < 64 << 10 {
            arguments += ["--"] + names
        }
        let listed = try command.collect(arguments, in: root)
        guard listed.ended.status == 0 else { throw failure(listed.ended) }
        return Self.names(listed.output)
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
