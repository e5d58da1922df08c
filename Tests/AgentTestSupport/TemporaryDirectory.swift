import Glibc

/// A directory that goes away with the value that holds it.
public final class TemporaryDirectory: Sendable {
    public let path: String

    public init() throws {
        var template = Array("/tmp/wa-test-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { throw DeadlineExceeded(what: "mkdtemp") }
        path = String(cString: made)
    }

    deinit { Self.remove(path) }

    private static func remove(_ path: String) {
        var info = stat()
        guard lstat(path, &info) == 0 else { return }
        guard info.st_mode & S_IFMT == S_IFDIR else {
            unlink(path)
            return
        }
        if let directory = opendir(path) {
            while let entry = readdir(directory) {
                let name = withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                }
                if name != "." && name != ".." { remove("\(path)/\(name)") }
            }
            closedir(directory)
        }
        rmdir(path)
    }
}
