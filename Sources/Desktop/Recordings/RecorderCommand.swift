import AgentCore

/// A program that records a display, and the sign that it records.
struct RecorderCommand: Sendable, Equatable {
    enum ReadySign: Sendable, Equatable {
        /// ``ProgressScanner`` on stdout.
        case progress
        /// The video's file has bytes in it.
        case fileGrows
    }

    /// For the log.
    var name: String
    var arguments: [String]
    var readySign: ReadySign

    /// Bytes beyond the limit on what is sent after which the recorder ends by itself.
    private static let overrun = 64 << 10

    /// ffmpeg in one pass: the first frame as JPEG, and all frames that differ as H.264.
    ///
    /// - `zerolatency`: the encoder outputs each frame immediately, so that the first is on disk before the start is
    ///   answered with 200.
    /// - `faststart`: the index is moved to the front at the end, so that any player can seek; a video without an
    ///   index was not finished.
    static func ffmpeg(
        _ program: String, display: String, files: RecordingFiles, videoBytes: Int
    ) -> RecorderCommand {
        let filter = [
            "[0:v]split=2[all][first]",
            "[all]\(RecordingPace.filter)[video]",
            "[first]select=eq(n\\,0)[thumbnail]",
        ].joined(separator: ";")
        let arguments =
            [program, "-nostdin", "-hide_banner", "-loglevel", "error", "-y"]
            + ["-progress", "pipe:1", "-stats_period", "0.1"]
            + ["-f", "x11grab", "-framerate", "\(RecordingPace.framesPerSecond)", "-draw_mouse", "1", "-i", display]
            + ["-filter_complex", filter]
            + ["-map", "[video]"] + RecordingPace.outputOptions
            + ["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency"]
            + ["-pix_fmt", "yuv420p", "-flush_packets", "1", "-movflags", "+faststart"]
            + ["-fs", "\(videoBytes + overrun)", "-f", "mp4", "file:\(files.video)"]
            + ["-map", "[thumbnail]", "-frames:v", "1", "-q:v", "3", "-f", "image2", "-update", "1"]
            + [files.thumbnail]
        return RecorderCommand(name: "ffmpeg", arguments: arguments, readySign: .progress)
    }

    /// The desktop program's own recorder (docs/contracts/desktop.md#recording). It makes no thumbnail.
    static func portableDesktop(_ command: [String], files: RecordingFiles) -> RecorderCommand {
        let flags = [
            "--idle-speedup", "\(RecordingPace.speedup)", "--idle-min-duration", "\(RecordingPace.keptSeconds)",
            "--idle-noise-tolerance", "-38dB",
        ]
        return RecorderCommand(
            name: "portabledesktop", arguments: command + flags + [files.video], readySign: .fileGrows)
    }
}
