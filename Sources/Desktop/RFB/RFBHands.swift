/// What is held on the desktop, and where the pointer is. On the connection's thread.
///
/// Whatever an action presses goes through here, so that it can be let go of when the action ends
/// half-way: ``begin()`` and ``undo()`` frame an action.
final class RFBHands {
    private let link: RFBLink
    /// Keys in the order in which they were pressed.
    private var keys: [UInt32] = []
    private(set) var buttons: UInt8 = 0
    /// nil before anybody knows.
    var position: DesktopPoint?
    private var keysBefore: [UInt32] = []
    private var buttonsBefore: UInt8 = 0
    private var events: [UInt8] = []

    init(_ link: RFBLink) { self.link = link }

    var shiftIsHeld: Bool { keys.contains(where: Keysym.isShift) }
    func holds(_ keysym: UInt32) -> Bool { keys.contains(keysym) }
    var holdsAnything: Bool { !keys.isEmpty || buttons != 0 }

    // MARK: Events, which go out together with send()

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

    /// At the present position, which has to be known.
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

    // MARK: Letting go

    func begin() {
        events.removeAll(keepingCapacity: true)
        (keysBefore, buttonsBefore) = (keys, buttons)
    }

    /// Lets go of what was pressed since ``begin()``.
    func undo() throws {
        events.removeAll(keepingCapacity: true)
        try letGo(keys.filter { !keysBefore.contains($0) }, buttons & ~buttonsBefore)
    }

    func releaseAll() throws { try letGo(keys, buttons) }

    private func letGo(_ keys: [UInt32], _ buttons: UInt8) throws {
        for keysym in keys.reversed() { release(keysym) }
        if buttons != 0 { release(button: buttons) }
        guard !events.isEmpty else { return }
        try send()
        try link.fence(minding: .nothing, within: DesktopLimits.releaseBudget)
    }

    /// Says again which buttons are held: a viewer that is gone may have left some.
    func restateButtons() throws {
        guard let position else { return }
        move(to: position)
        try send()
        try link.fence()
    }
}
