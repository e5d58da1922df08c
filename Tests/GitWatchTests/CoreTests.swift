import FoundationEssentials
import Testing

@testable import GitWatch

/// The core with a worker that the test plays, on a clock that the test moves.
@Suite struct WatchCoreTests {
    private struct Stage {
        var core = WatchCore()
        var requests: [WorkerRequest] = []
        var stops = 0
        var unwatched: [String] = []

        mutating func run(_ now: Duration, _ body: (inout WatchCore) -> Void = { _ in }) {
            body(&core)
            core.tick(now: now)
            for action in core.takeActions() {
                switch action {
                case .send(let request):
                    core.workerStarted()
                    requests.append(request)
                case .stopWorker: stops += 1
                case .unwatch(let root): unwatched.append(root)
                case .offer(let session, let entry): session.offer(entry)
                case .fail(let session, let text): session.fail(text)
                case .watch(let root, let directories, _, _):
                    core.watched(root, added: directories, problem: nil, now: now)
                case .log: break
                }
            }
        }

        mutating func answer(_ now: Duration, _ body: WorkerReply.Body) {
            let request = requests.removeFirst()
            run(now) { $0.received(WorkerReply(id: request.id, body: body), now: now) }
        }
    }

    private let chat = UUID()

    private func session() -> WatchSession { WatchSession(chat: chat, heartbeat: false) { 0 } }

    private func snapshot(_ text: String) -> WorkerReply.Body {
        .snapshot(RepositorySnapshot(branch: "main", origin: "", diff: Array(text.utf8)), byCLI: false)
    }

    /// Up to watches that stand.
    private func watching(_ session: WatchSession) -> Stage {
        var stage = Stage()
        stage.run(.zero) { $0.attach(session, paths: ["/r/a"], now: .zero) }
        stage.answer(.zero, .resolved("/r"))
        stage.answer(.zero, snapshot("one"))
        stage.answer(.zero, .directories([[]], git: [], complete: true))
        stage.run(.seconds(1))
        stage.answer(.seconds(1), .unchanged(byCLI: false))
        return stage
    }

    /// What is known is offered; nobody looks again because of another connection.
    @Test func anotherConnectionCostsNoScan() async {
        let first = session()
        var stage = watching(first)
        let others = (0..<9).map { _ in session() }
        for other in others { stage.run(.seconds(5)) { $0.attach(other, paths: ["/r/a"], now: .seconds(5)) } }
        stage.run(.seconds(8))
        #expect(stage.requests.isEmpty && stage.core.scanCount == 2)
        for other in others { #expect(await other.next()?.count == 1) }
    }

    /// A tool call ends while the answer of the time before is on its way: "no repository" may be wrong by then.
    @Test func newsBeforeTheAnswerAskAgain() {
        for byTouch in [true, false] {
            var stage = Stage()
            stage.run(.zero) { $0.attach(session(), paths: ["/r/a"], now: .zero) }
            let news: (inout WatchCore) -> Void = { [chat] core in
                if byTouch {
                    core.touched(["/r/a"], chats: [chat], now: .zero)
                } else {
                    core.refresh(chats: [chat], now: .zero)
                }
            }
            stage.run(.zero, news)
            stage.run(.zero, news)
            #expect(stage.requests.map(\.kind) == [.resolve])
            stage.answer(.zero, .resolved(nil))
            #expect(stage.requests.map(\.kind) == [.resolve], "asked again")
            stage.answer(.zero, .resolved(nil))
            #expect(stage.requests.isEmpty, "and only once")
        }
    }

    @Test func fromPathToSnapshot() async {
        let session = session()
        var stage = watching(session)
        #expect(stage.requests.isEmpty)
        #expect(stage.core.repositories["/r"]?.watch == .active)
        #expect(await session.next()?.count == 1)
        stage.run(.seconds(5)) { $0.changed("/r", [Array("a".utf8)], newDirectories: [], now: .seconds(5)) }
        #expect(stage.requests.isEmpty)
        stage.run(.milliseconds(5_100))
        #expect(stage.requests.first?.paths == [Array("a".utf8)])
        #expect(stage.requests.first?.full == false && stage.requests.first?.hasSnapshot == true)
    }

    @Test func nothingIsLeftAMinuteAfterTheLastConnection() {
        let session = session()
        var stage = watching(session)
        stage.run(.seconds(10)) { $0.detach(session, now: .seconds(10)) }
        #expect(stage.unwatched == ["/r"] && stage.requests.map(\.kind) == [.forget])
        #expect(stage.core.repositories.isEmpty)
        #expect(stage.core.deadline(now: .seconds(10)) == .seconds(70))
        stage.run(.milliseconds(69_999))
        #expect(stage.stops == 0 && !stage.core.isFinished(now: .milliseconds(69_999)))
        stage.run(.seconds(70))
        #expect(stage.stops == 1)
        stage.run(.seconds(70)) { $0.workerEnded(crashed: false, orderly: true, now: .seconds(70)) }
        #expect(stage.core.isFinished(now: .seconds(70)))
    }

    @Test func aCrashSendsTheRepositoryToTheCLI() throws {
        let session = session()
        var stage = watching(session)
        stage.run(.seconds(31))
        let scan = try #require(stage.requests.first)
        #expect(scan.full && !scan.avoidsLibgit)
        stage.run(.seconds(31)) { $0.received(WorkerReply(id: scan.id, body: .started), now: .seconds(31)) }
        stage.requests = []
        stage.run(.seconds(32)) { $0.workerEnded(crashed: true, orderly: false, now: .seconds(32)) }
        let again = try #require(stage.requests.first)
        #expect(again.kind == .scan && again.avoidsLibgit && again.full)
    }

    @Test func roundsOfTheWorkerAreNotRepeatedForKnownPaths() {
        let session = session()
        var stage = watching(session)
        stage.run(.seconds(2)) { $0.touched(["/r/a"], chats: [chat], now: .seconds(2)) }
        #expect(stage.requests.isEmpty, "roots are remembered")
        stage.run(.seconds(2)) { $0.refresh(chats: [chat], now: .seconds(2)) }
        #expect(stage.requests.map(\.kind) == [.scan])
    }

    @Test func aRemovedRootIsToldOnceAndForgotten() async {
        let session = session()
        var stage = watching(session)
        _ = await session.next()
        stage.run(.seconds(3)) { $0.changedEverything("/r", listAll: true, now: .seconds(3)) }
        stage.run(.seconds(4))
        stage.answer(.seconds(4), .failed(ScanError(.gone, "gone")))
        let messages = await session.next()
        #expect(messages?.first?.contains(#"{"repo_root":"/r","branch":"","removed":true}"#) == true)
        #expect(stage.core.repositories.isEmpty)
        stage.requests = []
        stage.run(.seconds(40))
        #expect(stage.requests.isEmpty)
        stage.run(.seconds(41)) { $0.touched(["/r/a"], chats: [chat], now: .seconds(41)) }
        #expect(stage.requests.map(\.kind) == [.resolve])
    }

    @Test func aRootThatMayBeBackIsLookedAtAgain() async {
        let session = session()
        var stage = watching(session)
        _ = await session.next()
        stage.run(.seconds(3)) { $0.changedEverything("/r", listAll: true, now: .seconds(3)) }
        stage.run(.seconds(4))
        stage.run(.milliseconds(4010)) { $0.refresh(chats: [chat], now: .milliseconds(4010)) }
        stage.answer(.milliseconds(4020), .failed(ScanError(.gone, "gone")))
        #expect(stage.core.repositories.count == 1)
        stage.run(.milliseconds(5010))
        #expect(stage.requests.map(\.kind) == [.scan])
        stage.answer(.milliseconds(5020), .failed(ScanError(.gone, "gone")))
        #expect(await session.next()?.first?.contains(#""removed":true"#) == true)
        #expect(stage.core.repositories.isEmpty)
    }

    @Test func aSlowClientHoldsTheNewestOnly() async {
        let session = session()
        for text in ["one", "two", "three"] {
            session.offer(EncodedEntry(root: "/r", RepositorySnapshot(branch: "b", origin: "", diff: Array(text.utf8))))
        }
        let messages = await session.next()
        #expect(messages?.count == 1 && messages?.first?.contains("three") == true)
        session.offer(EncodedEntry(root: "/r", RepositorySnapshot(branch: "b", origin: "", diff: Array("three".utf8))))
        session.fail("marker")
        let next = await session.next()
        #expect(next?.count == 1 && next?.first?.contains("marker") == true, "equal snapshots are not sent again")
        session.end()
        #expect(await session.next() == nil)
    }
}
