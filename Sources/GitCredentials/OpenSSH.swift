import AgentCore
import CPlatform
import Glibc

/// OpenSSH's client as git's ssh, with the control plane's key behind the user's own.
package struct OpenSSH {
    let program: String

    /// - Parameter environment: its PATH is searched.
    /// - Returns: nil when there is no `ssh`.
    package init?(environment: [String: String]) {
        let path = environment["PATH"] ?? EnvironmentBuilder.defaultPath
        guard let program = findExecutable("ssh", in: path.split(separator: ":").map(String.init)) else { return nil }
        self.program = program
    }

    /// Runs ssh with the arguments as they came, on this process's stdin, stdout and stderr.
    /// - Parameter key: tried after the identities that ssh has without us; nil for none.
    /// - Returns: ssh's exit code.
    package func run(_ arguments: RawArguments, key: GitKey?) throws(CoreError) -> Int32 {
        guard let key else {
            return try ForegroundProgram.run(program, [], arguments).code
        }
        return try run(arguments, key, KeyInMemory.holding(key))
    }

    private func run(_ arguments: RawArguments, _ key: GitKey, _ file: borrowing KeyInMemory) throws(CoreError) -> Int32
    {
        guard let settings = CapturedProgram.output(of: program, ["-G"], arguments) else {
            // It will say what is wrong with its arguments or settings.
            return try ForegroundProgram.run(program, [], arguments).code
        }
        let target = SSHTarget(settings)
        // Or ssh would hand our key to the user's agent, which keeps it and may be on another machine.
        let own = ["-o", "AddKeysToAgent=no"] + (target.identities + [file.path]).flatMap(Self.identityOption)
        let first = try ForegroundProgram.run(program, own, arguments)
        guard first.code == 255 else { return first.code }
        guard target.tookNoMoreKeys(first.errors) else {
            advise(first, key, target)
            return first.code
        }
        // The server counts each key that it refuses (MaxAuthTries), and the user's own came first. Nothing was read
        // from stdin yet, since no session began.
        SSHMessage.write("the server took no more keys before the control plane's had its turn; trying with that alone")
        let alone = ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"] + Self.identityOption(file.path)
        let second = try ForegroundProgram.run(program, alone, arguments)
        advise(second, key, target)
        return second.code
    }

    /// Quoted as ssh_config(5) has it: a name may hold blanks.
    private static func identityOption(_ file: String) -> [String] { ["-o", "IdentityFile=\"\(file)\""] }

    private func advise(_ outcome: ForegroundProgram.Outcome, _ key: GitKey, _ target: SSHTarget) {
        guard outcome.code == 255, target.refusedAllKeys(outcome.errors) else { return }
        for line in KeyAdvice.lines(publicKey: key.publicKey, user: target.user, host: target.host) {
            SSHMessage.write(line)
        }
    }
}

/// A file in memory that holds the private key for as long as this lives; it is on no disk. Readable by this user alone,
/// or ssh would refuse it.
struct KeyInMemory: ~Copyable {
    private let file: OwnedDescriptor

    /// - Throws: `CoreError` when the kernel gives no memory for it.
    static func holding(_ key: GitKey) throws(CoreError) -> KeyInMemory {
        let descriptor = wa_memfd("git-ssh-key")
        guard descriptor >= 0 else { throw CoreError.system(descriptor, "cannot hold the key in memory") }
        let file = KeyInMemory(file: OwnedDescriptor(descriptor))
        var text = Array(key.privateKey.reveal().utf8)
        // ssh wants the last line to have an end.
        if text.last != UInt8(ascii: "\n") { text.append(UInt8(ascii: "\n")) }
        let failure = text.withUnsafeBytes { writeAll($0, to: descriptor) }
        guard failure == 0 else { throw CoreError.system(failure, "cannot hold the key in memory") }
        return file
    }

    /// Where ssh finds it: it closes the descriptors that it inherits, and opens ours through /proc.
    var path: String { "/proc/\(getpid())/fd/\(file.number)" }
}
