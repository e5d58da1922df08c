/// Ends a command with one line on stderr.
package struct CommandFailure: Error, CustomStringConvertible {
    package var message: String
    /// The exit code.
    package var code: Int32
    /// Whether it is the connection to the agent that failed: another try may succeed.
    package var isLost: Bool

    package init(message: String, code: Int32 = 1, isLost: Bool = false) {
        self.message = message
        self.code = code
        self.isLost = isLost
    }

    /// As part of another message.
    package var description: String { message }
}
