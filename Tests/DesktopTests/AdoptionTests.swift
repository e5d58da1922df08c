import AgentTestSupport
import Glibc
import Testing

@testable import Desktop

/// Desktops that an earlier run of the agent left.
@Suite(.timeLimit(.minutes(15))) struct AdoptionTests {
    @Test func aRunningDesktopIsAdopted() async throws {
        let first = try SessionWorld()
        let desktop = try await first.session.desktop()
        await first.abandon()
        let second = try SessionWorld(directory: first.directory)
        try await withWorld(second) { world in
            let adopted = try await world.session.desktop()
            #expect(adopted.display == desktop.display && adopted.since == desktop.since)
            #expect(adopted.endpoint == desktop.endpoint && adopted.vncPort == desktop.vncPort)
            #expect(world.calls("up") == 1)
            _ = try await world.session.perform(
                DesktopAction(
                    name: "left_click",
                    work: .driver(.click(.left, times: 1, at: DesktopPoint(x: 5, y: 5), modifiers: []))))
            #expect(world.log.text.contains("adopted the desktop"))
            #expect(world.metrics.render().contains(#"agent_desktop_starts_total{result="adopted"} 1"#))
        }
        try await eventuallyNothingLeft(of: second)
    }

    @Test(arguments: [SIGKILL, SIGSTOP])
    func oneThatDoesNotAnswerIsCleanedUp(signal: CInt) async throws {
        let first = try SessionWorld()
        _ = try await first.session.desktop()
        let old = try first.xvnc()
        await first.abandon()
        kill(old, signal)
        var limits = SessionWorld.patientLimits
        limits.adoption = .seconds(1)
        limits.stopGrace = .milliseconds(500)
        let second = try SessionWorld(directory: first.directory, limits: limits)
        try await withWorld(second) { world in
            _ = try await world.session.desktop()
            #expect(world.calls("up") == 2 && !ProcFS.runs(old))
        }
        try await eventuallyNothingLeft(of: second)
    }

    @Test(arguments: [false, true]) func anUnusedOneIsEnded(wasKilled: Bool) async throws {
        let first = try SessionWorld()
        _ = try await first.session.desktop()
        let old = try first.xvnc()
        await first.abandon()
        if wasKilled { kill(old, SIGKILL) }
        let second = try SessionWorld(directory: first.directory)
        await second.stop()
        try await eventuallyNothingLeft(of: second)
    }

    @Test func aServerWithoutARecordIsFoundByItsSocket() async throws {
        let first = try SessionWorld()
        _ = try await first.session.desktop()
        let old = try first.xvnc()
        await first.abandon()
        unlink("\(first.state)/session.json")
        let second = try SessionWorld(directory: first.directory)
        try await withWorld(second) { world in
            _ = try await world.session.desktop()
            #expect(world.calls("up") == 2 && !ProcFS.runs(old))
        }
        try await eventuallyNothingLeft(of: second)
    }

    @Test func aRecordThatNamesAnotherProcessLeavesItAlone() async throws {
        let bystander = try DaemonProcess.spawn(["/bin/sleep", "1000"], [:])
        defer {
            kill(bystander, SIGKILL)
            waitpid(bystander, nil, 0)
        }
        let world = try SessionWorld()
        let files = SessionFiles(stateDirectory: "\(world.directory.path)/state")
        try files.prepare()
        try files.write(
            .init(
                boot: SessionFiles.boot, began: 1,
                desktop: .init(
                    xvnc: .init(pid: bystander, startTime: 1), openbox: .init(pid: bystander, startTime: 2),
                    display: ":1", vncPort: 5901, since: 1, sessionDirectory: nil)))
        try await withWorld(world) { world in _ = try await world.session.desktop() }
        #expect(ProcFS.runs(bystander))
    }
}
