import AgentCore
import CPlatform
import Glibc

/// An open directory. What is named below it is found without following a symbolic link and without leaving it,
/// whatever other processes do to the tree meanwhile. Closed when nothing uses it any more.
final class OpenDirectory: Sendable {
    private let descriptor: OwnedDescriptor
    /// Whether paths are walked component by component, as on kernels without openat2.
    private let walks: Bool

    /// Takes over a descriptor.
    init(_ descriptor: consuming OwnedDescriptor, walks: Bool = false) {
        self.descriptor = descriptor
        self.walks = walks
    }

    var number: CInt { descriptor.number }

    /// - Parameter path: relative, without `..`; links are not followed.
    /// - Returns: a descriptor, or -errno.
    func open(_ path: [UInt8], _ flags: CInt, _ mode: UInt32 = 0) -> CInt {
        withName(path) { wa_open_beneath(number, $0, flags, mode, walks) }
    }

    /// A directory below this one; the empty path is this one.
    /// - Parameter flags: `O_PATH` is enough to name what is in it; to list or change it, it must be readable.
    /// - Returns: -errno as the failure.
    func directory(_ path: [UInt8], _ flags: CInt = CInt(WA_O_PATH)) -> Result<OpenDirectory, SystemFailure> {
        let opened = open(path.isEmpty ? [UInt8(ascii: ".")] : path, flags | O_DIRECTORY)
        guard opened >= 0 else { return .failure(SystemFailure(number: -opened)) }
        return .success(OpenDirectory(OwnedDescriptor(opened), walks: walks))
    }

    /// What an entry of this directory is; a link is not followed. nil when there is none.
    func info(_ name: [UInt8]) -> stat? {
        var info = stat()
        return withName(name) { fstatat(number, $0, &info, AT_SYMLINK_NOFOLLOW) } == 0 ? info : nil
    }
}

/// The errno of a system call.
struct SystemFailure: Error {
    var number: CInt
}
