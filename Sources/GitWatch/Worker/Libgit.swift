import CLibgit2
import Glibc

/// libgit2 as the worker uses it. Not thread-safe: one thread of the worker has all of it.
final class Libgit {
    let api: wg_api

    private init(_ api: wg_api) { self.api = api }

    /// nil with the reason when the library is not installed.
    static func load() -> (library: Libgit?, reason: String) {
        var why = [CChar](repeating: 0, count: 256)
        let capacity = why.count
        guard let api = wg_load(GitWatchLimits.mappedPackBytes, &why, capacity) else {
            return (nil, String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self))
        }
        return (Libgit(api.pointee), "")
    }

    /// - Throws: ``ScanError`` for a negative return code.
    @discardableResult
    func check(_ code: Int32, _ what: String) throws(ScanError) -> Int32 {
        guard code < 0 else { return code }
        let text = api.git_error_last().flatMap { $0.pointee.message }.map { String(cString: $0) } ?? "error \(code)"
        let isLock = code == GIT_ELOCKED.rawValue || code == GIT_EMODIFIED.rawValue
        throw ScanError(isLock ? .transient : .needsCLI, "\(what): \(text)")
    }

    static func hex(_ id: git_oid) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return withUnsafeBytes(of: id.id) { bytes in
            String(
                decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
        }
    }
}

/// An open repository of libgit2, its index and the tree of its HEAD.
final class LibgitHandle {
    let library: Libgit
    private let repository: OpaquePointer
    private let index: OpaquePointer
    private let objects: OpaquePointer
    /// nil while HEAD is unborn.
    private let headTree: OpaquePointer?
    private let fileMode: Bool
    private let autocrlf: Bool
    private let configuredFilters: Set<String>
    let origin: String

    private var api: wg_api { library.api }

    /// - Throws: `.needsCLI` for what libgit2 cannot read right.
    init(_ library: Libgit, _ tree: WorkTree) throws(ScanError) {
        self.library = library
        let api = library.api
        if getenv("GIT_CONFIG_GLOBAL") != nil || getenv("GIT_CONFIG_SYSTEM") != nil {
            throw ScanError(.needsCLI, "configuration files that only git knows")
        }
        var repository: OpaquePointer?
        try library.check(api.git_repository_open(&repository, tree.root), "cannot open")
        guard let repository else { throw ScanError(.failed, "cannot open \(tree.root)") }
        var index: OpaquePointer?
        var objects: OpaquePointer?
        var head: OpaquePointer?
        do throws(ScanError) {
            let settings = try Settings(library, repository)
            try library.check(api.git_repository_index(&index, repository), "cannot read the index")
            try library.check(api.git_repository_odb(&objects, repository), "cannot read objects")
            guard let index, objects != nil else { throw ScanError(.failed, "cannot read \(tree.root)") }
            try Self.examine(index, api)
            head = try Self.headTree(library, repository)
            (fileMode, autocrlf) = (settings.fileMode, settings.autocrlf)
            (configuredFilters, origin) = (settings.filters, settings.origin)
        } catch {
            if let head { api.git_tree_free(head) }
            if let objects { api.git_odb_free(objects) }
            if let index { api.git_index_free(index) }
            api.git_repository_free(repository)
            throw error
        }
        guard let index, let objects else { throw ScanError(.failed, "cannot read \(tree.root)") }
        (self.repository, self.index, self.objects, headTree) = (repository, index, objects, head)
    }

    deinit {
        if let headTree { api.git_tree_free(headTree) }
        api.git_odb_free(objects)
        api.git_index_free(index)
        api.git_repository_free(repository)
    }

    // MARK: What decides for the CLI

    private struct Settings {
        var fileMode = true
        var autocrlf = false
        var filters: Set<String> = []
        var origin = ""

        /// Settings of `diff.` that change nothing in what we print.
        private static let harmless: Set<String> = [
            "diff.renames", "diff.renamelimit", "diff.tool", "diff.guitool", "diff.autorefreshindex",
            "diff.colormoved", "diff.colormovedws", "diff.statgraphwidth", "diff.wserrorhighlight",
            "diff.external", "diff.wordregex",
        ]

        init(_ library: Libgit, _ repository: OpaquePointer) throws(ScanError) {
            let api = library.api
            var config: OpaquePointer?
            try library.check(api.git_repository_config_snapshot(&config, repository), "cannot read the configuration")
            guard let config else { throw ScanError(.failed, "no configuration") }
            defer { api.git_config_free(config) }
            var iterator: OpaquePointer?
            try library.check(api.git_config_iterator_new(&iterator, config), "cannot read the configuration")
            guard let iterator else { throw ScanError(.failed, "no configuration") }
            defer { api.git_config_iterator_free(iterator) }
            var entry: UnsafeMutablePointer<git_config_entry>?
            while api.git_config_next(&entry, iterator) == 0, let found = entry?.pointee {
                try read(String(cString: found.name), found.value.map { String(cString: $0) })
            }
        }

        private mutating func read(_ name: String, _ value: String?) throws(ScanError) {
            let key = name.lowercased()
            let isOn = value.map { ["true", "yes", "on", "1"].contains($0.lowercased()) } ?? true
            switch key {
            case "core.filemode": fileMode = isOn
            case "core.autocrlf": autocrlf = isOn || value?.lowercased() == "input"
            case "remote.origin.url": origin = value ?? ""
            case "core.symlinks": if !isOn { throw ScanError(.needsCLI, key) }
            case "core.ignorecase", "core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse":
                if isOn { throw ScanError(.needsCLI, key) }
            case "core.worktree", "core.bare": if key == "core.worktree" || isOn { throw ScanError(.needsCLI, key) }
            case _ where key.hasPrefix("diff."):
                // `diff.NAME.…` counts only where an attribute names it, which is looked at there.
                if key.split(separator: ".").count == 2, !Self.harmless.contains(key) {
                    throw ScanError(.needsCLI, key)
                }
            case _ where key.hasPrefix("filter."):
                if let last = name.lastIndex(of: ".") {
                    filters.insert(String(name[..<last].dropFirst(7)))
                }
            default: break
            }
        }
    }

    private static func examine(_ index: OpaquePointer, _ api: wg_api) throws(ScanError) {
        if api.git_index_has_conflicts(index) != 0 { throw ScanError(.needsCLI, "conflicts") }
        for position in 0..<api.git_index_entrycount(index) {
            guard let entry = api.git_index_get_byindex(index, position)?.pointee else { continue }
            if entry.mode & 0o170000 == 0o160000 { throw ScanError(.needsCLI, "submodules") }
            // Skip-worktree, intent-to-add, assume-unchanged, and directories of a sparse index.
            if entry.flags_extended & 0x6000 != 0 || entry.flags & 0x8000 != 0 || entry.mode & 0o170000 == 0o040000 {
                throw ScanError(.needsCLI, "special index entries")
            }
        }
    }

    private static func headTree(_ library: Libgit, _ repository: OpaquePointer) throws(ScanError) -> OpaquePointer? {
        let api = library.api
        var id = git_oid()
        let found = api.git_reference_name_to_id(&id, repository, "HEAD")
        if found == GIT_ENOTFOUND.rawValue || found == GIT_EUNBORNBRANCH.rawValue { return nil }
        try library.check(found, "cannot read HEAD")
        var commit: OpaquePointer?
        try library.check(api.git_commit_lookup(&commit, repository, &id), "cannot read HEAD's commit")
        defer { if let commit { api.git_commit_free(commit) } }
        var tree: OpaquePointer?
        try library.check(api.git_commit_tree(&tree, commit), "cannot read HEAD's tree")
        return tree
    }

    // MARK: Looking things up

    /// Where the index has files.
    func layout() -> IndexLayout {
        var layout = IndexLayout()
        for position in 0..<api.git_index_entrycount(index) {
            guard let path = api.git_index_get_byindex(index, position)?.pointee.path else { continue }
            layout.add(UnsafeRawBufferPointer(start: path, count: strlen(path)), isLink: false)
        }
        return layout
    }

    struct Entry: Equatable {
        var mode: UInt32
        var id: git_oid
        static func == (a: Entry, b: Entry) -> Bool { a.mode == b.mode && Libgit.hex(a.id) == Libgit.hex(b.id) }
    }

    func inHead(_ path: GitPath) throws(ScanError) -> Entry? {
        guard let headTree else { return nil }
        var entry: OpaquePointer?
        let found = api.git_tree_entry_bypath(&entry, headTree, Self.cString(path))
        if found == GIT_ENOTFOUND.rawValue { return nil }
        try library.check(found, "cannot read HEAD's tree")
        guard let entry, let id = api.git_tree_entry_id(entry)?.pointee else { return nil }
        defer { api.git_tree_entry_free(entry) }
        let mode = UInt32(api.git_tree_entry_filemode_raw(entry).rawValue)
        if mode & 0o170000 == 0o040000 { return nil }
        // As git canonicalizes modes of old trees.
        let kind = mode & 0o170000
        return Entry(mode: kind == 0o100000 ? (mode & 0o100 != 0 ? 0o100755 : 0o100644) : kind, id: id)
    }

    func inIndex(_ path: GitPath) -> Entry? {
        guard let entry = api.git_index_get_bypath(index, Self.cString(path), 0)?.pointee else { return nil }
        return Entry(mode: entry.mode, id: entry.id)
    }

    func indexEntry(_ path: GitPath) -> git_index_entry? {
        api.git_index_get_bypath(index, Self.cString(path), 0)?.pointee
    }

    func isIgnored(_ path: GitPath, directory: Bool = false) throws(ScanError) -> Bool {
        var ignored: Int32 = 0
        let name = directory ? path + [UInt8(ascii: "/")] : path
        try library.check(
            api.git_ignore_path_is_ignored(&ignored, repository, Self.cString(name)), "cannot read ignore rules")
        return ignored != 0
    }

    func size(_ id: git_oid) throws(ScanError) -> Int {
        var length = 0
        var type = GIT_OBJECT_ANY
        var id = id
        try library.check(api.git_odb_read_header(&length, &type, objects, &id), "cannot read an object")
        return length
    }

    func content(_ id: git_oid) throws(ScanError) -> [UInt8] {
        var object: OpaquePointer?
        var id = id
        try library.check(api.git_odb_read(&object, objects, &id), "cannot read an object")
        guard let object else { return [] }
        defer { api.git_odb_object_free(object) }
        let count = api.git_odb_object_size(object)
        guard count > 0, let data = api.git_odb_object_data(object) else { return [] }
        return Array(UnsafeRawBufferPointer(start: data, count: count))
    }

    func hash(_ bytes: [UInt8]) throws(ScanError) -> String {
        var id = git_oid()
        let code = bytes.withUnsafeBytes {
            api.git_odb_hash(&id, $0.baseAddress ?? UnsafeRawPointer(bitPattern: 1), $0.count, GIT_OBJECT_BLOB)
        }
        try library.check(code, "cannot hash")
        return Libgit.hex(id)
    }

    struct Attributes {
        var endings = LineEndings.Action.binary
        var kind = DiffText.Kind.automatic
    }

    /// - Throws: `.needsCLI` when only git can convert or diff the file.
    func attributes(_ path: GitPath) throws(ScanError) -> Attributes {
        let names = ["text", "crlf", "eol", "diff", "filter", "ident", "working-tree-encoding"]
        let pointers = names.map { strdup($0) }
        defer { for pointer in pointers { free(pointer) } }
        var constant: [UnsafePointer<CChar>?] = pointers.map { UnsafePointer($0) }
        var values = [UnsafePointer<CChar>?](repeating: nil, count: names.count)
        try library.check(
            api.git_attr_get_many(&values, repository, 0, Self.cString(path), names.count, &constant),
            "cannot read attributes")
        let found = values.map { value -> LineEndings.Attribute in
            switch api.git_attr_value(value) {
            case GIT_ATTR_VALUE_TRUE: .set
            case GIT_ATTR_VALUE_FALSE: .unset
            case GIT_ATTR_VALUE_STRING: value.map { .value(String(cString: $0)) } ?? .unspecified
            default: .unspecified
            }
        }
        if case .value(let name) = found[4], configuredFilters.contains(name) {
            throw ScanError(.needsCLI, "filter \(name)")
        }
        if found[5] == .set { throw ScanError(.needsCLI, "attribute ident") }
        if case .value = found[6] { throw ScanError(.needsCLI, "attribute working-tree-encoding") }
        var result = Attributes()
        switch found[3] {
        case .set: result.kind = .text
        case .unset: result.kind = .binary
        case .value: throw ScanError(.needsCLI, "attribute diff=…")
        case .unspecified: break
        }
        result.endings = LineEndings.action(text: found[0], crlf: found[1], eol: found[2], autocrlf: autocrlf)
        return result
    }

    /// The mode that git gives a work tree file; `--no-index` knows nothing of core.fileMode.
    func mode(of info: stat, indexed: Entry?) -> UInt32 {
        if info.st_mode & S_IFMT == S_IFLNK { return 0o120000 }
        if !fileMode, let indexed {
            return indexed.mode & 0o170000 == 0o100000 ? indexed.mode : 0o100644
        }
        return info.st_mode & 0o100 != 0 ? 0o100755 : 0o100644
    }

    // MARK: Listing and diffing

    struct Listing {
        var tracked: Set<GitPath> = []
        var untracked: Set<GitPath> = []
    }

    /// Paths below the given ones (all when empty) that may differ from HEAD, and untracked files.
    func list(_ paths: [GitPath], untracked: Bool) throws(ScanError) -> Listing {
        var options = git_diff_options()
        try library.check(api.git_diff_options_init(&options, UInt32(GIT_DIFF_OPTIONS_VERSION)), "cannot list")
        let pointers = paths.map { strdup(Self.cString($0).map { CChar($0) }) }
        defer { for pointer in pointers { free(pointer) } }
        var specs = pointers
        options.flags = GIT_DIFF_DISABLE_PATHSPEC_MATCH.rawValue | GIT_DIFF_SKIP_BINARY_CHECK.rawValue
        if untracked {
            options.flags |= GIT_DIFF_INCLUDE_UNTRACKED.rawValue | GIT_DIFF_RECURSE_UNTRACKED_DIRS.rawValue
        }
        options.ignore_submodules = GIT_SUBMODULE_IGNORE_ALL
        var listing = Listing()
        let count = specs.count
        var staged: OpaquePointer?
        var unstaged: OpaquePointer?
        let codes = specs.withUnsafeMutableBufferPointer { buffer in
            options.pathspec = git_strarray(strings: buffer.baseAddress, count: count)
            let first = api.git_diff_tree_to_index(&staged, repository, headTree, index, &options)
            let second = first < 0 ? 0 : api.git_diff_index_to_workdir(&unstaged, repository, index, &options)
            return [first, second]
        }
        defer {
            if let staged { api.git_diff_free(staged) }
            if let unstaged { api.git_diff_free(unstaged) }
        }
        for code in codes { try library.check(code, "cannot compare") }
        for diff in [staged, unstaged] {
            guard let diff else { continue }
            for position in 0..<api.git_diff_num_deltas(diff) {
                guard let delta = api.git_diff_get_delta(diff, position)?.pointee,
                    let name = delta.new_file.path ?? delta.old_file.path
                else { continue }
                let path = Array(
                    UnsafeBufferPointer(
                        start: UnsafeRawPointer(name).assumingMemoryBound(to: UInt8.self), count: strlen(name)))
                // A trailing slash is a repository inside this one.
                if delta.status == GIT_DELTA_UNTRACKED {
                    if path.last != UInt8(ascii: "/") { listing.untracked.insert(path) }
                } else {
                    listing.tracked.insert(path)
                }
            }
        }
        return listing
    }

    /// Hunks between two contents, neither of them empty.
    func hunks(_ old: [UInt8], _ new: [UInt8], _ out: inout DiffText.BoundedBytes) throws(ScanError) {
        let bytes = try DiffBytes(old, new)
        let (old, new) = (bytes.replace(old), bytes.replace(new))
        let collector = HunkCollector(out, bytes)
        var options = git_diff_options()
        try library.check(api.git_diff_options_init(&options, UInt32(GIT_DIFF_OPTIONS_VERSION)), "cannot diff")
        options.flags = GIT_DIFF_FORCE_TEXT.rawValue | GIT_DIFF_INDENT_HEURISTIC.rawValue
        options.context_lines = 3
        let code = old.withUnsafeBytes { old in
            new.withUnsafeBytes { new in
                api.git_diff_buffers(
                    old.baseAddress, old.count, nil, new.baseAddress, new.count, nil, &options, nil, nil,
                    { _, hunk, payload in
                        guard let hunk = hunk?.pointee, let payload else { return 0 }
                        let collector = Unmanaged<HunkCollector>.fromOpaque(payload).takeUnretainedValue()
                        withUnsafeBytes(of: hunk.header) {
                            collector.append(UnsafeRawBufferPointer(rebasing: $0.prefix(hunk.header_len)))
                        }
                        return 0
                    },
                    { _, _, line, payload in
                        guard let line = line?.pointee, let payload, let content = line.content else { return 0 }
                        let collector = Unmanaged<HunkCollector>.fromOpaque(payload).takeUnretainedValue()
                        // The other origins are notes about missing ends of lines, complete as they are.
                        let origin = UInt8(bitPattern: line.origin)
                        if [UInt8(ascii: " "), UInt8(ascii: "+"), UInt8(ascii: "-")].contains(origin) {
                            collector.append(sign: origin)
                        }
                        collector.append(UnsafeRawBufferPointer(start: content, count: line.content_len))
                        return 0
                    },
                    Unmanaged.passUnretained(collector).toOpaque())
            }
        }
        try library.check(code, "cannot diff")
        out = collector.out
    }

    private static func cString(_ path: GitPath) -> [CChar] { path.map { CChar(bitPattern: $0) } + [0] }
}
