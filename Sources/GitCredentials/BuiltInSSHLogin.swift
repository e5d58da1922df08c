import AgentCore
import CSSH2

/// Logs in over a connection, with one key after the other.
struct BuiltInSSHLogin {
    enum Outcome: Equatable {
        case accepted
        /// With the methods that the server takes.
        case refused(methods: String)
        /// The server ended the connection, as it does after some refusals.
        case ended
    }

    let session: BuiltInSSHSession
    let agent: BuiltInSSHAgent?
    let user: String
    let messages: BuiltInSSHMessages

    /// Tries the keys in turn.
    func run(_ keys: [BuiltInSSHKey]) throws(BuiltInSSHFailure) -> Outcome {
        let functions = session.functions
        let list = try session.retrying {
            functions.libssh2_userauth_list(session.pointer, user, UInt32(user.utf8.count))
        }
        guard let list else {
            guard functions.libssh2_userauth_authenticated(session.pointer) == 0 else { return .accepted }
            throw session.ended()
        }
        // It lies in memory of the session, which the next message may reuse.
        let methods = String(cString: list)
        guard methods.split(separator: ",").contains("publickey") else {
            throw BuiltInSSHFailure("\(session.server) does not take keys, only: \(methods)")
        }
        for key in keys {
            messages.step("trying \(key.name)")
            let code = try session.retrying { logIn(key) }
            if code == 0 {
                messages.step("\(session.server) accepted \(key.name)")
                return .accepted
            }
            messages.step("\(key.name): \(session.lastError)")
            if session.isEnded(code) { return .ended }
        }
        return .refused(methods: methods)
    }

    private func logIn(_ key: BuiltInSSHKey) -> CInt {
        switch key.material {
        case .agent(let identity): agent?.logIn(user, identity) ?? LIBSSH2_ERROR_AUTHENTICATION_FAILED
        case .memory(let secret):
            session.functions.libssh2_userauth_publickey_frommemory(
                session.pointer, user, user.utf8.count, nil, 0, secret.reveal(), secret.reveal().utf8.count, nil)
        }
    }
}
