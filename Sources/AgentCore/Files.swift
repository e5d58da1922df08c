import CPlatform
import Glibc

/// The text of a small file such as those of /proc, or nil when it cannot be read. Bytes that are
/// not UTF-8 become U+FFFD. At most 16 MiB are read.
public func readTextFile(_ path: String) -> String? {
    let fd = wa_open(path, O_RDONLY, 0)
    guard fd >= 0 else { return nil }
    defer { close(fd) }
    var bytes: [UInt8] = []
    let chunk = 16 << 10
    while bytes.count < 16 << 20 {
        let start = bytes.count
        var count = 0
        bytes.append(contentsOf: repeatElement(0, count: chunk))
        bytes.withUnsafeMutableBytes { area in
            count = wa_read(fd, area.baseAddress.map { $0 + start }, chunk)
        }
        bytes.removeLast(chunk - max(count, 0))
        if count <= 0 { break }
    }
    return String(decoding: bytes, as: UTF8.self)
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
