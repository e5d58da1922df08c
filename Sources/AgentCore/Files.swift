import CPlatform
import Glibc

/// The bytes of a small regular file such as those of /proc, or nil when it cannot be read. At most 16 MiB
/// are read. What another user may have put in its place (a FIFO, a device) is not waited for.
public func readFile(_ path: String) -> [UInt8]? {
    let fd = wa_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0)
    guard fd >= 0 else { return nil }
    defer { close(fd) }
    var info = stat()
    guard fstat(fd, &info) == 0, info.st_mode & S_IFMT == S_IFREG else { return nil }
    return withUnsafeTemporaryAllocation(byteCount: 8 << 10, alignment: 16) { area in
        var bytes: [UInt8] = []
        while bytes.count < 16 << 20, case let count = wa_read(fd, area.baseAddress, area.count), count > 0 {
            bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: area[..<count]))
        }
        return bytes
    }
}

/// As ``readFile(_:)``, as text; bytes that are not UTF-8 become U+FFFD.
public func readTextFile(_ path: String) -> String? {
    readFile(path).map { String(decoding: $0, as: UTF8.self) }
}

/// The names in a directory without `.` and `..`, in no order; empty when it cannot be read.
public func directoryEntries(_ path: String) -> [String] {
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
            $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != "." && name != ".." { names.append(name) }
    }
    return names
}

/// Where a program starts that may run elsewhere when its directory is missing: in the wanted directory, or
/// at home when that is no directory that this user may enter. Blocks on the disk.
/// - Returns: the directory, and the wanted one when it cannot be used.
public func usableDirectory(_ wanted: String?, home: String) -> (path: String, missing: String?) {
    guard let wanted, !wanted.isEmpty else { return (home, nil) }
    var info = stat()
    let isUsable = stat(wanted, &info) == 0 && info.st_mode & S_IFMT == S_IFDIR && access(wanted, X_OK) == 0
    return isUsable ? (wanted, nil) : (home, wanted)
}
