import CDesktop
import Glibc

/// A part of the screen as it was when it was captured.
struct CapturedArea {
    /// The area's first pixel: 4 bytes each, blue, green, red and one unused.
    var pixels: UnsafePointer<UInt8>
    /// Pixels from one row to the next.
    var rowPixels: Int
    var size: DesktopSize
}

extension RFBLink {
    /// Calls the body with a part of the screen as it is now.
    /// - Parameter area: of the screen with the present size.
    func capture<T>(
        _ area: (DesktopSize) throws -> DesktopRegion, _ body: (CapturedArea) throws -> T
    ) throws -> T {
        // A screen whose size changes meanwhile is requested again.
        for _ in 0..<8 {
            try sync()
            let size = size
            let area = try area(size)
            guard area.width * area.height <= DesktopLimits.screenshotPixels else {
                throw DesktopError(
                    .failed, "The desktop is too large for a screenshot: \(area.width) by \(area.height) pixels.",
                    detail: "Take it in parts, with \"region\".")
            }
            // Of the whole screen, as the server's rectangles are placed in it; only what is written takes memory. mmap
            // gives it (mostly 8 MiB) back to the system at once; the allocator would keep it.
            let bytes = size.width * size.height * 4
            guard
                let memory = mmap(nil, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                memory != MAP_FAILED
            else { throw DesktopError(.failed, "There is no memory for a screenshot.") }
            defer {
                wd_rfb_set_target(rfb, nil)
                munmap(memory, bytes)
            }
            let pixels = memory.assumingMemoryBound(to: UInt8.self)
            wd_rfb_set_target(rfb, pixels)
            guard try fill(area) else { continue }
            return try body(
                CapturedArea(
                    pixels: UnsafePointer(pixels) + (area.y * size.width + area.x) * 4, rowPixels: size.width,
                    size: DesktopSize(width: area.width, height: area.height)))
        }
        throw DesktopError(.failed, "The desktop changes its size all the time.")
    }

    /// - Returns: false when the size changed, so that the picture is unusable.
    private func fill(_ area: DesktopRegion) throws -> Bool {
        let before = state
        let whole = UInt64(area.width) * UInt64(area.height)
        var seen = before.updates
        awaitsUpdate = true
        try request(area, changed: false)
        let deadline = ContinuousClock.now + DesktopLimits.answerBudget
        while true {
            try wait(until: deadline) {
                state.resizes != before.resizes || state.pixels >= whole || state.updates != seen
            }
            if state.resizes != before.resizes { return false }
            if state.pixels >= whole {
                awaitsUpdate = false
                return true
            }
            seen = state.updates
            // The server may answer with the new size alone, which uses up the request; the pixels count as changed.
            if state.pixels == 0 { try request(area, changed: true) }
        }
    }
}
