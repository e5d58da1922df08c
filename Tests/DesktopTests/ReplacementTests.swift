import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// What replaces a desktop, or its window manager, and how clients get to know.
@Suite(.timeLimit(.minutes(15))) struct ReplacementTests {
    private static let move = #"{"action":"mouse_move","coordinate":[5,6]}"#

    @Test func theFirstAnswerAfterAReplacementSaysSo() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            try await server.blocking { server in
                let plain = #"{"output":"mouse_move action performed"}"#
                #expect(try server.action(Self.move).text == plain)
                kill(try server.world.xvnc(), SIGKILL)
                // Nothing has replaced it yet.
                #expect(try server.action(#"{"action":"wait","duration":1}"#).json["desktop_restarted"] == nil)
                let answer = try server.action(Self.move)
                #expect(
                    answer.text == #"{"desktop_restarted":true,"output":"mouse_move action performed"}"#,
                    "\(answer.text)")
                #expect(try server.action(Self.move).text == plain)
            }
            #expect(server.world.calls("up") == 2)
        }
    }

    /// A click is not repeated: the answer is an error, and the next one has the news.
    @Test func soDoesTheFirstOneAfterAnError() async throws {
        try await withServer(SessionWorld(connect: SessionWorld.rfb)) { server in
            try await server.blocking { server in
                #expect(try server.action(Self.move).status == 200)
                let xvnc = try server.world.xvnc()
                kill(xvnc, SIGSTOP)
                let connection = try server.connect()
                try connection.send(
                    "POST", "/api/v0/desktop/action", headers: [:], body: #"{"action":"left_click","coordinate":[5,6]}"#
                )
                kill(xvnc, SIGKILL)
                let failed = try connection.response()
                // Depending on when the end was seen.
                if failed.status == 200 {
                    #expect(failed.json["desktop_restarted"] as? Bool == true)
                } else {
                    #expect(failed.status == 500)
                    #expect(try server.action(Self.move).json["desktop_restarted"] as? Bool == true)
                }
                #expect(try server.action(Self.move).json["desktop_restarted"] == nil)
            }
        }
    }

    /// One that an earlier run of the agent left, and that is gone, was replaced as well; an adopted one was not.
    @Test(arguments: [true, false])
    func theNextRunKnows(dies: Bool) async throws {
        let directory = try TemporaryDirectory()
        let first = try SessionWorld(directory: directory, connect: SessionWorld.rfb)
        _ = try await first.session.perform(try action(Self.move))
        #expect(!first.session.takeReplacement())
        if dies {
            let xvnc = try first.xvnc()
            kill(xvnc, SIGKILL)
            try await eventually("its end") { !ProcFS.runs(xvnc) }
        }
        await first.abandon()
        let second = try SessionWorld(directory: directory, connect: SessionWorld.rfb)
        try await withWorld(second) { world in
            _ = try await world.session.perform(try action(Self.move))
            #expect(world.session.takeReplacement() == dies)
            #expect(!world.session.takeReplacement())
        }
        try await eventuallyNothingLeft(of: second)
    }

    // MARK: The window manager

    private static func openbox(_ world: SessionWorld, besides old: pid_t = 0) async throws -> pid_t {
        // The process is reported before it has executed openbox.
        var found: pid_t?
        try await eventually("a window manager") {
            found = world.processes().first {
                $0 != old && ProcFS.text("/proc/\($0)/comm").hasPrefix("openbox")
            }
            return found != nil
        }
        return try #require(found)
    }

    /// Its threads may end later than /proc calls it a zombie.
    private static func itsEndIsKnown(_ world: SessionWorld) async throws {
        try await eventually("the end of the window manager") {
            world.session.health?.text.contains("starts it again") == true
        }
    }

    @Test func aWindowManagerThatDiesIsStartedAgain() async throws {
        var limits = SessionWorld.patientLimits
        limits.windowManagerRestart = .zero
        let world = try SessionWorld(limits: limits, connect: SessionWorld.rfb)
        try await withWorld(world) { world in
            let desktop = try await world.session.desktop()
            var openbox = try await Self.openbox(world)
            let words = ProcFS.text("/proc/\(openbox)/cmdline").split(separator: "\0").dropFirst()
            for _ in 0..<2 {
                kill(openbox, SIGKILL)
                try await Self.itsEndIsKnown(world)
                _ = try await world.session.perform(try action(Self.move))
                openbox = try await Self.openbox(world, besides: openbox)
                #expect(ProcFS.text("/proc/\(openbox)/environ").contains("DISPLAY=\(desktop.display)\0"))
                #expect(ProcFS.text("/proc/\(openbox)/cmdline").split(separator: "\0").dropFirst() == words)
                #expect(world.session.health == nil)
            }
            #expect(world.calls("up") == 1)
            // It manages windows.
            let display = try Xvnc(on: desktop.display)
            try await display.windowManager()
            try display.start(["xterm", "-T", "managed"])
            let found = try await world.session.perform(
                try action(#"{"action":"wait_for_window","title":"managed","timeout_ms":60000}"#))
            #expect(found.met == true)
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func oneThatDiesAtOnceIsNotStartedAllTheTime() async throws {
        let world = try SessionWorld(connect: SessionWorld.rfb)
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            var openbox = try await Self.openbox(world)
            kill(openbox, SIGKILL)
            try await Self.itsEndIsKnown(world)
            _ = try await world.session.perform(try action(Self.move))
            openbox = try await Self.openbox(world, besides: openbox)
            kill(openbox, SIGKILL)
            try await Self.itsEndIsKnown(world)
            for _ in 0..<5 { _ = try await world.session.perform(try action(Self.move)) }
            let starts = world.log.text.components(separatedBy: "was started again").count - 1
            #expect(starts == 1)
        }
    }

    /// An adopted desktop's window manager, dead or alive, is kept, too.
    @Test(arguments: [true, false])
    func anAdoptedOneIsKept(dies: Bool) async throws {
        let directory = try TemporaryDirectory()
        let first = try SessionWorld(directory: directory, connect: SessionWorld.rfb)
        _ = try await first.session.desktop()
        let openbox = try await Self.openbox(first)
        if dies {
            kill(openbox, SIGKILL)
            try await eventually("its end") { !ProcFS.runs(openbox) }
        }
        await first.abandon()
        let second = try SessionWorld(directory: directory, connect: SessionWorld.rfb)
        try await withWorld(second) { world in
            _ = try await world.session.desktop()
            if !dies {
                kill(openbox, SIGKILL)
                try await Self.itsEndIsKnown(world)
            }
            _ = try await world.session.perform(try action(Self.move))
            _ = try await Self.openbox(world, besides: openbox)
            #expect(world.calls("up") == 1)
        }
        try await eventuallyNothingLeft(of: second)
    }
}
