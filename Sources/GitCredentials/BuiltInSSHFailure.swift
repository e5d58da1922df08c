/// Why there is no connection, in lines for a person.
struct BuiltInSSHFailure: Error, Equatable {
    var lines: [String]

    init(_ lines: String...) { self.lines = lines }

    /// What to install for what this client cannot do.
    static let remedy = "install openssh-client, which git then uses instead"

    static func unknownOption(_ option: String) -> Self {
        Self("the built-in ssh client does not know the option \(option); \(remedy)")
    }
}
