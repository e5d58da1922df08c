import CDesktop
import Glibc

enum PNG {
    /// - Parameter pixels: 4 bytes each: blue, green, red, unused.
    /// - Throws: ``DesktopError`` `.failed`.
    static func encode(
        _ pixels: UnsafePointer<UInt8>, _ size: DesktopSize, scaledTo wanted: DesktopSize
    ) throws(DesktopError) -> [UInt8] {
        var out = wd_bytes()
        var why = [CChar](repeating: 0, count: 200)
        let done = wd_png_encode(
            pixels, CInt(clamping: size.width), CInt(clamping: size.height), CInt(clamping: wanted.width),
            CInt(clamping: wanted.height), &out, &why, why.count)
        guard done, let bytes = out.bytes else {
            throw DesktopError(.failed, "The screenshot could not be encoded.", detail: why.text)
        }
        defer { free(bytes) }
        return Array(UnsafeBufferPointer(start: bytes, count: out.count))
    }
}
