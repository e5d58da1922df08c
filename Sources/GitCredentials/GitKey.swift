import AgentCore

/// The key that the control plane has for the user.
package struct GitKey: Sendable {
    /// A line as authorized_keys has them: type and base64 text.
    package var publicKey: String
    /// In OpenSSH's format or PEM.
    package var privateKey: Secret<String>

    package init(publicKey: String, privateKey: Secret<String>) {
        self.publicKey = publicKey
        self.privateKey = privateKey
    }
}
