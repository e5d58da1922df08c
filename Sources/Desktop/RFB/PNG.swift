import CDesktop
import Glibc

enum PNG {
    /// - Throws: ``DesktopError`` `.failed`.
    static func encode(_ area: CapturedArea, scaledTo wanted: DesktopSize) throws(DesktopError) -> [UInt8] {
        try DesktopLibrary.png.load()
        var out = wd_bytes()
        var why = [CChar](repeating: 0, count: 200)
        let done = wd_png_encode(
            area.pixels, CInt(clamping: area.rowPixels), CInt(clamping: area.size.width),
            CInt(clamping: area.size.height), CInt(clamping: wanted.width), CInt(clamping: wanted.height), &out, &why,
            why.count)
        guard done, let bytes = out.bytes else {
            throw DesktopError(.failed, "The screenshot could not be encoded.", detail: why.text)
        }
        defer { free(bytes) }
        return Array(UnsafeBufferPointer(start: bytes, count: out.count))
    }

    /// A part of a picture, scaled.
    /// - Parameter area: within the picture.
    /// - Throws: ``DesktopError`` `.failed`, also when the picture is smaller than the area.
    static func crop(
        _ png: [UInt8], to area: DesktopRegion, scaledTo wanted: DesktopSize
    ) throws(DesktopError) -> [UInt8] {
        try DesktopLibrary.png.load()
        var out = wd_bytes()
        var (width, height): (CInt, CInt) = (0, 0)
        var why = [CChar](repeating: 0, count: 200)
        guard wd_png_decode(png, png.count, &out, &width, &height, &why, why.count), let bytes = out.bytes else {
            throw DesktopError(.failed, "The screenshot could not be decoded.", detail: why.text)
        }
        defer { free(bytes) }
        guard area.x + area.width <= Int(width), area.y + area.height <= Int(height) else {
            throw DesktopError(.failed, "The desktop changes its size.")
        }
        let part = CapturedArea(
            pixels: UnsafePointer(bytes) + (area.y * Int(width) + area.x) * 4, rowPixels: Int(width),
            size: DesktopSize(width: area.width, height: area.height))
        return try encode(part, scaledTo: wanted)
    }
}
