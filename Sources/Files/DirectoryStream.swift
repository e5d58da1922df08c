import Glibc

/// An open directory, read by one thread at a time. Closed when nothing uses it any more.
final class DirectoryStream: Sendable {
    // The pointer never changes; those who share it take turns.
    nonisolated(unsafe) private let stream: OpaquePointer
    /// For calls relative to the directory.
    let descriptor: CInt

    /// Takes over a descriptor, also when it fails.
    init(_ descriptor: CInt, _ path: String) throws(FilesError) {
        guard let stream = fdopendir(descriptor) else {
            let error = errno
            close(descriptor)
            throw FilesError.system(error, "read", path)
        }
        (self.stream, self.descriptor) = (stream, descriptor)
    }

    deinit { closedir(stream) }

    /// The next entry but `.` and `..`; nil at the end.
    func next(_ path: String) throws(FilesError) -> [UInt8]? {
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw FilesError.system(errno, "read", path) }
                return nil
            }
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) {
                    Array(UnsafeRawBufferPointer(start: $0, count: strlen($0)))
                }
            }
            if name != [UInt8(ascii: ".")], name != [UInt8(ascii: "."), UInt8(ascii: ".")] { return name }
        }
    }
}
