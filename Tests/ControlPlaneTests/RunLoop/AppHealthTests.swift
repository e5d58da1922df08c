import AgentCore
import AgentProto
import AgentTestSupport
import FoundationEssentials
import NIOCore
import NIOPosix
import SwiftProtobuf
import Synchronization
import ControlPlaneAPI
import Testing

@testable import ControlPlane

private func app(
    _ name: String, interval: Int64 = 5, threshold: Int32 = 3,
    health: Coder_Agent_V2_WorkspaceApp.Health = .initializing
) -> Coder_Agent_V2_WorkspaceApp {
    var app = Coder_Agent_V2_WorkspaceApp()
    app.id = Data(name.utf8)
    app.slug = name
    app.health = health
    app.healthcheck.url = "http://localhost/\(name)"
    app.healthcheck.interval = .init(seconds: interval)
    app.healthcheck.threshold = threshold
    return app
}

@Suite struct AppHealthStateTests {
    private let id = Data("a".utf8)

    @Test func moreFailuresInARowThanTheThresholdAreUnhealthy() {
        var state = AppHealthState()
        _ = state.update([app("a")], now: .zero)
        for success in [false, false, false, true, false, false, false] { state.observe(id, success: success) }
        #expect(state.changes == [.init(id: id, health: .healthy)])
        state.acknowledge(state.changes)
        #expect(state.changes == [])
        state.observe(id, success: false)
        #expect(state.changes == [.init(id: id, health: .unhealthy)])
        state.observe(id, success: true)
        // Nothing to tell: the control plane never heard of the failure.
        #expect(state.changes == [])
    }

    @Test func anAcknowledgementIsOfWhatWasSent() {
        var state = AppHealthState()
        _ = state.update([app("a", threshold: 1)], now: .zero)
        state.observe(id, success: true)
        let sent = state.changes
        for _ in 0..<2 { state.observe(id, success: false) }
        state.acknowledge(sent)
        #expect(state.changes == [.init(id: id, health: .unhealthy)])
    }

    @Test func aNewManifestKeepsWhatIsKnown() {
        var state = AppHealthState()
        _ = state.update([app("a", threshold: 1), app("b")], now: .zero)
        for _ in 0..<2 { state.observe(id, success: false) }
        state.acknowledge(state.changes)
        // The control plane has forgotten.
        _ = state.update([app("a", threshold: 1, health: .y)], now: .seconds(1))
        #expect(state.changes == [.init(id: id, health: .unhealthy)])
        #expect(state.apps.count == 1)
    }

    @Test(arguments: [1, 2, .max] as [Int32]) func theThresholdHasNoEdge(_ threshold: Int32) {
        var state = AppHealthState()
        _ = state.update([app("a", threshold: threshold)], now: .zero)
        let enough = min(Int(threshold), 1_000)
        for _ in 0..<enough { state.observe(id, success: false) }
        #expect(state.changes == [])
        state.observe(id, success: false)
        #expect(state.changes == (threshold == .max ? [] : [.init(id: id, health: .unhealthy)]))
    }

    @Test func onlyCompleteChecksCount() {
        var state = AppHealthState()
        var without = app("c")
        without.clearHealthcheck()
        var blank = app("d")
        blank.healthcheck.url = ""
        let left = state.update(
            [
                app("a", interval: 0), app("b", threshold: 0), without, blank, app("e", health: .disabled),
                app("f", interval: -7), app("g", threshold: -1), app("h", interval: .max, threshold: .max),
            ], now: .zero)
        #expect(left == 0)
        #expect(state.apps.map(\.slug) == ["h"])
        #expect(state.apps.first?.interval == .seconds(86_400))
    }

    @Test(arguments: [255, 256, 257]) func appsAreBounded(_ count: Int) {
        var state = AppHealthState()
        let left = state.update((0..<count).map { app("app\($0)") }, now: .zero)
        #expect(state.apps.count == min(count, 256))
        #expect(left == max(0, count - 256))
    }

    @Test func nobodyIsAskedTwiceAtATime() {
        var state = AppHealthState()
        _ = state.update([app("a", interval: 2)], now: .zero)
        #expect(state.nextDue == .zero)
        #expect(state.takeDue(.zero).count == 1)
        #expect(state.nextDue == nil)
        #expect(state.takeDue(.seconds(10)).isEmpty)
        state.observe(id, success: true)
        #expect(state.nextDue == .seconds(2))
    }
}

@Suite struct AppHealthRoutineTests {
    @Test func onlyChangesAreReportedAndResent() throws {
        let simulation = Simulation()
        let server = FakeControlPlane(simulation)
        server.manifest.withLock { $0.apps = [app("a"), app("b", interval: 1, threshold: 2)] }
        let session = SimulatedSession(simulation, server)
        let answers = session.prober.healthy
        answers.answers.withLock { $0["http://localhost/b"] = false }
        simulation.run(for: .seconds(20))
        func updates() -> [String] {
            server.requests(AgentAPI.batchUpdateAppHealths).flatMap(\.updates).map {
                "\(String(decoding: $0.id, as: UTF8.self)) \($0.health)"
            }
        }
        #expect(updates() == ["a healthy", "b unhealthy"])
        #expect(answers.asked.withLock { $0.count { $0.url.hasSuffix("a") } } == 4)
        // The interval less a millisecond.
        #expect(Set(answers.asked.withLock { $0.map(\.limit) }) == [.milliseconds(4_999), .milliseconds(999)])
        // The answer to the next report is lost with the connection.
        server.plan.withLock {
            $0.call = { $0.method == "BatchUpdateAppHealths" && $0.connection == 1 ? .drop(taken: false) : .answer }
        }
        answers.answers.withLock { $0["http://localhost/b"] = true }
        server.manifest.withLock { manifest in
            manifest.apps = [app("a", health: .y), app("b", interval: 1, threshold: 2, health: .unhealthy)]
        }
        simulation.run(for: .seconds(20))
        #expect(server.dials.count == 2)
        #expect(updates() == ["a healthy", "b unhealthy", "b healthy"])
    }
}

/// Real HTTP.
@Suite(.timeLimit(.minutes(2))) struct HTTPAppProberTests {
    private let prober = HTTPAppProber(group: MultiThreadedEventLoopGroup.singleton, pool: DialTest.pool)

    @Test func below500IsHealthy() async throws {
        let app = try await StandIn { request, connection in
            guard let code = Int(request.uri.dropFirst()) else { return connection.close() }
            connection.answer(code, code == 302 ? "" : "a body", code == 302 ? ["Location: /500"] : [])
        }
        for (path, healthy) in [
            ("200", true), ("302", true), ("404", true), ("499", true), ("500", false), ("503", false),
            ("close", false),
        ] {
            let url = "http://127.0.0.1:\(app.port)/\(path)"
            #expect(await prober.isHealthy(url, within: .seconds(60)) == healthy, "\(path)")
        }
        #expect(app.requests.map(\.uri).last == "/close", "no redirect is followed")
        await app.stop()
    }

    /// However long there is to answer: a refused connection is not tried again.
    @Test(arguments: [
        "", "nonsense", "file:///etc/passwd", "http://127.0.0.1:1/", "https://127.0.0.1:1/", "http://", "unix:/x",
        "http://127.0.0.1:99999/", "http://a host/",
    ]) func whatIsNotThereIsNotHealthy(_ url: String) async {
        #expect(await prober.isHealthy(url, within: .seconds(86_400)) == false)
    }

    @Test func theWholeAddressIsAsked() async throws {
        let app = try await StandIn { request, connection in connection.answer(200) }
        for path in ["", "?a=b", "/", "/x/?a=b c#d", "/\u{fc}"] {
            #expect(await prober.isHealthy("http://localhost:\(app.port)\(path)", within: .seconds(60)), "\(path)")
        }
        #expect(app.requests.map(\.uri) == ["/", "/?a=b", "/", "/x/?a=b%20c", "/%C3%BC"])
        #expect(app.requests.first?.headers["host"] == ["localhost:\(app.port)"])
        await app.stop()
    }

    /// One that an earlier time left open may be dead without our knowing.
    @Test func eachTimeHasAConnectionOfItsOwn() async throws {
        let connections = Mutex(0)
        let app = try await StandIn { _ in
            connections.withLock { $0 += 1 }
            return false
        } _: { _, connection in
            connection.answer(200)
        }
        for count in 1...3 {
            #expect(await prober.isHealthy("http://127.0.0.1:\(app.port)/", within: .seconds(60)))
            #expect(connections.withLock { $0 } == count)
        }
        await app.stop()
    }

    /// It is left at its time, and at once when its caller is cancelled; the connection closes.
    @Test func anAppThatNeverAnswersIsLeft() async throws {
        let (asked, closed) = (Wakeup(), Wakeup())
        let app = try await StandIn { request, connection in
            connection.channel.closeFuture.whenComplete { _ in closed.signal() }
            asked.signal()
        }
        let url = "http://127.0.0.1:\(app.port)/"
        #expect(await prober.isHealthy(url, within: .milliseconds(50)) == false)
        let prober = prober
        let task = Task { await prober.isHealthy(url, within: .seconds(86_400)) }
        try await asked.wait()
        task.cancel()
        #expect(await task.value == false)
        try await closed.wait()
        await app.stop()
    }
}
