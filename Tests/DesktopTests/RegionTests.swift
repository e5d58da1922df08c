import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Pictures of a part of the screen, and scaled ones.
@Suite(.timeLimit(.minutes(15))) struct RegionTests {
    private static let native = DesktopSize(width: 1280, height: 800)

    private func region(_ json: String) throws -> (DesktopRegion, DesktopSize) {
        try region(of: try action(json), on: Self.native)
    }

    private func region(of action: DesktopAction, on size: DesktopSize) throws -> (DesktopRegion, DesktopSize) {
        guard case .driver(.picture(let picture)) = action.work else { throw DeadlineExceeded(what: "\(action)") }
        let (area, scaled) = try DesktopGeometry.area(of: picture, in: action.space, on: size)
        return (area, scaled)
    }

    @Test(
        arguments: [
            (#""region":[10,20,30,40]"#, [10, 20, 30, 40], 30, 40),
            // At the edges it is cut off.
            (#""region":[1270,790,100,100]"#, [1270, 790, 10, 10], 10, 10),
            (#""region":[-5,-5,10,10]"#, [0, 0, 5, 5], 5, 5),
            (#""region":[0,0,9223372036854775807,1]"#, [0, 0, 1280, 1], 1280, 1),
            // Declared at half the size, and at twice.
            (#""region":[10,20,30,40],"scaled_width":640,"scaled_height":400"#, [20, 40, 60, 80], 60, 80),
            (#""region":[10,20,30,40],"scaled_width":2560,"scaled_height":1600"#, [5, 10, 15, 20], 15, 20),
            // Less than a pixel is one.
            (#""region":[3,3,1,1],"scaled_width":5120,"scaled_height":3200"#, [1, 1, 1, 1], 1, 1),
            (#""region":[5119,3199,1,1],"scaled_width":5120,"scaled_height":3200"#, [1279, 799, 1, 1], 1, 1),
            (#""region":[10,20,30,40],"scale":2.5"#, [10, 20, 30, 40], 75, 100),
            (#""region":[10,20,3,4],"scale":0.05"#, [10, 20, 3, 4], 1, 1),
            (#""scale":0.5"#, [0, 0, 1280, 800], 640, 400),
            (#""scale":0.5,"scaled_width":1000,"scaled_height":500"#, [0, 0, 1280, 800], 500, 250),
            (#""scaled_width":1000"#, [0, 0, 1280, 800], 1000, 800),
            (#""scale":6.4"#, [0, 0, 1280, 800], 8192, 5120),
        ] as [(String, [Int], Int, Int)])
    func mapsToTheScreen(json: String, area: [Int], width: Int, height: Int) throws {
        let (found, size) = try region("{\"action\":\"screenshot\",\(json)}")
        #expect([found.x, found.y, found.width, found.height] == area)
        #expect(size == DesktopSize(width: width, height: height))
    }

    @Test(arguments: [
        (
            #""region":[1280,0,5,5]"#, #""region" [1280, 0, 5, 5] is outside the screen, which is 1280 by 800."#
        ),
        (#""region":[0,-5,5,5]"#, #""region" [0, -5, 5, 5] is outside the screen, which is 1280 by 800."#),
        (
            #""region":[0,400,5,5],"scaled_height":400"#,
            #""region" [0, 400, 5, 5] is outside the screen, which is 1280 by 400."#
        ),
        (
            #""scale":6.401"#,
            "The picture would have 8193 by 5121 pixels; at most 8192 on a side are possible: choose a smaller \"scale\"."
        ),
    ])
    func namesWhatIsOutside(json: String, message: String) throws {
        do {
            Issue.record("\(try region("{\"action\":\"screenshot\",\(json)}"))")
        } catch let error as DesktopError {
            #expect(error.code == .invalid && error.message == message)
        }
    }

    /// Each pixel of a region is that of the same place in a picture of the whole, in three geometries, over RFB and
    /// cut out of a picture of portabledesktop's.
    @Test(arguments: [(1280, 800), (640, 400), (1920, 1080)])
    func hasThePixelsOfTheWhole(width: Int, height: Int) async throws {
        try await withDesktop { xvnc, driver in
            let root = "\(xvnc.directory.path)/root.png"
            try xvnc.run("convert", "-size", "1280x800", "plasma:fractal", "-depth", "8", root)
            _ = try CommandResult.of(["display", "-window", "root", root], environment: ["DISPLAY": xvnc.display])
            try await driver.perform(#"{"action":"mouse_move","coordinate":[0,0]}"#)
            let whole = try await driver.perform(#"{"action":"screenshot"}"#)
            let png = try #require(whole.screenshot)
            let declared = #""scaled_width":\#(width),"scaled_height":\#(height)"#
            for region in ["[100,50,200,100]", "[0,0,1,1]", "[300,200,5000,5000]", "[7,9,333,77]"] {
                let action = try action("{\"action\":\"zoom\",\"region\":\(region),\(declared)}")
                let (area, _) = try self.region(of: action, on: driver.size)
                let part = try await driver.perform(action)
                #expect(part.output == "screenshot")
                #expect(part.size == DesktopSize(width: area.width, height: area.height))
                let geometry = "\(area.width)x\(area.height)+\(area.x)+\(area.y)"
                let expected = try pixels(png, xvnc, ["-crop", geometry, "+repage"])
                let found = try pixels(try #require(part.screenshot), xvnc, [])
                #expect(found == expected, "\(region)")
                let cut = try PNG.crop(png, to: area, scaledTo: DesktopSize(width: area.width, height: area.height))
                #expect(try pixels(cut, xvnc, []) == expected, "\(region)")
            }
        }
    }

    /// RGB bytes, as ImageMagick decodes them.
    private func pixels(_ png: [UInt8], _ xvnc: Xvnc, _ change: [String]) throws -> [UInt8] {
        let file = "\(xvnc.directory.path)/part.png"
        let raw = "\(xvnc.directory.path)/part.rgb"
        try Data(png).write(to: URL(fileURLWithPath: file))
        let result = try CommandResult.of(["convert", "PNG:\(file)"] + change + ["-depth", "8", "rgb:\(raw)"])
        #expect(result.code == 0, "\(result)")
        return Array(try Data(contentsOf: URL(fileURLWithPath: raw)))
    }

    @Test func refusesWhatIsNoPicture() throws {
        let area = DesktopRegion(x: 0, y: 0, width: 1, height: 1)
        for bytes in [[], Array("no PNG".utf8), [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]] as [[UInt8]] {
            #expect(throws: DesktopError(.failed, "")) {
                try PNG.crop(bytes, to: area, scaledTo: DesktopSize(width: 1, height: 1))
            }
        }
    }
}
