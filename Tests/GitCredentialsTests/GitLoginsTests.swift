import AgentCore
import AgentTestSupport
import Synchronization
import Testing

@testable import GitCredentials

/// The answer that waits for git's second question.
@Suite("Kept logins", .timeLimit(.minutes(1))) struct GitLoginsTests {
    /// Counts what it is asked, and answers with the number.
    private final class Source: GitLoginSource {
        let asked = Mutex(0)
        let page: String?
        init(page: String? = nil) { self.page = page }
        var count: Int { asked.withLock { $0 } }

        func login(_ question: GitLoginQuestion) async throws -> GitLogin {
            let number = asked.withLock { asked in
                asked += 1
                return asked
            }
            return GitLogin(username: Secret("user"), password: Secret("password \(number)"), page: page)
        }
    }

    private let clock = ManualClock()

    private func question(
        _ field: GitPrompt.Field, _ url: String = "https://host", user: String? = nil, chat: String? = nil
    ) -> GitLoginQuestion {
        GitLoginQuestion(prompt: GitPrompt(field: field, url: url, user: user), chatID: chat)
    }

    private func make(_ source: Source) -> GitLogins { GitLogins(source: source, clock: AgentClock(clock)) }

    @Test func twoQuestionsAreOneRequest() async throws {
        let source = Source()
        let logins = make(source)
        #expect(try await logins.login(question(.username)).username.reveal() == "user")
        #expect(try await logins.login(question(.password, user: "user")).password.reveal() == "password 1")
        #expect(source.count == 1 && logins.keptCount == 0)
        // Taken once: the next question is another.
        #expect(try await logins.login(question(.password, user: "user")).password.reveal() == "password 2")
        #expect(logins.keptCount == 0)
    }

    @Test func otherHostsUsersAndChatsAreOthers() async throws {
        let source = Source()
        let logins = make(source)
        _ = try await logins.login(question(.username))
        for other in [
            question(.password, "https://host:1"), question(.password, user: "another"),
            question(.password, chat: "chat"),
        ] { #expect(try await logins.login(other).password.reveal() != "password 1") }
        #expect(try await logins.login(question(.password)).password.reveal() == "password 1")
    }

    @Test func theUserNameIsAskedAnewEachTime() async throws {
        let source = Source()
        let logins = make(source)
        _ = try await logins.login(question(.username))
        _ = try await logins.login(question(.username))
        #expect(source.count == 2 && logins.keptCount == 1)
        #expect(try await logins.login(question(.password)).password.reveal() == "password 2")
    }

    @Test func anAnswerWithoutALoginIsNotKept() async throws {
        let logins = make(Source(page: "https://log.in"))
        _ = try await logins.login(question(.username))
        #expect(logins.keptCount == 0)
    }

    @Test func itIsForgottenAfterAMinute() async throws {
        let source = Source()
        let logins = make(source)
        _ = try await logins.login(question(.username))
        await clock.sleepers(1)
        clock.advance(by: GitLogins.keptFor - .nanoseconds(1))
        #expect(logins.keptCount == 1)
        clock.advance(by: .nanoseconds(1))
        try await eventually("it is gone") { logins.keptCount == 0 }
        #expect(try await logins.login(question(.password)).password.reveal() == "password 2")
    }

    @Test func sixtyFourAreKept() async throws {
        let source = Source()
        let logins = make(source)
        for number in 0...GitLogins.maximumKept { _ = try await logins.login(question(.username, "https://\(number)")) }
        #expect(logins.keptCount == GitLogins.maximumKept)
        // The oldest had to go.
        #expect(try await logins.login(question(.password, "https://1")).password.reveal() == "password 2")
        #expect(try await logins.login(question(.password, "https://0")).password.reveal() == "password 66")
    }

    @Test(arguments: [
        ("https://github.com/a", "https://github.com/a"), ("https://u:p@github.com/a", "https://github.com/a"),
        ("https://token@github.com/a@b", "https://github.com/a@b"), ("git@github.com:a/b", "git@github.com:a/b"),
        ("https://github.com/@scope", "https://github.com/@scope"), ("/a/b", "/a/b"),
        ("ssh://git@host/x", "ssh://host/x"),
    ]) func originsGoUpWithoutALogin(url: String, result: String) { #expect(GitWorkTree.withoutLogin(url) == result) }
}
