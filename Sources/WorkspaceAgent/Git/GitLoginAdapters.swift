import AgentCore
import AgentProto
import AgentSocket
import ControlPlane
import DRPC
import GitCredentials
import LocalAgent
import NIOPosix

/// Logins from the control plane's REST.
struct ControlPlaneLogins: GitLoginSource {
    let rest: ControlPlaneREST

    func login(_ question: GitLoginQuestion) async throws -> GitLogin {
        do { return try await ask(question) } catch let error as ControlPlaneError { throw GitLoginFailure(error) }
    }

    /// As ``login(_:)``.
    /// - Throws: ``ControlPlaneError``.
    func ask(_ question: GitLoginQuestion) async throws -> GitLogin {
        var request = ControlPlaneREST.ExternalAuthRequest()
        request.match = question.prompt.url
        request.chatID = question.chatID
        request.gitBranch = question.branch
        request.gitRemoteOrigin = question.remoteOrigin
        request.listen = question.waits
        let answer = try await rest.externalAuth(request)
        return GitLogin(
            username: Secret(answer.username), password: answer.password, page: answer.url.isEmpty ? nil : answer.url)
    }
}

extension GitLoginFailure {
    fileprivate init(_ error: ControlPlaneError) {
        switch error.code {
        case .http(404): self.init(.unknownHost, "\(error)")
        case .http(401): self.init(.unauthorized, "\(error)")
        default: self.init(.other, "\(error)")
        }
    }
}

/// Offers the daemon's logins on the agent socket.
struct GitLoginService: GitLoginForwarder {
    let logins: GitLogins

    func gitLogin(
        _ request: Coder_Agentsocket_V1_GitLoginRequest
    ) async throws -> Coder_Agentsocket_V1_GitLoginResponse {
        do {
            let login = try await logins.login(GitLoginQuestion(request))
            return .with {
                $0.username = login.username.reveal()
                $0.password = login.password.reveal()
                $0.loginURL = login.page ?? ""
            }
        } catch let failure as GitLoginFailure {
            throw DRPCError(.remote(failure.code.number), failure.message)
        }
    }
}

/// Logins from the daemon of this workspace; from the control plane where there is no daemon that has them.
struct LocalLogins: GitLoginSource {
    /// The agent socket's path.
    let socket: String

    func login(_ question: GitLoginQuestion) async throws -> GitLogin {
        if let login = try await fromDaemon(question) { return login }
        do {
            return try await GitLink.use { try await ControlPlaneLogins(rest: $0).ask(question) }
        } catch let error as ControlPlaneError {
            throw GitLoginFailure(error)
        } catch let failure as CommandFailure {
            throw GitLoginFailure(.other, failure.message)
        }
    }

    /// nil when no daemon answers there, or one that has no control plane.
    private func fromDaemon(_ question: GitLoginQuestion) async throws -> GitLogin? {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        guard let client = try? await AgentSocketClient.connect(path: socket, group: group) else {
            try? await group.shutdownGracefully()
            return nil
        }
        let answer: Result<GitLogin?, any Error>
        do {
            let response = try await client.gitLogin(question.request)
            answer = .success(
                GitLogin(
                    username: Secret(response.username), password: Secret(response.password),
                    page: response.loginURL.isEmpty ? nil : response.loginURL))
        } catch let error as DRPCError where error.isUnknownRPC {
            answer = .success(nil)
        } catch let error as DRPCError {
            answer = .failure(GitLoginFailure(.init(error), error.message))
        } catch {
            answer = .failure(error)
        }
        await client.close()
        try? await group.shutdownGracefully()
        return try answer.get()
    }
}

extension GitLoginFailure.Code {
    /// As an rpc's error code: HTTP's status.
    fileprivate var number: UInt64 {
        switch self {
        case .unknownHost: 404
        case .unauthorized: 401
        case .other: 0
        }
    }

    fileprivate init(_ error: DRPCError) {
        switch error.code {
        case .remote(404): self = .unknownHost
        case .remote(401): self = .unauthorized
        default: self = .other
        }
    }
}

extension GitLoginQuestion {
    fileprivate init(_ request: Coder_Agentsocket_V1_GitLoginRequest) {
        func given(_ text: String) -> String? { text.isEmpty ? nil : text }
        self.init(
            prompt: GitPrompt(
                field: request.password ? .password : .username, url: request.url, user: given(request.user)),
            branch: given(request.gitBranch), remoteOrigin: given(request.gitRemoteOrigin),
            chatID: given(request.chatID))
        waits = request.wait
    }

    fileprivate var request: Coder_Agentsocket_V1_GitLoginRequest {
        .with {
            $0.url = prompt.url
            $0.password = prompt.field == .password
            $0.user = prompt.user ?? ""
            $0.gitBranch = branch ?? ""
            $0.gitRemoteOrigin = remoteOrigin ?? ""
            $0.chatID = chatID ?? ""
            $0.wait = waits
        }
    }
}
