import AgentTestSupport
import CDesktop
import Foundation
import Glibc
import Testing

@testable import Desktop

@Suite(.timeLimit(.minutes(15))) struct ScreenshotTests {
    /// RGB of a PNG, as another program reads it.
    private func pixels(_ png: [UInt8], _ directory: String) throws -> (DesktopSize, [UInt8]) {
        let file = "\(directory)/shot.png"
        try Data(png).write(to: URL(fileURLWithPath: file))
        let head = try CommandResult.of(["identify", "-format", "%w %h %[channels] %z", "PNG:\(file)"]).output
        let words = head.split(separator: " ")
        #expect(words.dropFirst(2) == ["srgb", "8"])
        _ = try CommandResult.of(["convert", "PNG:\(file)", "-depth", "8", "rgb:\(directory)/shot.rgb"])
        let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(directory)/shot.rgb"))
        return (DesktopSize(width: Int(words[0]) ?? 0, height: Int(words[1]) ?? 0), Array(bytes))
    }

    private func draw(_ xvnc: Xvnc, _ picture: String = "plasma:fractal") throws {
        let size = try xvnc.run("xdotool", "getdisplaygeometry").split(separator: " ")
        let width = size[0], height = size[1].trimmingCharacters(in: .whitespacesAndNewlines)
        let file = "\(xvnc.directory.path)/root.png"
        try xvnc.run("convert", "-size", "\(width)x\(height)", picture, "-depth", "8", file)
        // It ends with 1 whenever it did so.
        _ = try CommandResult.of(["display", "-window", "root", file], environment: ["DISPLAY": xvnc.display])
    }

    @Test(arguments: ["1280x800", "641x479", "37x1021"])
    func showsEveryPixelAndTheCursor(geometry: String) async throws {
        try await withDesktop(geometry) { xvnc, driver in
            try self.draw(xvnc)
            try xvnc.run("xsetroot", "-cursor_name", "left_ptr")
            let size = driver.size
            try await driver.perform(#"{"action":"mouse_move","coordinate":[20,30]}"#)
            let result = try await driver.perform(#"{"action":"screenshot"}"#)
            #expect(result.output == "screenshot" && result.size == size)
            let (shown, mine) = try self.pixels(try #require(result.screenshot), xvnc.directory.path)
            #expect(shown == size)
            try xvnc.run("import", "-window", "root", "-depth", "8", "rgb:\(xvnc.directory.path)/other.rgb")
            let other = Array(try Data(contentsOf: URL(fileURLWithPath: "\(xvnc.directory.path)/other.rgb")))
            #expect(mine.count == other.count && mine.count == size.width * size.height * 3)
            var outside = 0
            var cursor: [DesktopPoint] = []
            for index in 0..<min(mine.count, other.count) / 3
            where mine[3 * index..<3 * index + 3] != other[3 * index..<3 * index + 3] {
                let point = DesktopPoint(x: index % size.width, y: index / size.width)
                if abs(point.x - 20) <= 16 && abs(point.y - 30) <= 24 { cursor.append(point) } else { outside += 1 }
            }
            #expect(outside == 0)
            // An arrow whose tip is where the pointer is.
            #expect(cursor.count > 20)
            #expect(cursor.map(\.x).min().map { abs($0 - 20) <= 2 } == true)
            #expect(cursor.map(\.y).min().map { abs($0 - 30) <= 2 } == true)
        }
    }

    /// A cancelled screenshot leaves a request whose answer is outstanding: it must not be taken for the answer to the
    /// next one.
    @Test func anInterruptedPictureLeavesTheNextOneAlone() async throws {
        try await withDesktop { xvnc, driver in
            let directory = try TemporaryDirectory()
            for round in 0..<10 {
                kill(xvnc.pid, SIGSTOP)
                let picture = Task { try await driver.perform(#"{"action":"screenshot"}"#) }
                // Mostly long enough for the request to lie in the socket of the server that stands still.
                var looks = 0
                try await eventually("some milliseconds are over") {
                    looks += 1
                    return looks > 4
                }
                picture.cancel()
                await #expect(throws: CancellationError.self) { try await picture.value }
                kill(xvnc.pid, SIGCONT)
                try xvnc.run("xsetroot", "-solid", "#00\(10 + round)ff")
                let next = try await driver.perform(#"{"action":"screenshot"}"#)
                let (size, bytes) = try pixels(try #require(next.screenshot), directory.path)
                let color: [UInt8] = [0, try #require(UInt8("\(10 + round)", radix: 16)), 0xff]
                #expect(size == DesktopSize(width: 1280, height: 800) && Array(bytes.prefix(3)) == color)
                #expect(Array(bytes.suffix(3)) == color)
            }
        }
    }

    @Test func scalesToTheDeclaredSize() async throws {
        try await withDesktop { xvnc, driver in
            try self.draw(xvnc, "gradient:red-blue")
            try await driver.perform(#"{"action":"mouse_move","coordinate":[1279,799]}"#)
            for (width, height) in [(640, 400), (1024, 768), (1920, 1200), (1, 1), (1280, 300)] {
                let result = try await driver.perform(
                    #"{"action":"screenshot","scaled_width":\#(width),"scaled_height":\#(height)}"#)
                #expect(result.size == DesktopSize(width: width, height: height))
                let (shown, bytes) = try self.pixels(try #require(result.screenshot), xvnc.directory.path)
                #expect(shown == DesktopSize(width: width, height: height))
                #expect(bytes.count == width * height * 3)
                // Red above, blue below, in proportion.
                for y in [0, height / 2, height - 1] where height > 2 {
                    let red = Double(bytes[3 * (y * width)])
                    let blue = Double(bytes[3 * (y * width) + 2])
                    let part = (Double(y) + 0.5) / Double(height)
                    #expect(abs(red - 255 * (1 - part)) < 3 && abs(blue - 255 * part) < 3, "row \(y) of \(height)")
                }
            }
            let one = try await driver.perform(#"{"action":"screenshot","scaled_width":640}"#)
            #expect(one.size == DesktopSize(width: 640, height: 800))
        }
    }

    @Test func followsTheScreensSize() async throws {
        try await withDesktop { xvnc, driver in
            try xvnc.run("xrandr", "-s", "800x600")
            let result = try await driver.perform(#"{"action":"screenshot"}"#)
            #expect(result.size == DesktopSize(width: 800, height: 600))
            #expect(driver.size == DesktopSize(width: 800, height: 600))
            try xvnc.run("xrandr", "-s", "1024x768")
            try await driver.perform(#"{"action":"mouse_move","coordinate":[5000,5000]}"#)
            #expect(try xvnc.pointer() == DesktopPoint(x: 1023, y: 767))
        }
    }

    // MARK: The scaler

    private func scaled(
        _ bgrx: [UInt8], _ width: Int32, _ height: Int32, to outWidth: Int32, _ outHeight: Int32
    ) throws -> [UInt8] {
        try bgrx.withUnsafeBufferPointer { source in
            let base = try #require(source.baseAddress)
            let scaler = try #require(wd_scaler_new(base, width, width, height, outWidth, outHeight))
            defer { wd_scaler_free(scaler) }
            var rgb = [UInt8](repeating: 0, count: Int(outWidth * outHeight) * 3)
            try rgb.withUnsafeMutableBufferPointer { rows in
                let first = try #require(rows.baseAddress)
                for y in 0..<outHeight { wd_scaler_row(scaler, y, first + Int(y * outWidth) * 3) }
            }
            return rgb
        }
    }

    @Test func scalesPlainColoursToThemselves() throws {
        var random = SeededGenerator("scale")
        for _ in 0..<60 {
            let sides = (0..<4).map { _ in Int32.random(in: 1...70, using: &random) }
            let colour = (0..<3).map { _ in UInt8.random(in: 0...255, using: &random) }
            let pixel: [UInt8] = [colour[2], colour[1], colour[0], 0xff]
            let source = (0..<Int(sides[0] * sides[1])).flatMap { _ in pixel }
            let result = try scaled(source, sides[0], sides[1], to: sides[2], sides[3])
            let expected = (0..<Int(sides[2] * sides[3])).flatMap { _ in colour }
            #expect(result == expected, "\(sides) \(colour)")
        }
    }

    @Test func takesTheMeanOfWhatIsCovered() throws {
        func grey(_ values: [UInt8]) -> [UInt8] { values.flatMap { [$0, $0, $0, 0] } }
        func three(_ values: [UInt8]) -> [UInt8] { values.flatMap { [$0, $0, $0] } }
        #expect(try scaled(grey([0, 100, 50, 200]), 4, 1, to: 2, 1) == three([50, 125]))
        #expect(try scaled(grey([0, 100, 50, 200]), 1, 4, to: 1, 2) == three([50, 125]))
        #expect(try scaled(grey([10, 20, 30, 40]), 2, 2, to: 1, 1) == three([25]))
        // 3 to 2: one and a half pixels each.
        #expect(try scaled(grey([90, 30, 0]), 3, 1, to: 2, 1) == three([70, 10]))
        // Linear upwards, the ends as they are.
        #expect(try scaled(grey([0, 100]), 2, 1, to: 4, 1) == three([0, 25, 75, 100]))
        #expect(try scaled([1, 2, 3, 4], 1, 1, to: 1, 1) == [3, 2, 1])
    }
}
