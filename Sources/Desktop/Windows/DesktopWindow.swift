/// A top-level window as its program and the window manager describe it (EWMH, ICCCM). Programs say what they
/// like: a title may hold any characters, and a pid may be another's.
struct DesktopWindow: Sendable, Equatable {
    /// The X server's number of it; never 0. After the window's end another one may get it.
    var id: UInt32
    /// At most 4 KiB as the program sent it; what is no text is U+FFFD.
    var title: String
    /// The second string of WM_CLASS, such as `XTerm`; empty where there is none.
    var className: String
    /// As the program says; nil where it says nothing, or what can be no pid.
    var pid: Int32?
    /// The upper left corner of what is inside the frame, in pixels of the framebuffer; may be outside of it.
    var x, y: Int
    /// In pixels, without the frame.
    var width, height: Int
    /// Whether it is the window manager's active window, which gets what is typed.
    var isFocused: Bool
}
