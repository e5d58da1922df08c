import AgentCore
import AgentTestSupport
import CPlatform
import Glibc
import Testing

@testable import AgentProc

@Suite struct OrphanReaperTests {
    /// A look ends at a managed child that its owner has not reaped yet; the orphan behind it is found after that. In
    /// a process of its own, which adopts no other test's children.
    @Test func anOrphanBehindAManagedChild() async throws {
        await #expect(processExitsWith: .success) {
            #expect(wa_set_child_subreaper(true) == 0)
            let reactor = try Reactor()
            #expect(reactor.start())
            let launcher = try Launcher()
            let reaper = OrphanReaper(isEnabled: true, launcher: launcher, reactor: reactor)
            let output = try makePipe()
            let request = LaunchRequest(
                arguments: ["/bin/sh", "-c", "sleep 0 & echo $!"], environment: ["PATH": "/usr/bin:/bin"],
                workdir: "/", stdout: output.write, stderr: output.write)
            // By the thread that looks: the kernel shows it its own children first.
            let started = Promise<LaunchedProcess?>()
            reactor.perform { started.fulfill(try? launcher.launch(request)) }
            let managed = try #require(await started.valueIgnoringCancellation)
            close(output.write)
            // The end of the pipe is that of both.
            var text = ""
            try await eventually("both have ended") {
                var area = [UInt8](repeating: 0, count: 64)
                let count = read(output.read, &area, area.count)
                if count > 0 { text += String(decoding: area.prefix(count), as: UTF8.self) }
                return count == 0
            }
            let orphan = try #require(pid_t(text.prefix { $0 != "\n" }))
            try await eventually("both are zombies") {
                ProcFS.state(managed.pid) == "Z" && ProcFS.state(orphan) == "Z"
            }
            reaper.childExited()
            // What the reactor does next, it does after the look.
            let looked = Promise<Void>()
            reactor.perform { looked.fulfill() }
            await looked.valueIgnoringCancellation
            #expect(ProcFS.state(managed.pid) == "Z", "its exit is its owner's")
            var status = wa_exit()
            #expect(launcher.reap(managed, &status) > 0)
            reaper.managedChildReaped()
            try await eventually("the orphan is reaped") { !ProcFS.exists(orphan) }
        }
    }
}
