import AgentCore
import Glibc
import LocalAgent

/// The state directory, held by one daemon at a time: each clears what an earlier one left in it.
struct StateDirectory {
    private let descriptor: CInt
    /// Why it cannot be used, if so.
    let problem: String?

    /// Creates and locks it. A directory that cannot be made or written is a problem without which the daemon works (the
    /// capabilities that need it say what they lack): a read-only file system, a full one, one of root's. One that another daemon holds is an error, and so is one that other users could have filled:
    /// scripts below it come first in the PATH of every child.
    static func open(_ path: String) throws -> StateDirectory {
        do {
            try createDirectories(path, mode: 0o700)
        } catch {
            return StateDirectory(descriptor: -1, problem: "\(error)")
        }
        do {
            try requirePrivateDirectory(path)
        } catch {
            throw CommandFailure(message: "the state directory cannot be used: \(error); or choose another --state-dir")
        }
        // A file of its own: the directory itself may be a socket's too, whose making locks it.
        let descriptor: CInt
        do {
            descriptor = try OwnFile.open("\(path)/.lock", O_RDWR | O_CREAT)
        } catch {
            guard case .system = error.code else { throw error }
            return StateDirectory(descriptor: -1, problem: "\(error)")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw CommandFailure(message: "another workspace-agent uses \(path); stop it or choose another --state-dir")
        }
        return StateDirectory(descriptor: descriptor, problem: nil)
    }

    func release() { if descriptor >= 0 { close(descriptor) } }
}
