import AgentCore
import Glibc

/// The git CLI as the scanner of what libgit2 cannot read right: everything at each scan.
struct CLIRepository {
    let command: GitCommand
    let tree: WorkTree

    /// What a person would type, whose output is the contract (docs/contracts/git-watch.md#the-diff).
    private static let diff = ["diff", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"]

    struct Facts {
        var origin = ""
        var filters: Set<String> = []
        /// How differences of submodules are shown; "" is git's own way.
        var submodules = ""
        var mnemonicPrefix = false
        var noPrefix = false
    }

    func snapshot() throws -> RepositorySnapshot {
        var settings: [UInt8] = []
        var head: [UInt8] = []
        var branchName: [UInt8] = []
        let links = GitLinks()
        let first = try command.run(
            [
                GitCommand.collecting(["config", "-z", "--list"]) { settings = $0 },
                GitCommand.collecting(["rev-parse", "-q", "--verify", "HEAD^{commit}"]) { head = $0 },
                GitCommand.collecting(["symbolic-ref", "-q", "HEAD"]) { branchName = $0 },
                links.run,
            ], in: tree.root)
        for ended in [first.first, first.last] {
            if let ended, ended.status != 0 { throw CLIListing.failure(ended) }
        }
        // Only a repository that git refuses fails here with words.
        if let parse = first.dropFirst().first, parse.status != 0, !parse.errors.isEmpty {
            throw CLIListing.failure(parse)
        }
        let facts = Self.facts(settings)
        var branch = String(decoding: branchName.prefix { $0 != 10 }, as: UTF8.self)
        var base = String(decoding: head.prefix { $0 != 10 }, as: UTF8.self)
        if base.isEmpty {
            // A branch to be; what else names no commit is being written or repaired.
            guard !branch.isEmpty, access("\(tree.commonDirectory)/\(branch)", F_OK) != 0 else {
                throw ScanError(.transient, "HEAD of \(tree.root) names no commit at the moment")
            }
            base = try emptyTree()
        }

        let inside = try links.filters(command, tree.root)
        let safe = try Self.overrides(facts.filters.union(inside ?? []))
        var diff = Self.diff
        // Who cannot be asked for their filters are not looked into.
        if inside == nil { diff.append("--ignore-submodules=dirty") }
        // `diff` starts another git, which runs what the submodule names.
        diff.append("--submodule=\(facts.submodules == "log" ? "log" : "short")")
        let collector = CLIDiff(root: tree.root)
        var others: [UInt8] = []
        let second = try command.run(
            [
                GitCommand.Run(arguments: safe + diff + [base, "--"], output: collector.feed),
                GitCommand.collecting(CLIListing.untracked) { others = $0 },
            ], in: tree.root)
        for ended in second where ended.status != 0 { throw CLIListing.failure(ended) }
        try collector.finish()
        let names = CLIListing.names(others)
        if !names.isEmpty {
            try untracked(Array(names.prefix(GitWatchLimits.untrackedFiles)), safe, facts, collector)
        }
        try measure(collector)
        let leftOut = names.count - GitWatchLimits.untrackedFiles
        let text = collector.text(more: leftOut > 0 ? DiffText.leftOut(leftOut) : [])
        if branch.hasPrefix("refs/heads/") { branch = String(branch.dropFirst(11)) }
        return RepositorySnapshot(
            branch: branch, origin: Discovery.withoutCredentials(facts.origin), diff: text, layout: links.digest(tree))
    }

    /// What to watch, at and below the given directories (all when empty), in the submodules too.
    func targets(below tops: [GitPath], limit: Int) throws -> [WatchTarget] {
        var asked = 0
        return try targets(below: tops, limit: limit, prefix: [], asked: &asked)
    }

    private func targets(
        below requested: [GitPath], limit: Int, prefix: GitPath, asked: inout Int
    ) throws -> [WatchTarget] {
        let links = GitLinks()
        let listed = try command.run([links.run], in: tree.root)
        if let ended = listed.first, ended.status != 0 { throw CLIListing.failure(ended) }
        let layout = links.layout
        var tops = WatchListing.existing(requested, tree.root)
        if tops.isEmpty, !requested.isEmpty { return [] }
        // What lies in a submodule is for that to say.
        if tops.contains(where: { top in layout.links.contains { $0.isAtOrBelow(top) || top.isAtOrBelow($0) } }) {
            tops = []
        }
        let ignored = try CLIListing.ignoredDirectories(command, tree.root, below: tops)
        var found = try WatchListing(tree: tree, prefix: prefix).targets(below: tops, layout, limit: limit) {
            ignored.contains($0)
        }
        found += GitDirectories.of(tree).map(WatchTarget.git)
        guard tops.isEmpty else { return found }
        for link in layout.links.sorted(by: { $0.lexicographicallyPrecedes($1) }) where found.count <= limit {
            guard let name = String(validating: link, as: UTF8.self),
                let inside = Discovery.workTree(at: "\(tree.root)/\(name)")
            else { continue }
            asked += 1
            let path = prefix.isEmpty ? link : prefix + [UInt8(ascii: "/")] + link
            var all: [WatchTarget]?
            if asked <= GitWatchLimits.submodules {
                do {
                    all = try CLIRepository(command: command, tree: inside).targets(
                        below: [], limit: limit, prefix: path, asked: &asked)
                } catch let error as ScanError where [.refused, .failed].contains(error.code) {
                    // One that git refuses is compared by its commit alone.
                }
            }
            found += all ?? [.inner(path)] + GitDirectories.of(inside).map(WatchTarget.git)
        }
        return found
    }

    /// Untracked files as the CLI shows them. They are put into an index of our own, in a directory of
    /// our own, as files to be added: one process diffs them all, with the repository's attributes.
    private func untracked(_ names: [GitPath], _ safe: [String], _ facts: Facts, _ collector: CLIDiff) throws {
        var template = Array("\(command.environment["TMPDIR"] ?? "/tmp")/wa-git-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { throw ScanError(.failed, "cannot make a temporary directory") }
        let directory = String(cString: made)
        let list = "\(directory)/names"
        let index = "\(directory)/index"
        defer {
            for name in ["names", "index", "index.lock"] { unlink("\(directory)/\(name)") }
            for name in directoryEntries("\(directory)/objects") {
                for file in directoryEntries("\(directory)/objects/\(name)") {
                    unlink("\(directory)/objects/\(name)/\(file)")
                }
                rmdir("\(directory)/objects/\(name)")
            }
            rmdir("\(directory)/objects")
            rmdir(directory)
        }
        mkdir("\(directory)/objects", 0o700)
        guard let file = fopen(list, "we") else { throw ScanError(.failed, "cannot write \(list)") }
        for name in names {
            fwrite(name, 1, name.count, file)
            fputc(0, file)
        }
        fclose(file)
        let extra = [
            "GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": "\(directory)/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": "\(tree.commonDirectory)/objects",
        ]
        let plain = ["-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.fileMode=true"]
        // The prefixes that --no-index has.
        let prefixes = facts.mnemonicPrefix && !facts.noPrefix ? ["--src-prefix=1/", "--dst-prefix=2/"] : []
        let added = try command.run(
            [
                GitCommand.Run(
                    arguments: plain + safe + [
                        "add", "--intent-to-add", "--sparse", "--force", "--ignore-errors",
                        "--pathspec-from-file=\(list)", "--pathspec-file-nul",
                    ], extra: extra, output: { _ in })
            ], in: tree.root)
        // A file that went away meanwhile is an error of add's, and no loss.
        if let ended = added.first, ended.status != 0, access(index, F_OK) != 0 {
            if ended.errors.contains("did not match any files") { return }
            throw CLIListing.failure(ended)
        }
        let ended = try command.run(
            [GitCommand.Run(arguments: plain + safe + Self.diff + prefixes, extra: extra, output: collector.feed)],
            in: tree.root)
        if let ended = ended.first, ended.status != 0 { throw CLIListing.failure(ended) }
        try collector.finish()
    }

    /// Deleted files that were over the limit: only the object store knows their size.
    private func measure(_ collector: CLIDiff) throws {
        let unknown = collector.unmeasured.prefix(GitWatchLimits.filesByCLI)
        for (position, id) in unknown {
            let answer = try command.collect(["cat-file", "-s", id], in: tree.root)
            let text = String(decoding: answer.output.prefix { $0 != 10 }, as: UTF8.self)
            if answer.ended.status == 0, let size = Int(text), size > GitWatchLimits.fileBytes {
                collector.replace(position, with: DiffText.tooLarge(size))
            }
        }
    }

    private func emptyTree() throws -> String {
        // The hash of nothing as a tree, in the repository's own format.
        let answer = try command.collect(["hash-object", "-t", "tree", "--stdin"], in: tree.root)
        guard answer.ended.status == 0 else { throw CLIListing.failure(answer.ended) }
        return String(decoding: answer.output.prefix { $0 != 10 }, as: UTF8.self)
    }

    /// - Parameter bytes: what `git config -z --list` says.
    static func facts(_ bytes: [UInt8]) -> Facts {
        var facts = Facts()
        for entry in bytes.split(separator: 0) {
            let parts = entry.split(separator: 10, maxSplits: 1)
            guard let name = parts.first.map({ String(decoding: $0, as: UTF8.self) }) else { continue }
            let value = parts.count > 1 ? String(decoding: parts[1], as: UTF8.self) : ""
            if name == "remote.origin.url" { facts.origin = value }
            let isOn = parts.count < 2 || ["true", "yes", "on", "1"].contains(value.lowercased())
            if name == "diff.submodule" { facts.submodules = value }
            if name == "diff.mnemonicprefix" { facts.mnemonicPrefix = isOn }
            if name == "diff.noprefix" { facts.noPrefix = isOn }
            if let filter = filter(name) { facts.filters.insert(filter) }
        }
        return facts
    }

    private static func filter(_ key: String) -> String? {
        guard key.lowercased().hasPrefix("filter."), let dot = key.lastIndex(of: ".") else { return nil }
        let name = key[..<dot].dropFirst(7)
        return name.isEmpty ? nil : String(name)
    }

    /// An empty program is none (git's convert.c); what is required is not, or git would refuse.
    static func overrides(_ filters: Set<String>) throws -> [String] {
        // From 2 MiB on git only says that files differ, and we say why nothing is shown.
        var arguments = ["-c", "core.bigFileThreshold=\(GitWatchLimits.fileBytes)"]
        for name in filters.sorted() {
            guard !name.contains("=") else { throw ScanError(.failed, "a filter's name has a =") }
            for key in ["clean", "smudge", "process"] { arguments += ["-c", "filter.\(name).\(key)="] }
            arguments += ["-c", "filter.\(name).required=false"]
        }
        return arguments
    }
}
