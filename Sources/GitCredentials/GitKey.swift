import AgentCore

/// The key pair that the control plane keeps for the workspace's owner.
package struct GitKey: Sendable {
    /// As one line of an authorized_keys file.
    package var publicKey: String
    /// PEM, without a passphrase.
    package var privateKey: Secret<String>

    package init(publicKey: String, privateKey: Secret<String>) {
        self.publicKey = publicKey
        self.privateKey = privateKey
    }
}
