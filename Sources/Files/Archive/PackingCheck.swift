import AgentCore
import Glibc

/// Looks at what an archive is to be made of before it is begun, so that what is in the way is told in time. Used by
/// one thread at a time.
final class PackingCheck {
    private let source: Packer.Source
    private let limits: ArchiveLimits
    private var walk: PackWalk?
    private var bytes = TarBlock.end.count
    private var unreadable: (first: FilesError, count: Int)?

    /// - Throws: ``FilesError`` `.tooLarge`.
    init(_ source: Packer.Source, limits: ArchiveLimits) throws(FilesError) {
        (self.source, self.limits) = (source, limits)
        switch source.content {
        case .file(let file): try count(PackWalk.entry(source.name, .file, file.info))
        case .tree(let root): walk = PackWalk(root, path: source.path, limits: limits)
        }
    }

    /// Looks at some more.
    /// - Returns: whether there is more.
    func step(_ steps: Int = 2_000) throws(FilesError) -> Bool {
        for _ in 0..<steps {
            switch try walk?.step() {
            case nil: return false
            case .unreadable(let name, let number): note(name, number)
            case .entry(var entry):
                if entry.kind == .file, case .tree(let root) = source.content {
                    let result = withName(entry.name) { faccessat(root.number, $0, R_OK, 0) }
                    if result == -EACCES { note(entry.name, EACCES) }
                }
                entry.name = source.full(entry.name)
                try count(entry)
            }
        }
        return true
    }

    /// - Throws: ``FilesError`` that names the first thing that may not be read.
    func requireReadable() throws(FilesError) {
        guard let unreadable else { return }
        let others = unreadable.count == 1 ? "" : " (and \(unreadable.count - 1) more)"
        throw FilesError(
            unreadable.first.code,
            "\(unreadable.first.message)\(others); add skip_unreadable=true to leave out what may not be read")
    }

    private func count(_ entry: TarEntry) throws(FilesError) {
        bytes += TarWriter.header(entry).count + entry.size + TarBlock.padding(of: entry.size)
        guard bytes <= limits.bytes else { throw limits.tooManyBytes }
    }

    private func note(_ name: [UInt8], _ number: CInt) {
        let first = unreadable?.first ?? FilesError.system(number, "open", source.place(name))
        unreadable = (first, (unreadable?.count ?? 0) + 1)
    }
}
