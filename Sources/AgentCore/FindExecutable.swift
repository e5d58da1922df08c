import Glibc

/// The first executable file of a name in the absolute ones of the directories. Blocks.
package func findExecutable(_ name: String, in directories: [String]) -> String? {
    directories.filter { $0.hasPrefix("/") }.map { "\($0)/\(name)" }.first { candidate in
        var info = stat()
        return stat(candidate, &info) == 0 && info.st_mode & S_IFMT == S_IFREG && access(candidate, X_OK) == 0
    }
}
