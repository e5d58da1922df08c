import Foundation
import Glibc
import Testing

@testable import Desktop

/// Giving a desktop another size, with xdpyinfo as the witness.
@Suite(.timeLimit(.minutes(15))) struct DesktopSizeTests {
    private static func size(_ xvnc: Xvnc) throws -> String {
        try xvnc.run("xdotool", "getdisplaygeometry").trimmingCharacters(in: .whitespacesAndNewlines)
    }

    @Test func theServerTakesTheSize() async throws {
        try await withDesktop { xvnc, driver in
            for (width, height) in [(1024, 768), (1024, 768), (1366, 767), (1920, 1080), (64, 64)] {
                let result = try await driver.perform(#"{"action":"resize","text":"\#(width)x\#(height)"}"#)
                #expect(result.output == "resize action performed")
                #expect(driver.size == DesktopSize(width: width, height: height))
                #expect(try Self.size(xvnc) == "\(width) \(height)")
                let picture = try await driver.perform(#"{"action":"screenshot"}"#)
                #expect(picture.size == driver.size)
            }
            try await driver.perform(
                #"{"action":"mouse_move","coordinate":[9,9],"scaled_width":10,"scaled_height":10}"#)
            #expect(try xvnc.pointer() == DesktopPoint(x: 60, y: 60))
        }
    }

    @Test func aServerThatRefusesIsQuoted() async throws {
        try await withDesktop(arguments: ["-AcceptSetDesktopSize=0"]) { xvnc, driver in
            do {
                try await driver.perform(#"{"action":"resize","text":"1024x768"}"#)
                Issue.record("it was resized to \(try Self.size(xvnc))")
            } catch let error as DesktopError {
                #expect(
                    error.message
                        == "The VNC server refuses to be resized to 1024x768: it is configured not to be resized.")
            }
            #expect(try Self.size(xvnc) == "1280 800" && driver.size == DesktopSize(width: 1280, height: 800))
            // The connection goes on.
            try await driver.perform(#"{"action":"mouse_move","coordinate":[9,9]}"#)
        }
    }

    @Test func theMessageIsAsTheProtocolSays() {
        let size = DesktopSize(width: 0x1234, height: 0x0506)
        #expect(
            RFBMessage.desktopSize(size, screen: 0x0a0b_0c0d, flags: 7) == [
                251, 0, 0x12, 0x34, 5, 6, 1, 0, 10, 11, 12, 13, 0, 0, 0, 0, 0x12, 0x34, 5, 6, 0, 0, 0, 7,
            ])
    }

    /// `up` with the size mode that lets clients resize; an older build does without.
    @Test(arguments: ["", "unsized"])
    func theSessionAsksForADesktopThatCanBeResized(fault: String) async throws {
        let world = try SessionWorld(fault: fault, connect: SessionWorld.rfb)
        try await withWorld(world) { world in
            _ = try await world.session.desktop()
            #expect(world.calls("up") == (fault.isEmpty ? 1 : 2))
            let resize = try action(#"{"action":"resize","text":"800x600"}"#)
            if fault.isEmpty {
                _ = try await world.session.perform(resize)
                #expect(world.session.current?.driver.size == DesktopSize(width: 800, height: 600))
            } else {
                await #expect(throws: DesktopError(.failed, "")) { try await world.session.perform(resize) }
            }
        }
        try await eventuallyNothingLeft(of: world)
    }
}
