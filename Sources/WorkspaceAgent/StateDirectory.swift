import AgentCore
import CPlatform
import Glibc

/// The state directory, held by one daemon at a time: each clears what an earlier one left in it.
struct StateDirectory {
    private let descriptor: CInt
    /// Why it cannot be used, if so.
    let problem: String?

    /// Creates and locks it. A directory that cannot be used is a warning (the capabilities that need
    /// it say what they lack); one that another daemon holds is an error.
    static func open(_ configuration: AgentConfiguration) throws -> StateDirectory {
        let path = configuration.stateDirectory
        do {
            try createDirectories(path, mode: 0o700)
            try requirePrivateDirectory(path)
        } catch {
            return StateDirectory(descriptor: -1, problem: "\(error)")
        }
        // A file of its own: the directory itself may be a socket's too, whose making locks it.
        let descriptor = wa_open("\(path)/.lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot open \(path)/.lock") }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw CommandFailure(message: "another workspace-agent uses \(path); stop it or choose another --state-dir")
        }
        return StateDirectory(descriptor: descriptor, problem: nil)
    }

    func release() { if descriptor >= 0 { close(descriptor) } }
}
