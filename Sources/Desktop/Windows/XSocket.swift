import AgentCore
import Glibc

/// Connects to the X servers of this machine.
enum XSocket {
    /// Another user may have made a socket under the name of a display, so only those of this user and of root
    /// are used. Never waits: a server that hangs accepts as many connections as its queue has room for.
    /// - Parameter display: such as `:3` or `:3.0`.
    /// - Returns: a descriptor that closes on exec and is the caller's.
    /// - Throws: ``DesktopError`` `.failed`.
    static func connect(to display: String) throws(DesktopError) -> CInt {
        guard let number = number(of: display) else {
            throw DesktopError(.failed, "\(display) is not an X display on this machine.")
        }
        let path = "/tmp/.X11-unix/X\(number)"
        do {
            return try connect(to: path, isAbstract: false)
        } catch {
            // Where the directory was emptied, or is another user's.
            if let descriptor = try? connect(to: path, isAbstract: true) { return descriptor }
            throw error
        }
    }

    /// `:N` and `:N.S`, of which the screen is not used: Xvnc has one.
    static func number(of display: String) -> UInt16? {
        guard display.first == ":" else { return nil }
        let parts = display.dropFirst().split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        guard let number = parts.first, number.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        if parts.count == 2, UInt16(parts[1]) == nil { return nil }
        return UInt16(number)
    }

    private static func connect(to path: String, isAbstract: Bool) throws(DesktopError) -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        // An abstract name begins with a NUL and has no other at its end.
        let name = (isAbstract ? [0] : []) + Array(path.utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
        let length = MemoryLayout<sa_family_t>.size + name.count + (isAbstract ? 0 : 1)
        let options = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue) | CInt(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, options, 0)
        guard descriptor >= 0 else {
            throw DesktopError(.failed, "cannot create a socket for the X server: \(errnoText(errno))")
        }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(length))
            }
        }
        guard rc == 0 else {
            let why = errno == EAGAIN ? "its queue of connections is full; it may hang" : errnoText(errno)
            close(descriptor)
            throw DesktopError(.failed, "The X server at \(path) does not accept connections.", detail: why)
        }
        let peer = PeerCredentials.of(descriptor)
        guard peer?.mayUse(socketOf: geteuid()) == true else {
            close(descriptor)
            throw DesktopError(
                .failed, "The X server at \(path) is another user's.",
                detail: peer.map { "It belongs to uid \($0.uid)." })
        }
        return descriptor
    }
}
