/// The filters that give a recording its pace, in one pass: what moves keeps it, and of a stretch without any change
/// all after the first seconds passes ``speedup`` times as fast (docs/contracts/desktop.md#recording).
///
/// `mpdecimate` drops the frames that are equal to the last one that it let through, so a still screen would leave
/// nothing until the next change, and the end of a recording would be missing. Its own way to let one through now and
/// then (`max`) cannot be told from a change at that very moment, such as one every two seconds. So it is given
/// something to see: a beat. Each 20th frame repeats the one before it, so it is certainly no change of the screen,
/// and differs in a mark beside the picture.
enum RecordingPace {
    static let framesPerSecond = 30
    /// Seconds without a change that keep their pace.
    static let keptSeconds = 3
    static let speedup = 20
    /// Frames from one beat to the next: the end of a recording is missed by less.
    static let beat = 20
    /// A frame's time is a whole number of ticks, sped up or not.
    static let ticksPerSecond = framesPerSecond * speedup

    /// From what is grabbed to what is encoded, as ffmpeg's filters.
    static let filter = [
        // 4:2:0 needs an even width and height. The margin is there because mpdecimate looks neither at the first 8
        // columns nor at up to 3 columns and rows at the end, in planes of half the size, too. It has room for the mark.
        // In the format of 4:2:0, pad would leave out the last column of an odd width.
        "pad=ceil(iw/2)*2+32:ceil(ih/2)*2+16:16:0",
        // Before the frames are compared: what counts is what can be seen in the video, and it is cheaper.
        "format=yuv420p",
        // A busy machine grabs fewer frames; the gaps are filled.
        "fps=\(framesPerSecond)", "select='mod(n+1,\(beat))'", "fps=\(framesPerSecond)",
        "drawbox=x=iw-8:y=0:w=8:h=8:color=white:t=fill:enable='lt(mod(n+1,\(2 * beat)),\(beat))'",
        // Any difference counts.
        "mpdecimate=hi=0",
        "crop=iw-32:ih-16:16:0",
        "settb=1/\(ticksPerSecond)", "setpts='if(N,\(next),st(0,\(kept));0)'",
    ].joined(separator: ",")

    /// Options of the output: each frame is encoded once, at its own time.
    ///
    /// `-vsync` is an old name of `-fps_mode`, which ffmpeg before 5.1 does not know.
    static let outputOptions = ["-vsync", "vfr", "-enc_time_base", "1:\(ticksPerSecond)"]

    private static let kept = keptSeconds * ticksPerSecond
    private static let frame = ticksPerSecond / framesPerSecond

    /// When a frame is shown. 0: how long the screen may stay still yet at its own pace; 1: the time since the last
    /// frame; 2: how much of that passes at its own pace.
    private static let next = [
        "st(1,PTS-PREV_INPTS)", "st(2,min(ld(0),ld(1)))",
        "st(0,if(eq(mod(PTS-STARTPTS,\(beat * frame)),\((beat - 1) * frame)),ld(0)-ld(2),\(kept)))",
        "PREV_OUTPTS+ld(2)+(ld(1)-ld(2))/\(speedup)",
    ].joined(separator: ";")
}
