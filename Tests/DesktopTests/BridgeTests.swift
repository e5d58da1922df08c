import AgentCore
import AgentTestSupport
import Foundation
import Glibc
import Synchronization
import Testing

@testable import Desktop

@Suite(.timeLimit(.minutes(15))) struct BridgeTests {
    @Test(arguments: [false, true])
    func aViewerSeesTheDesktop(tcp: Bool) async throws {
        try await withServer(SessionWorld()) { server in
            try await server.blocking { server in
                let viewer = try TestViewer(
                    try server.connect(tcp: tcp), headers: ["Sec-WebSocket-Protocol": "base64, binary"])
                #expect(viewer.response.headers["sec-websocket-protocol"] == "binary")
                let rfb = try RawRFB(viewer)
                #expect(rfb.size == DesktopSize(width: 640, height: 480))
                for _ in 0..<5 { try rfb.frame() }
                let status = try server.connect().request("GET", "/api/v0/desktop/status").json
                #expect(status["viewers"] as? Int == 1)
                // Without an offer there is no answer to one.
                let other = try TestViewer(try server.connect(tcp: tcp))
                #expect(other.response.headers["sec-websocket-protocol"] == nil)
                try viewer.close()
                #expect(try viewer.readClose() == 1000)
            }
            try await eventually("they have left") { server.world.session.hub.count == 0 }
            #expect(server.world.calls("up") == 1)
        }
    }

    @Test func aStalledViewerSlowsNoOther() async throws {
        try await withServer(SessionWorld()) { server in
            let frame = 640 * 480 * 4
            let stalled = try await server.blocking { server in
                let viewer = try TestViewer(try server.connect())
                let rfb = try RawRFB(viewer)
                // 200 pictures that this viewer never reads.
                try rfb.requestFrames(200)
                return rfb
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<11 {
                    group.addTask {
                        try await server.blocking { server in
                            let rfb = try RawRFB(try TestViewer(try server.connect()))
                            for _ in 0..<10 { try rfb.frame() }
                        }
                    }
                }
                try await group.waitForAll()
            }
            // What the stalled one has not read is with the VNC server, not with us.
            let bytes = server.world.session.metrics.bytesOut.current
            #expect(bytes >= 110 * frame)
            #expect(bytes < 110 * frame + (8 << 20), "\(bytes)")
            stalled.end()
        }
    }

    @Test func messagesHaveNoLimit() async throws {
        let world = try SessionWorld()
        let fake = try FakeVNC(world.directory)
        try await withServer(world, endpoint: .unix(fake.path), driver: RecordingDriver()) { server in
            let count = 9 << 20
            let cut = [6, 0, 0, 0] + [count >> 24, count >> 16, count >> 8, count].map { UInt8($0 & 255) }
            async let received = server.blocking { _ in
                let descriptor = fake.accept()
                defer { close(descriptor) }
                return FakeVNC.readAll(descriptor).count
            }
            try await server.blocking { server in
                let viewer = try TestViewer(try server.connect(), path: "/fake")
                try viewer.send(Data(RFBClientInspectorTests.hello))
                try viewer.send(Data(cut) + Data(count: count))
                try viewer.close()
                #expect(try viewer.readClose() == 1000)
            }
            #expect(try await received == RFBClientInspectorTests.hello.count + 8 + count)
        }
    }

    // MARK: Buttons

    @Test(arguments: [true, false])
    func theButtonOfAViewerThatVanishesIsReleased(inOrder: Bool) async throws {
        let world = try SessionWorld()
        let fake = try FakeVNC(world.directory)
        let driver = RecordingDriver()
        try await withServer(world, endpoint: .unix(fake.path), driver: driver) { server in
            async let received = server.blocking { _ in
                let descriptor = fake.accept()
                defer { close(descriptor) }
                return FakeVNC.readAll(descriptor)
            }
            let sent = RFBClientInspectorTests.hello + RFBClientInspectorTests.pointer(1, 300, 200)
            try await server.blocking { server in
                let viewer = try TestViewer(try server.connect(tcp: true), path: "/fake")
                try viewer.send(Data(sent))
                if inOrder { try viewer.close() }
            }
            #expect(try await received == sent + RFBClientInspectorTests.pointer(0, 300, 200))
            try await eventually("the driver is notified") { driver.left.withLock { $0 } == [true] }
            #expect(driver.inputs.load(ordering: .relaxed) == 1)
            await server.world.session.hub.settled()
        }
    }

    @Test func afterAHeldButtonTheNextActionWorks() async throws {
        try await withServer(SessionWorld()) { server in
            for round in 1...5 {
                try await server.blocking { server in
                    let rfb = try RawRFB(try TestViewer(try server.connect()))
                    try rfb.pointer(1, 50 + round, 50)
                    try rfb.roundTrip()
                }
                // Noticed, but not yet with the VNC server: the action has to wait for that.
                try await eventually("its end is noticed") { server.world.session.hub.count == 0 }
                let place = DesktopPoint(x: 200 + round, y: 100)
                _ = try await server.world.session.perform(
                    DesktopAction(name: "mouse_move", work: .driver(.move(place))))
                let display = try #require(server.world.session.current?.display)
                try await server.blocking { _ in
                    let seen = try CommandResult.of(
                        ["xdotool", "getmouselocation"], environment: ["DISPLAY": display]
                    ).output
                    #expect(seen.hasPrefix("x:\(place.x) y:\(place.y) "), "\(seen)")
                }
            }
        }
    }

    // MARK: Ends

    @Test func theEndOfTheServerIsTold() async throws {
        let world = try SessionWorld()
        let fake = try FakeVNC(world.directory)
        try await withServer(world, endpoint: .unix(fake.path), driver: RecordingDriver()) { server in
            try await server.blocking { server in
                let viewer = try TestViewer(try server.connect(), path: "/fake")
                let descriptor = fake.accept()
                try #require(write(descriptor, "last", 4) == 4)
                close(descriptor)
                #expect(try viewer.receive(exactly: 4) == Data("last".utf8))
                #expect(try viewer.readClose() == 1000)
            }
            // A connection that breaks: what the viewer sent was never read.
            try await server.blocking { server in
                let viewer = try TestViewer(try server.connect(), path: "/fake")
                let descriptor = fake.accept()
                try viewer.send(Data("unread".utf8))
                var pending: Int32 = 0
                while pending < 6 {
                    _ = ioctl(descriptor, UInt(FIONREAD), &pending)
                    poll(nil, 0, 2)
                }
                close(descriptor)
                #expect(try viewer.readClose() == 1011)
            }
            unlink(fake.path)
            try await server.blocking { server in
                let viewer = try TestViewer(try server.connect(), path: "/fake")
                #expect(try viewer.readClose() == 1011)
            }
            try await eventually("no viewer is left") { server.world.session.hub.count == 0 }
        }
    }

    @Test func shutdownClosesWith1001() async throws {
        let world = try SessionWorld()
        try await withServer(world) { server in
            let viewers = try await server.blocking { server in
                // Unsendable as it is, it is handed over whole.
                nonisolated(unsafe) let viewer = try TestViewer(try server.connect())
                let rfb = try RawRFB(viewer)
                try rfb.frame()
                return rfb
            }
            let stopping = server.beginStop()
            try await server.blocking { _ in
                let viewer = try #require(viewers.connection as? TestViewer)
                #expect(try viewer.readClose() == 1001)
            }
            await stopping.value
        }
        try await eventuallyNothingLeft(of: world)
    }

    @Test func manyViewersLeaveNothingBehind() async throws {
        // In a process of its own, where nothing else opens descriptors.
        await #expect(processExitsWith: .success) {
            try await withServer(SessionWorld()) { server in
                _ = try await server.world.session.desktop()
                let visit: @Sendable (DesktopServer, Int) throws -> Void = { server, index in
                    let viewer = try TestViewer(try server.connect(tcp: index % 2 == 0))
                    let rfb = try RawRFB(viewer)
                    switch index % 4 {
                    case 0: try rfb.frame()
                    case 1: try rfb.requestFrames(20)
                    case 2: try viewer.close()
                    default: try rfb.pointer(1, 5, 5)
                    }
                }
                for index in 0..<4 { try await server.blocking { try visit($0, index) } }
                try await eventually("they have left") { server.world.session.hub.count == 0 }
                await server.world.session.hub.settled()
                let before = Self.sockets()
                for index in 0..<60 { try await server.blocking { try visit($0, index) } }
                try await eventually("they have left, too") { server.world.session.hub.count == 0 }
                await server.world.session.hub.settled()
                // A leak by one kind of visit would be fifteen.
                try await eventually("descriptors are back") { Self.sockets() < before + 15 }
                #expect(server.world.session.metrics.viewers.current == 0)
            }
        }
    }

    private static func sockets() -> Int { ProcFS.descriptors(getpid()) }
}
