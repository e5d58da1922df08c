import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

/// What requests about windows take from the process, and whom they speak to. Counts are of processes of their own.
@Suite(.timeLimit(.minutes(15)), .blocking) struct XServerResourceTests {
    private static func taken() -> [Int] { [ProcFS.threads(getpid()), ProcFS.descriptors(getpid())] }

    @Test func theSeventeenthCallIsRefused() async throws {
        await #expect(processExitsWith: .success) {
            let (xvnc, x, server, clock) = try HostileWindowTests.desktop()
            defer { withExtendedLifetime((xvnc, x)) {} }
            let waits = (1...DesktopLimits.windowCalls).map { number in
                Task { try await server.firstWindow(titled: "number \(number).", within: .seconds(100)) }
            }
            try await eventually("the waits") {
                clock.sleeping == DesktopLimits.windowCalls && clock.nextDeadline?.offset == .seconds(100)
            }
            do {
                _ = try await server.pointer()
                Issue.record("a call too many is answered")
            } catch let error as DesktopError {
                #expect(error.code == .tooMany && error.message.contains("16"))
            }
            // The end of one makes room for one.
            let window = try x.window(titled: "number 7.")
            try x.list([window])
            #expect(try await waits[6].value?.id == window)
            _ = try await server.pointer()
            for wait in waits { wait.cancel() }
            for wait in waits { _ = try? await wait.value }
            for _ in 1...40 { _ = try await server.pointer() }
        }
    }

    @Test func everythingIsGivenBack() async throws {
        await #expect(processExitsWith: .success) { try await Self.takeAndGiveBack() }
    }

    private static func takeAndGiveBack() async throws {
        let (xvnc, x, server, clock) = try HostileWindowTests.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        let windows = try (0..<20).map { try x.window(titled: "\($0)") }
        try x.list(windows)
        _ = try await server.windows()
        try await eventually("the end of a thread") { !Self.names().contains("desktop-windows") }
        let before = Self.taken()
        for _ in 1...40 {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 1...4 {
                    group.addTask {
                        let count = try await server.windows().count
                        #expect(count == 20)
                    }
                }
                group.addTask { _ = try await server.firstWindow(titled: "19", within: .seconds(9)) }
                group.addTask { try? await server.close(1) }
                let wait = Task { try await server.firstWindow(titled: "x", within: .seconds(9)) }
                group.addTask { _ = try await server.pointer() }
                try await group.waitForAll()
                wait.cancel()
                _ = await wait.result
            }
        }
        try await eventually("what was taken: \(before), now \(Self.taken())") { Self.taken() == before }
        kill(xvnc.pid, SIGSTOP)
        for round in 1...5 {
            let calls = (1...DesktopLimits.windowCalls).map { _ in Task { try await server.windows() } }
            await clock.sleepers(calls.count)
            if round % 2 == 0 { clock.advance(by: .seconds(5)) } else { for call in calls { call.cancel() } }
            for call in calls { await #expect(throws: (any Error).self) { try await call.value } }
        }
        #expect(clock.sleeping == 0)
        try await eventually("what was taken: \(before)") { Self.taken() == before }
        kill(xvnc.pid, SIGCONT)
        #expect(try await server.windows().count == 20)
    }

    /// Of the threads of this process.
    private static func names() -> [String] {
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
        return threads.map {
            ProcFS.text("/proc/self/task/\($0)/comm").trimmingCharacters(in: .whitespacesAndNewlines)
        }
    }

    @Test func theAbstractSocketStandsInForTheFile() async throws {
        let (xvnc, x, server, _) = try HostileWindowTests.desktop()
        defer { withExtendedLifetime((xvnc, x)) {} }
        #expect(unlink("/tmp/.X11-unix/X\(xvnc.display.dropFirst())") == 0)
        #expect(try await server.windows() == [])
    }

    /// A display that no X server has, for sockets that a test makes.
    private static let nextDisplay = Mutex<UInt16>(UInt16.random(in: 30_000...40_000))
    private static func freeDisplay() throws -> (display: String, path: String) {
        if mkdir("/tmp/.X11-unix", 0o777) == 0 { chmod("/tmp/.X11-unix", 0o1777) }
        let number = nextDisplay.withLock { number in
            repeat { number += 1 } while access("/tmp/.X11-unix/X\(number)", F_OK) == 0
            return number
        }
        return (":\(number)", "/tmp/.X11-unix/X\(number)")
    }

    private func refusal(_ display: String) throws -> DesktopError {
        do {
            close(try XSocket.connect(to: display))
        } catch {
            return error
        }
        throw DeadlineExceeded(what: "a refusal")
    }

    @Test(.enabled(if: geteuid() == 0)) func anotherUsersServerIsNotSpokenTo() async throws {
        let (display, path) = try Self.freeDisplay()
        let script = "use IO::Socket::UNIX; $s = IO::Socket::UNIX->new(Local => shift, Listen => 5) or die; sleep 1000"
        let stranger = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec setpriv --reuid=65534 --clear-groups perl -e \"$0\" \"$1\"", script, path],
            ProcessInfo.processInfo.environment)
        defer {
            kill(stranger, SIGKILL)
            waitpid(stranger, nil, 0)
            unlink(path)
        }
        var error = try refusal(display)
        try await eventually("a socket") {
            error = try refusal(display)
            return error.message.contains("another user's")
        }
        #expect(error.code == .failed && error.detail?.contains("65534") == true)
    }

    @Test func aFullQueueIsNotWaitedFor() throws {
        let (display, path) = try Self.freeDisplay()
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        defer {
            close(listener)
            unlink(path)
        }
        let rc = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(rc == 0 && listen(listener, 0) == 0)
        var connections: [CInt] = []
        defer { for connection in connections { close(connection) } }
        let error = try #require(
            throws: DesktopError.self,
            performing: { for _ in 1...10 { connections.append(try XSocket.connect(to: display)) } })
        #expect(error.code == .failed && error.detail?.contains("queue") == true && !connections.isEmpty)
    }

    @Test func whatIsNoSocketIsRefused() throws {
        let (display, path) = try Self.freeDisplay()
        #expect(try refusal(display).message.contains("does not accept connections"))
        mkfifo(path, 0o600)
        defer { unlink(path) }
        #expect(try refusal(display).message.contains(path))
        for wrong in ["", ":", "3", ":-1", ":+1", ":65536", ":1.", ":1.x", "host:1", ":1/../2", ":1.0.0", "::1"] {
            #expect(XSocket.number(of: wrong) == nil, "\(wrong)")
            #expect(try refusal(wrong).message.contains("is not an X display"))
        }
        #expect(XSocket.number(of: ":12") == 12 && XSocket.number(of: ":12.3") == 12)
    }
}
