import AgentCore

/// What a GIT_ASKPASS program asks the control plane for.
package struct GitLoginQuestion: Sendable {
    package var prompt: GitPrompt
    /// Of the work tree that git runs in; nil when unknown.
    package var branch: String?
    /// The URL of the remote `origin`, without a login; nil when unknown.
    package var remoteOrigin: String?
    /// The chat that git runs for; nil for none.
    package var chatID: String?
    /// Wait until the user has logged in to the git host.
    package var waits = false

    package init(prompt: GitPrompt, branch: String? = nil, remoteOrigin: String? = nil, chatID: String? = nil) {
        self.prompt = prompt
        self.branch = branch
        self.remoteOrigin = remoteOrigin
        self.chatID = chatID
    }
}

/// The control plane's answer: what to log in with, or where the user is to log in first.
package struct GitLogin: Sendable {
    /// Some hosts take the token here.
    package var username: Secret<String>
    package var password: Secret<String>
    /// An address for the user's browser; nil when there is a login.
    package var page: String?

    package init(username: Secret<String>, password: Secret<String>, page: String? = nil) {
        self.username = username
        self.password = password
        self.page = page
    }
}

/// Has logins for git hosts: the control plane, or the daemon in front of it.
package protocol GitLoginSource: Sendable {
    /// - Throws: ``GitLoginFailure``; `CancellationError`.
    func login(_ question: GitLoginQuestion) async throws -> GitLogin
}

/// Why there is no login.
package struct GitLoginFailure: Error, Sendable, CustomStringConvertible {
    package enum Code: Sendable, Equatable {
        /// The control plane knows no login for this host.
        case unknownHost
        /// The control plane does not accept this workspace's token.
        case unauthorized
        case other
    }

    package var code: Code
    /// One sentence for a person, without a secret.
    package var message: String

    package init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var description: String { message }
}
