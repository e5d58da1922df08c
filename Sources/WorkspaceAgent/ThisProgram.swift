import Glibc

/// The running executable.
enum ThisProgram {
    /// Its absolute path.
    static let path: String = {
        var path = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/self/exe", &path, path.count - 1)
        guard count > 0 else { return "workspace-agent" }
        return String(decoding: path.prefix(count).map(UInt8.init(bitPattern:)), as: UTF8.self)
    }()
}
