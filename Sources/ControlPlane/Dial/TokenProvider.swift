import AgentCore
import Logging
import Synchronization

/// Where the `Coder-Session-Token` of every request comes from. There is one for the whole daemon.
package protocol TokenProvider: Sendable {
    /// The token as it is now, fetched anew. Called at each connect.
    /// - Throws: ``ControlPlaneError`` that says what is missing; never the token.
    func refresh() async throws -> Secret<String>

    /// The token of the last refresh; refreshed when there was none.
    func token() async throws -> Secret<String>
}

/// Remembers what another provider gave last, for those who cannot wait for it.
package final class RememberedToken: TokenProvider {
    private let provider: any TokenProvider
    private let value = Mutex<Secret<String>?>(nil)

    package init(_ provider: any TokenProvider) { self.provider = provider }

    /// nil when there was none yet.
    package var last: Secret<String>? { value.withLock { $0 } }

    package func refresh() async throws -> Secret<String> { keep(try await provider.refresh()) }

    package func token() async throws -> Secret<String> { keep(try await provider.token()) }

    private func keep(_ token: Secret<String>) -> Secret<String> {
        value.withLock { $0 = token }
        return token
    }
}

/// A token that was given by flag or variable.
package struct StaticToken: TokenProvider {
    private let value: Secret<String>
    package init(_ value: Secret<String>) { self.value = value }
    package func refresh() -> Secret<String> { value }
    package func token() -> Secret<String> { value }
}

/// A token in a file, which is read each time, so that it may be exchanged while we run.
package struct TokenFile: TokenProvider {
    private let path: String
    private let pool: BlockingPool
    private let logger: Logger
    private let warned = Once()

    package init(path: String, pool: BlockingPool, logger: Logger) {
        self.path = path
        self.pool = pool
        self.logger = logger
    }

    package func token() async throws -> Secret<String> { try await refresh() }

    package func refresh() async throws -> Secret<String> {
        let path = path
        let (token, isOpen) = try await pool.run { try Self.read(path) }
        if isOpen, warned.first() {
            logger.warning(
                "Others may read the token file; make it mode 0600.", metadata: ["path": "\(path)"])
        }
        return token
    }

    private static func read(_ path: String) throws -> (Secret<String>, isOpen: Bool) {
        let file: (bytes: [UInt8], isOpenToOthers: Bool)
        do {
            file = try OwnFile.readNamed(path, limit: DialLimits.tokenFileBytes)
        } catch {
            throw ControlPlaneError(.token, "--agent-token-file", cause: error)
        }
        var bytes = file.bytes
        let spaces: Set<UInt8> = [9, 10, 13, 32]
        while bytes.last.map(spaces.contains) == true { bytes.removeLast() }
        let text = String(decoding: bytes.drop(while: spaces.contains), as: UTF8.self)
        guard !text.isEmpty else { throw ControlPlaneError(.token, "--agent-token-file \(path) is empty") }
        return (try TokenText.checked(text, from: "--agent-token-file \(path)"), file.isOpenToOthers)
    }
}

/// Says true once.
final class Once: Sendable {
    private let used = Atomic(false)
    func first() -> Bool { !used.exchange(true, ordering: .relaxed) }
}
