import AgentCore
import CDesktop
import NIOCore

extension ActionResult {
    /// The JSON of the answer, keys in alphabetical order. The picture is base64-encoded straight into the
    /// answer's bytes, so that it is copied once.
    public func json() -> ByteBuffer {
        let picture = screenshot ?? []
        let base64 = (picture.count + 2) / 3 * 4
        var buffer = ByteBufferAllocator().buffer(capacity: base64 + 160 + (output?.utf8.count ?? 0))
        var separator = "{"
        if let output {
            buffer.writeString(#"{"output":"#)
            JSONString.write(output, into: &buffer)
            separator = ","
        }
        if screenshot != nil {
            buffer.writeString("\(separator)\"screenshot_data\":\"")
            buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: base64) { area in
                picture.withUnsafeBytes { wd_base64($0.baseAddress, $0.count, area.baseAddress) }
                return base64
            }
            buffer.writeString("\"")
            separator = ","
        }
        if let size {
            buffer.writeString("\(separator)\"screenshot_height\":\(size.height),\"screenshot_width\":\(size.width)")
            separator = ","
        }
        buffer.writeString(separator == "{" ? "{}" : "}")
        return buffer
    }
}
