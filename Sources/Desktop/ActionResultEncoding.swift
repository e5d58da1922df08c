import AgentCore
import CDesktop
import NIOCore

extension ActionResult {
    /// The JSON of the answer, keys in alphabetical order. The picture is base64-encoded straight into the
    /// answer's bytes, so that it is copied once.
    package func json() -> ByteBuffer {
        let picture = screenshot ?? []
        let base64 = (picture.count + 2) / 3 * 4
        var buffer = ByteBufferAllocator().buffer(capacity: base64 + 160 + (output?.utf8.count ?? 0))
        var separator = "{"
        func key(_ name: String) {
            buffer.writeString("\(separator)\"\(name)\":")
            separator = ","
        }
        if desktopRestarted {
            key("desktop_restarted")
            buffer.writeString("true")
        }
        if let met {
            key("met")
            buffer.writeString("\(met)")
        }
        if let output {
            key("output")
            JSONString.write(output, into: &buffer)
        }
        if screenshot != nil {
            key("screenshot_data")
            buffer.writeString("\"")
            buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: base64) { area in
                picture.withUnsafeBytes { wd_base64($0.baseAddress, $0.count, area.baseAddress) }
                return base64
            }
            buffer.writeString("\"")
        }
        if let size {
            key("screenshot_height")
            buffer.writeString("\(size.height)")
            key("screenshot_width")
            buffer.writeString("\(size.width)")
        }
        if let windows {
            key("windows")
            buffer.writeString("[")
            for (index, window) in windows.enumerated() {
                if index > 0 { buffer.writeString(",") }
                window.write(to: &buffer)
            }
            buffer.writeString("]")
        }
        buffer.writeString(separator == "{" ? "{}" : "}")
        return buffer
    }
}

extension DesktopWindow {
    fileprivate func write(to buffer: inout ByteBuffer) {
        buffer.writeString(#"{"class":"#)
        JSONString.write(className, into: &buffer)
        buffer.writeString(
            #","focused":\#(isFocused),"h":\#(height),"id":\#(id),"pid":\#(pid.map { "\($0)" } ?? "null")"#)
        buffer.writeString(#","title":"#)
        JSONString.write(title, into: &buffer)
        buffer.writeString(#","w":\#(width),"x":\#(x),"y":\#(y)}"#)
    }
}
