import FoundationEssentials
import Testing

@testable import GitWatch

/// The core with a worker that the test plays, on a clock that the test moves.
@Suite struct WatchCoreTests {
    private typealias Stage = WatchStage

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
        stage.answer(.zero, .directories([.tree([])], complete: true))
        stage.run(.seconds(1))
        stage.answer(.seconds(1), .unchanged(byCLI: false))
        return stage
    }

    /// What is known is offered; nothing is scanned again because of another connection.
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

    /// A worker that is killed while it lists or watches directories owes no scan, and what is not watched is not seen.
    @Test(arguments: [WorkerRequest.Kind.directories, .watch]) func aWorkerKilledWhileItWatchesIsAskedAgain(
        kind: WorkerRequest.Kind
    ) {
        var stage = Stage()
        stage.watchesByWorker = true
        stage.run(.zero) { [session = session()] in $0.attach(session, paths: ["/r/a"], now: .zero) }
        stage.answer(.zero, .resolved("/r"))
        stage.answer(.zero, snapshot("one"))
        if kind == .watch { stage.answer(.zero, .directories([.tree([])], complete: true)) }
        #expect(stage.requests.map(\.kind) == [kind])
        stage.requests = []
        stage.run(.seconds(2)) { $0.workerEnded(crashed: false, orderly: false, now: .seconds(2)) }
        stage.run(.milliseconds(2_100))
        #expect(stage.requests.map(\.kind) == [.scan])
        stage.answer(.seconds(3), snapshot("two"))
        #expect(stage.requests.map(\.kind) == [.directories])
        stage.answer(.seconds(3), .directories([.tree([])], complete: true))
        #expect(stage.requests.map(\.kind) == [.watch])
        stage.answer(.seconds(3), .watched([1]))
        #expect(stage.core.repositories["/r"]?.watch == .active)
    }

    /// A listing that fails is tried again soon, and what keeps failing is left to the poll.
    @Test func aFailedListingIsTriedAgain() {
        var stage = watching(session())
        stage.run(.seconds(2)) { $0.changedEverything("/r", listAll: true, now: .seconds(2)) }
        var now = Duration.milliseconds(2_100)
        for _ in 0..<GitWatchLimits.listingRetries + 1 {
            stage.run(now)
            stage.answer(now, snapshot("two"))
            stage.answer(now, .failed(ScanError(.transient, "index.lock")))
            now += .seconds(1)
        }
        stage.run(now)
        #expect(stage.requests.isEmpty)
        stage.run(.seconds(40))
        stage.answer(.seconds(40), snapshot("two"))
        #expect(stage.requests.map(\.kind) == [.directories])
        stage.answer(.seconds(40), .directories([.tree([])], complete: true))
        #expect(stage.core.repositories["/r"]?.failedListings == 0)
    }

    /// Files that were added by force lie where nothing was watched.
    @Test func anotherLayoutListsTheDirectoriesAnew() {
        var stage = watching(session())
        stage.run(.seconds(2)) { $0.changedEverything("/r", listAll: false, now: .seconds(2)) }
        stage.run(.milliseconds(2_100))
        stage.answer(.seconds(3), snapshot("two"))
        #expect(stage.requests.isEmpty, "nothing but the text changed")
        stage.run(.seconds(4)) { $0.changedEverything("/r", listAll: false, now: .seconds(4)) }
        stage.run(.seconds(5))
        let other = RepositorySnapshot(branch: "main", origin: "", diff: [], layout: 7)
        stage.answer(.seconds(5), .snapshot(other, byCLI: false))
        #expect(stage.requests.map(\.kind) == [.directories])
        #expect(stage.requests.first?.paths.isEmpty == true)
    }

    @Test func aCrashSendsTheRepositoryToTheCLI() throws {
        let session = session()
        var stage = watching(session)
        stage.run(.seconds(31))
        let scan = try #require(stage.requests.first)
        #expect(scan.full && !scan.avoidsLibgit)
        stage.run(.seconds(31)) {
            $0.received(WorkerReply(id: scan.id, body: .started(inLibgit: true)), now: .seconds(31))
        }
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
        #expect(messages?.first?.text.contains(#"{"repo_root":"/r","branch":"","removed":true}"#) == true)
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
        #expect(await session.next()?.first?.text.contains(#""removed":true"#) == true)
        #expect(stage.core.repositories.isEmpty)
    }

    @Test func aSlowClientHoldsTheNewestOnly() async {
        let session = session()
        for text in ["one", "two", "three"] {
            session.offer([
                EncodedEntry(root: "/r", RepositorySnapshot(branch: "b", origin: "", diff: Array(text.utf8)))
            ])
        }
        let messages = await session.next()
        #expect(messages?.count == 1 && messages?.first?.text.contains("three") == true)
        session.offer([EncodedEntry(root: "/r", RepositorySnapshot(branch: "b", origin: "", diff: Array("three".utf8)))]
        )
        session.fail("marker")
        let next = await session.next()
        #expect(next?.count == 1 && next?.first?.text.contains("marker") == true, "equal snapshots are not sent again")
        session.end()
        #expect(await session.next() == nil)
    }

    // MARK: The first message

    /// Two paths, whose repositories are found.
    private func attached(_ session: WatchSession) -> Stage {
        var stage = Stage()
        stage.run(.zero) { $0.attach(session, paths: ["/a/x", "/b/x"], now: .zero) }
        stage.answer(.zero, .resolved("/a"))
        stage.answer(.zero, .resolved("/b"))
        return stage
    }

    @Test func whatIsKnownComesInOneMessage() async {
        let first = session()
        var stage = attached(first)
        stage.answer(.seconds(1), snapshot("one"))
        #expect(stage.offers.isEmpty, "the other is not scanned yet")
        stage.answer(.seconds(2), snapshot("two"))
        #expect(stage.offers == [["/a", "/b"]])
        #expect(await first.next()?.count == 1)
        let second = session()
        stage.run(.seconds(3)) { $0.attach(second, paths: ["/a/x", "/b/x"], now: .seconds(3)) }
        #expect(stage.offers.last == ["/a", "/b"] && stage.offers.count == 2, "known from the first connection")
        #expect(await second.next()?.count == 1)
    }

    /// A slow one holds up the others' first message for a while only, one that cannot be scanned not at all.
    @Test func theFirstMessageDoesNotWaitForLong() {
        var stage = attached(session())
        stage.answer(.seconds(1), snapshot("one"))
        #expect(stage.core.deadline(now: .seconds(1)) == .seconds(5))
        stage.run(.milliseconds(4_999))
        #expect(stage.offers.isEmpty)
        stage.run(.seconds(5))
        #expect(stage.offers == [["/a"]])
        stage.answer(.seconds(9), snapshot("two"))
        #expect(stage.offers == [["/a"], ["/b"]])

        stage = attached(session())
        stage.answer(.seconds(1), .failed(ScanError(.failed, "broken")))
        stage.answer(.seconds(1), snapshot("two"))
        #expect(stage.offers == [["/b"]] && stage.errors == ["/a: broken"])
    }

    // MARK: Hanging file systems

    /// Two repositories; the worker is at a scan of /a, and one of /b waits.
    private func hanging(_ session: WatchSession) -> Stage {
        var stage = attached(session)
        stage.answer(.zero, snapshot("one"))
        stage.answer(.zero, snapshot("two"))
        stage.answer(.zero, .directories([.tree([])], complete: true))
        stage.answer(.zero, .directories([.tree([])], complete: true))
        stage.run(.seconds(1))
        stage.run(.seconds(1)) { [id = stage.requests[0].id] in
            $0.received(WorkerReply(id: id, body: .started(inLibgit: true)), now: .seconds(1))
        }
        return stage
    }

    @Test func aHangIsBlamedOnItsRepository() {
        var stage = hanging(session())
        #expect(stage.requests.map(\.root) == ["/a", "/b"])
        stage.run(.seconds(31))
        #expect(stage.core.hanging(now: .seconds(31)) == ["/a"] && stage.errors.isEmpty)
        stage.requests = []
        stage.run(.seconds(121))
        #expect(stage.stops == 1 && stage.core.crashCount == 0)
        #expect(stage.errors == ["/a: no answer within 120 s; its file system may hang"])
        #expect(stage.requests.map(\.root) == ["/b"], "at once, of another worker")
        // Whatever happens to it.
        stage.run(.seconds(122)) { $0.changedEverything("/a", listAll: true, now: .seconds(122)) }
        stage.run(.seconds(123)) { [chat] in $0.refresh(chats: [chat], now: .seconds(123)) }
        stage.run(.milliseconds(150_999))
        #expect(!stage.requests.contains { $0.root == "/a" })
        stage.requests = []
        stage.run(.seconds(151)) { $0.changedEverything("/b", listAll: true, now: .seconds(150)) }
        #expect(stage.requests.last?.root == "/a" && stage.requests.last?.full == true, "last in order")
        #expect(stage.requests.filter { $0.root == "/a" }.count == 1)

        // Again: twice the wait, and nothing more is said.
        let asked = stage.requests[stage.requests.count - 1]
        stage.run(.seconds(152)) {
            $0.received(WorkerReply(id: asked.id, body: .started(inLibgit: true)), now: .seconds(152))
        }
        stage.run(.seconds(272))
        #expect(stage.stops == 2 && stage.errors.count == 1)
        stage.requests = []
        stage.run(.milliseconds(331_999))
        #expect(!stage.requests.contains { $0.root == "/a" })
        stage.run(.seconds(332))
        let last = stage.requests.last
        #expect(last?.root == "/a" && stage.core.hanging(now: .seconds(332)).contains("/a"))
        stage.run(.seconds(333)) {
            $0.received(WorkerReply(id: last?.id ?? 0, body: .unchanged(byCLI: false)), now: .seconds(333))
        }
        #expect(!stage.core.hanging(now: .seconds(333)).contains("/a"))
    }

    /// A new connection does not wait for it, and gets an error.
    @Test func newConnectionsGetTheErrorOfAHang() async {
        var stage = hanging(session())
        stage.run(.seconds(121))
        let other = session()
        (stage.offers, stage.errors) = ([], [])
        stage.run(.seconds(122)) { $0.attach(other, paths: ["/a/x", "/b/x"], now: .seconds(122)) }
        #expect(stage.offers == [["/a", "/b"]] && stage.errors.count == 1)
    }

    /// Workers that cannot be killed are not made more and more.
    @Test func workersThatDoNotEndAreBounded() {
        for (dying, replaced) in [(7, true), (8, false)] {
            var stage = hanging(session())
            stage.core.dyingWorkers = dying
            stage.requests = []
            stage.run(.seconds(121))
            #expect(stage.stops == (replaced ? 1 : 0) && stage.errors.count == 1)
            stage.core.dyingWorkers = 8
            stage.run(.seconds(200))
            #expect(!stage.requests.contains { $0.root == "/a" }, "not while there are so many")
            #expect(stage.core.deadline(now: .seconds(200)).map { $0 > .seconds(200) } ?? true)
            stage.core.dyingWorkers = 7
            stage.run(.seconds(200))
            #expect(stage.requests.last?.root == "/a")
        }
    }

    @Test func aPathThatHangsIsAskedForAgain() {
        var stage = Stage()
        stage.run(.zero) { $0.attach(session(), paths: ["/a/x", "/b/x"], now: .zero) }
        stage.run(.zero) { [id = stage.requests[0].id] in
            $0.received(WorkerReply(id: id, body: .started(inLibgit: false)), now: .zero)
        }
        stage.requests = []
        stage.run(.seconds(30))
        #expect(stage.stops == 1 && stage.requests.map(\.root) == ["/b/x"])
        #expect(stage.errors == ["/a/x: its repository was not found within 30 s; its file system may hang"])
        stage.answer(.seconds(30), .resolved("/b"))
        stage.answer(.seconds(30), snapshot("b"))
        #expect(stage.offers == [["/b"]], "the first message does not wait for it")
        stage.requests = []
        stage.run(.seconds(31)) { [chat] in $0.touched(["/a/x"], chats: [chat], now: .seconds(31)) }
        stage.run(.milliseconds(59_999))
        #expect(!stage.requests.contains { $0.kind == .resolve })
        stage.requests = []
        stage.run(.seconds(60))
        #expect(stage.requests.last?.root == "/a/x" && stage.core.hanging(now: .seconds(60)).contains("/a/x"))
        let id = stage.requests.last?.id ?? 0
        stage.run(.seconds(61)) { $0.received(WorkerReply(id: id, body: .resolved("/a")), now: .seconds(61)) }
        #expect(!stage.core.hanging(now: .seconds(61)).contains("/a/x") && stage.requests.last?.root == "/a")
    }
}
