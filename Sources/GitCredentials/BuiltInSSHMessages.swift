/// What the client tells on stderr.
struct BuiltInSSHMessages {
    var isVerbose = false

    func say(_ line: String) { SSHMessage.write(line) }

    /// Said with -v only.
    func step(_ line: @autoclosure () -> String) { if isVerbose { say(line()) } }
}
