import AgentCore
import Synchronization

/// The daemon's logins: asks the control plane once for the two questions that git asks in a row.
///
/// An answer to the question for the user name is kept, in memory alone, for the question for the password that
/// follows. The first such question takes it; without one it is dropped after ``keptFor``.
package final class GitLogins: GitLoginSource {
    /// How long an answer waits for git's second question.
    package static let keptFor = Duration.seconds(60)
    /// Answers kept at once. At the limit the oldest is dropped; its second question costs a request.
    package static let maximumKept = 64

    private struct Key: Hashable {
        // Bytes, since texts of other bytes can be equal.
        var url: [UInt8]
        var chatID: [UInt8]

        init(_ question: GitLoginQuestion) {
            url = Array(question.prompt.url.utf8)
            chatID = Array((question.chatID ?? "").utf8)
        }
    }

    private struct Kept {
        var login: GitLogin
        var number: Int
        /// Takes the timer back that drops it.
        var stopTimer: @Sendable () -> Void
    }

    private struct State {
        var kept: [Key: Kept] = [:]
        var lastNumber = 0
    }

    private let source: any GitLoginSource
    private let clock: AgentClock
    private let state = Mutex(State())

    /// - Parameter source: asked for what is not kept.
    package init(source: any GitLoginSource, clock: AgentClock) {
        self.source = source
        self.clock = clock
    }

    /// Answers that wait for their second question.
    package var keptCount: Int { state.withLock { $0.kept.count } }

    package func login(_ question: GitLoginQuestion) async throws -> GitLogin {
        let key = Key(question)
        if question.prompt.field == .password, let login = take(key, for: question.prompt.user) { return login }
        let login = try await source.login(question)
        if question.prompt.field == .username, login.page == nil { keep(login, key) }
        return login
    }

    private func take(_ key: Key, for user: String?) -> GitLogin? {
        let kept: Kept? = state.withLock { state in
            // A user who was given in the URL has a password of their own.
            guard let kept = state.kept[key],
                user.map({ $0.utf8.elementsEqual(kept.login.username.reveal().utf8) }) ?? true
            else { return nil }
            state.kept[key] = nil
            return kept
        }
        kept?.stopTimer()
        return kept?.login
    }

    private func keep(_ login: GitLogin, _ key: Key) {
        let number = state.withLock { state in
            state.lastNumber += 1
            return state.lastNumber
        }
        let stopTimer = clock.after(Self.keptFor) { [weak self] in self?.drop(key, number) }
        let dropped: [Kept] = state.withLock { state in
            var dropped: [Kept] = []
            if let old = state.kept.updateValue(Kept(login: login, number: number, stopTimer: stopTimer), forKey: key) {
                dropped.append(old)
            }
            if state.kept.count > Self.maximumKept,
                let oldest = state.kept.min(by: { $0.value.number < $1.value.number })
            {
                state.kept[oldest.key] = nil
                dropped.append(oldest.value)
            }
            return dropped
        }
        for kept in dropped { kept.stopTimer() }
    }

    private func drop(_ key: Key, _ number: Int) {
        state.withLock { state in
            if state.kept[key]?.number == number { state.kept[key] = nil }
        }
    }
}
