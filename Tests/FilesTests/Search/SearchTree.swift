import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization

@testable import Files

/// A tree of files that goes away with the value that holds it.
final class SearchTree: Sendable {
    private let directory: TemporaryDirectory
    var root: String { "\(directory.path)/tree" }
    /// Beside the tree.
    var outside: String { "\(directory.path)/outside" }

    /// - Parameter files: contents by path below the root; a path that ends with a slash is a directory.
    init(_ files: [String: String] = [:]) throws {
        directory = try TemporaryDirectory()
        mkdir("\(directory.path)/tree", 0o755)
        mkdir("\(directory.path)/outside", 0o755)
        for (path, text) in files { try write(path, text) }
    }

    func write(_ path: String, _ text: String = "") throws { try write(path, Array(text.utf8)) }

    func write(_ path: String, _ bytes: [UInt8]) throws {
        let full = "\(root)/\(path)"
        let parent = path.hasSuffix("/") ? full : LexicalPath.parent(full)
        try FileManager.default.createDirectory(atPath: parent, withIntermediateDirectories: true)
        if !path.hasSuffix("/") { try Data(bytes).write(to: URL(fileURLWithPath: full)) }
    }

    func link(_ path: String, to target: String) { symlink(target, "\(root)/\(path)") }

    func fifo(_ path: String) { mkfifo("\(root)/\(path)", 0o600) }

    /// All that a walk comes upon, in the order of bytes; links end with "@".
    func walk(
        _ below: String = "", pattern: String? = nil, ignoreFiles: IgnoreFiles? = .init { _ in nil }, threads: Int = 1,
        onVisit: @escaping @Sendable (String) -> Bool = { _ in true }
    ) throws -> (paths: [String], isIncomplete: Bool) {
        let pattern = try pattern.map { try GlobPattern($0) }
        guard let root = try TreeRoot(root + below, pattern: pattern, ignoreFiles: ignoreFiles) else {
            return ([], false)
        }
        let names = Names(prefix: root.prefix, onVisit: onVisit)
        let walk = TreeWalk(root, pattern: pattern, ignoreFiles: ignoreFiles, visitor: names)
        DispatchQueue.concurrentPerform(iterations: threads) { _ in
            // An idle thread simply asks again.
            let idle = Wakeup()
            while walk.work(1, idle) != .end {}
        }
        let paths = names.paths.withLock { $0 }
        return (paths.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }, walk.isIncomplete)
    }

    private final class Names: TreeVisitor {
        let paths = Mutex<[String]>([])
        let prefix: Int
        let onVisit: @Sendable (String) -> Bool

        init(prefix: Int, onVisit: @escaping @Sendable (String) -> Bool) {
            (self.prefix, self.onVisit) = (prefix, onVisit)
        }

        func visit(
            _ entry: TreeEntry, _ buffer: inout ScratchBuffer, until end: ContinuousClock.Instant
        ) -> TreeVisit {
            let path = PathText.text(entry.path[prefix...])
            paths.withLock { $0.append(path + (entry.kind == .link ? "@" : "")) }
            return onVisit(path) ? .done : .enough
        }
    }
}
