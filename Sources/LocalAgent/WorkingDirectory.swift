import Glibc

/// The directory that this program runs in, for what is done elsewhere.
package enum WorkingDirectory {
    /// - Throws: ``CommandFailure`` when it is gone.
    package static func path() throws -> String {
        guard let path = getcwd(nil, 0) else {
            throw CommandFailure(message: "there is no working directory any more; cd to one that exists")
        }
        defer { free(path) }
        return String(cString: path)
    }

    /// A path that was typed, from the root on.
    package static func absolute(_ typed: String) throws -> String {
        if typed.utf8.first == UInt8(ascii: "/") { return typed }
        let directory = try path()
        return typed.isEmpty || typed == "." ? directory : (directory == "/" ? "" : directory) + "/" + typed
    }
}
