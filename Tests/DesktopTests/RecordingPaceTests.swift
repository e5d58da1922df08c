import AgentTestSupport
import Foundation
import Testing

@testable import Desktop

/// The filters of the recorder on pictures that ffmpeg makes itself, as fast as it can.
@Suite(.timeLimit(.minutes(15)), .blocking) struct RecordingPaceTests {
    /// Frames before which the picture changes, the first frame's being 0.
    enum Changes: CaseIterable {
        case none, everySecond, everyTwoSeconds, everyThreeSeconds, everyFourSeconds, atEachBeat, afterEachBeat,
            atRandom
        case typing

        var frames: [Int] {
            switch self {
            case .none: []
            case .everySecond: Array(stride(from: 30, to: 600, by: 30))
            case .everyTwoSeconds: Array(stride(from: 60, to: 600, by: 60))
            case .everyThreeSeconds: Array(stride(from: 90, to: 600, by: 90))
            case .everyFourSeconds: Array(stride(from: 120, to: 600, by: 120))
            case .atEachBeat: Array(stride(from: 19, to: 600, by: 20))
            case .afterEachBeat: Array(stride(from: 20, to: 600, by: 20))
            // Both beside a beat and at one, after pauses of all lengths.
            case .atRandom: [1, 2, 18, 19, 21, 110, 219, 221, 350, 359, 452, 459, 461, 579]
            case .typing: Array(stride(from: 7, to: 300, by: 15))
            }
        }
    }

    /// What is promised, counted anew from each change: three seconds at their own pace, the rest 20 times as fast.
    private func promised(_ changes: [Int], frames: Int) -> [Double] {
        var times: [Double] = []
        var (lastChange, shownThen) = (0, 0.0)
        for frame in 0..<frames {
            // A change in the frame of a beat is shown with the next frame.
            let isBeat = frame % 20 == 19
            let isChange = !isBeat && changes.contains { $0 == frame || $0 == frame - 1 && frame % 20 == 0 }
            guard frame == 0 || isBeat || isChange else { continue }
            let still = Double(frame - lastChange) / 30
            let shown = shownThen + min(still, 3) + max(0, still - 3) / 20
            times.append(shown)
            if isChange { (lastChange, shownThen) = (frame, shown) }
        }
        return times
    }

    /// Encodes a picture as a recorder does; when each frame is shown, in seconds.
    private func record(_ source: String) throws -> [Double] {
        let directory = try TemporaryDirectory()
        let file = "\(directory.path)/video.mp4"
        let encoded = try CommandResult.of(
            ["ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", source, "-vf", RecordingPace.filter]
                + RecordingPace.outputOptions
                + ["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", file])
        try #require(encoded.code == 0 && encoded.errors.isEmpty, "\(encoded.errors)")
        return try frameTimes(file)
    }

    /// A black picture in which an area turns white and black again.
    private func source(
        _ changes: [Int], seconds: Double, area: String = "x=50:y=50:w=20:h=20", size: String = "160x120",
        color: String = "white"
    ) -> String {
        let flips = changes.isEmpty ? "0" : "mod(\(changes.map { "gte(n,\($0))" }.joined(separator: "+")),2)"
        return
            "color=black:s=\(size):r=30:d=\(seconds),format=bgr0,drawbox=\(area):color=\(color):t=fill:enable='\(flips)'"
    }

    private func areEqual(_ a: [Double], _ b: [Double]) -> Bool {
        a.count == b.count && zip(a, b).allSatisfy { abs($0 - $1) < 0.001 }
    }

    @Test(arguments: Changes.allCases) func whatMovesKeepsItsPace(_ changes: Changes) throws {
        let frames = try record(source(changes.frames, seconds: 20))
        let promised = promised(changes.frames, frames: 600)
        #expect(areEqual(frames, promised), "\(changes): \(frames), not \(promised)")
    }

    @Test func twoMinutesOfAStillPictureAreNineSeconds() throws {
        let frames = try record(source([], seconds: 120))
        #expect(areEqual(frames, promised([], frames: 3600)), "\(frames)")
        let last = try #require(frames.last)
        #expect(last > 8.8 && last < 8.86, "\(last)")
    }

    @Test func whatAlwaysMovesIsShownAsItIs() throws {
        let frames = try record("testsrc2=s=160x120:r=30:d=5")
        #expect(areEqual(frames, (0..<150).map { Double($0) / 30 }), "\(frames)")
    }

    /// A busy machine grabs fewer frames, and not at even intervals.
    @Test func framesThatWereNotGrabbedTakeNoTimeAway() throws {
        let frames = try record("testsrc2=s=160x120:r=30:d=20,select='not(mod(n,7))+not(mod(n,11))'")
        let last = try #require(frames.last)
        #expect(abs(last - 599.0 / 30) < 0.3, "\(last)")
        let gaps = zip(frames.dropFirst(), frames).map { $0 - $1 }
        #expect(gaps.allSatisfy { $0 < 0.3 }, "\(gaps)")
    }

    /// One pixel, hardly brighter than what was there, at each edge of desktops of all remainders by 4.
    @Test(
        arguments: ["160x120", "161x121", "162x122", "163x123"], ["x=0:y=60", "x=iw-1:y=60", "x=80:y=0", "x=80:y=ih-1"])
    func anyDifferenceCounts(size: String, place: String) throws {
        let frames = try record(
            source([75], seconds: 5, area: "\(place):w=1:h=1", size: size, color: "0x080808"))
        #expect(areEqual(frames, promised([75], frames: 150)), "\(frames)")
    }

    @Test(arguments: [0.03, 0.3, 0.7]) func aShortOneHasAPicture(seconds: Double) throws {
        let frames = try record(source([], seconds: seconds))
        #expect(frames.first == 0 && frames.count <= 2, "\(frames)")
    }
}
