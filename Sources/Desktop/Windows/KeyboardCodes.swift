/// The keycodes of an X server.
struct KeyboardCodes: Sendable, Equatable {
    /// Those that have a keycode.
    var keysyms: Set<UInt32>
    /// Keycodes without a keysym, of which a VNC server gives one to each keysym that is new to it.
    var spare: Int

    /// Whether a keysym has one, be it under another name of the same character.
    func has(_ keysym: UInt32) -> Bool {
        if keysyms.contains(keysym) { return true }
        guard let scalar = Keysym.scalar(keysym) else { return false }
        return keysyms.contains { Keysym.scalar($0) == scalar }
    }
}
