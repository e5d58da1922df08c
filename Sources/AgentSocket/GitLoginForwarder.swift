import AgentProto

/// Answers git's questions for a user name and password. A daemon with a control plane to ask has one.
package protocol GitLoginForwarder: Sendable {
    /// - Throws: a `DRPCError` with `.remote(code)` reaches the client with its code and text as they are; the text of
    ///   any other error with code 0.
    func gitLogin(
        _ request: Coder_Agentsocket_V1_GitLoginRequest
    ) async throws -> Coder_Agentsocket_V1_GitLoginResponse
}
