/// Sends key and pointer events, and knows which keys and buttons are held and where the pointer is. On the
/// connection's thread.
///
/// An action that fails half-way releases what it pressed: it calls ``begin()`` first and ``undo()`` on failure.
final class RFBInput {
    private let link: RFBLink
    /// Keys in the order in which they were pressed.
    private var keys: [UInt32] = []
    private(set) var buttons: UInt8 = 0
    /// nil while it is unknown.
    var position: DesktopPoint?
    private var keysBefore: [UInt32] = []
    private var buttonsBefore: UInt8 = 0
    private var events: [UInt8] = []

    init(_ link: RFBLink) { self.link = link }

    var shiftIsHeld: Bool { keys.contains(where: Keysym.isShift) }
    func holds(_ keysym: UInt32) -> Bool { keys.contains(keysym) }

    // MARK: Events, buffered until send()

    func press(_ keysym: UInt32) {
        RFBMessage.key(keysym, down: true, to: &events)
        if !keys.contains(keysym) { keys.append(keysym) }
    }

    func release(_ keysym: UInt32) {
        RFBMessage.key(keysym, down: false, to: &events)
        keys.removeAll { $0 == keysym }
    }

    func stroke(_ stroke: KeyStroke) {
        press(stroke.keysym)
        release(stroke.keysym)
    }

    func move(to point: DesktopPoint) {
        position = point
        RFBMessage.pointer(point, buttons: buttons, to: &events)
    }

    /// At the present position; without a known one no event is sent.
    func press(button: UInt8) {
        buttons |= button
        if let position { move(to: position) }
    }

    func release(button: UInt8) {
        buttons &= ~button
        if let position { move(to: position) }
    }

    func send() throws {
        defer { events.removeAll(keepingCapacity: true) }
        if !events.isEmpty { try link.send(events) }
    }

    // MARK: Releasing

    func begin() {
        events.removeAll(keepingCapacity: true)
        (keysBefore, buttonsBefore) = (keys, buttons)
    }

    /// Releases what was pressed since ``begin()``.
    func undo() throws {
        events.removeAll(keepingCapacity: true)
        try release(keys.filter { !keysBefore.contains($0) }, buttons: buttons & ~buttonsBefore)
    }

    func releaseAll() throws { try release(keys, buttons: buttons) }

    private func release(_ keys: [UInt32], buttons: UInt8) throws {
        for keysym in keys.reversed() { release(keysym) }
        if buttons != 0 { release(button: buttons) }
        guard !events.isEmpty else { return }
        try send()
        try link.fence(stoppingOn: .nothing, within: DesktopLimits.releaseBudget)
    }

    /// Sends the held buttons again: a viewer that disconnected may have left others pressed.
    func resendButtons() throws {
        guard let position else { return }
        move(to: position)
        try send()
        try link.fence()
    }
}
