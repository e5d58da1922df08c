/// The one form of line ends in a clipboard's text, whichever way it goes and comes: LF, as the VNC server makes them
/// of those that it gets.
enum ClipboardText {
    static func lines(_ text: String) -> String {
        guard text.utf8.contains(UInt8(ascii: "\r")) else { return text }
        var lines: [UInt8] = []
        lines.reserveCapacity(text.utf8.count)
        var previous: UInt8 = 0
        for byte in text.utf8 {
            // CR LF is one line end.
            if byte != UInt8(ascii: "\n") || previous != UInt8(ascii: "\r") {
                lines.append(byte == UInt8(ascii: "\r") ? UInt8(ascii: "\n") : byte)
            }
            previous = byte
        }
        return String(decoding: lines, as: UTF8.self)
    }
}

/// Reading and setting the clipboard, and pasting what the keyboard lacks: through the extended clipboard of the
/// VNC server, else through xclip.
extension RFBActions {
    private var usesMessages: Bool { usesClipboardMessages && link.hasClipboard }

    /// The text of the clipboard or of the selection, whichever a program took last.
    func clipboardText() throws -> String {
        try awaitOffer()
        // The server does not announce to us what a viewer puts on the clipboard.
        guard usesMessages, !link.inbox.viewers.sentInput else { return try helpersText() }
        let state = link.state
        if let own = ownClipboard, own.offers == state.clipboard_offers { return own.text }
        // Of what was there before us the server announces nothing, either.
        guard state.clipboard_offers > 0 else { return isFresh ? "" : try helpersText() }
        guard state.clipboard_offered else { return "" }
        try DesktopLibrary.zlib.load()
        try link.send(RFBMessage.clipboardRequest)
        let end = RFBLink.Instant.now + DesktopLimits.clipboardAnswer
        try link.wait(until: end) { link.state.clipboard_texts != state.clipboard_texts || .now >= end }
        // A text that a program sends in pieces (INCR) does not get through TigerVNC 1.12.
        guard link.state.clipboard_texts != state.clipboard_texts else { return try helpersText() }
        guard let text = link.takeClipboard() else { throw DesktopError.clipboardTooLarge }
        return ClipboardText.lines(text)
    }

    /// A program takes the clipboard only some time after the key or the click that it does so for.
    private func awaitOffer() throws {
        try link.fence()
        guard let lastInput else { return }
        self.lastInput = nil
        let end = lastInput.at + DesktopLimits.clipboardDelay
        // The server announces first that the old owner is gone, and a selection before what is copied of it.
        try link.wait(until: end) {
            link.state.clipboard_offers != lastInput.offers && link.state.clipboard_offered || .now >= end
        }
        try link.pause(until: min(end, .now + DesktopLimits.clipboardSettles))
    }

    private func helpersText() throws -> String {
        guard let helpers else { throw DesktopHelpers.missing("The clipboard cannot be read") }
        return ClipboardText.lines(try link.run(executor) { try await helpers.selectedText() })
    }

    func setClipboard(_ text: String) throws {
        guard usesMessages else {
            ownClipboard = nil
            return try setSelections(text)
        }
        link.clipboard = text
        try link.send(RFBMessage.clipboardNotify)
        try link.fence()
        ownClipboard = (text, link.state.clipboard_offers)
    }

    private func setSelections(_ text: String) throws {
        guard let helpers else { throw DesktopHelpers.missing("The text cannot be put on the clipboard") }
        try link.run(executor) { try await helpers.setSelections(text) }
    }

    func paste(_ text: String) throws {
        // So that what was typed before arrives before what is pasted.
        try link.fence()
        if usesMessages {
            try offer(text)
        } else {
            try setSelections(text)
            pressPaste()
            try input.send()
            try link.fence()
            // There is no signal for the program having fetched it.
            try link.pause(DesktopLimits.blindPaste)
        }
    }

    private func offer(_ text: String) throws {
        let own = ownClipboard.flatMap { $0.offers == link.state.clipboard_offers ? $0.text : nil }
        link.clipboard = text
        let before = link.state.clipboard_requests
        try link.send(RFBMessage.clipboardNotify)
        try link.fence()
        // A clipboard manager fetches it at once, and the server then caches it for the program.
        let isCached = link.state.clipboard_requests != before
        pressPaste()
        try input.send()
        try link.fence()
        if isCached {
            try link.pause(DesktopLimits.blindPaste)
        } else {
            try link.wait(until: .now + DesktopLimits.pasteBudget, late: Self.notPasted) {
                link.state.clipboard_requests != before
            }
        }
        // So that the program gets the text before any key that follows.
        try link.fence()
        // What the client had put on the clipboard is there again.
        if let own { try setClipboard(own) } else { ownClipboard = (text, link.state.clipboard_offers) }
    }

    private func pressPaste() {
        input.press(Keysym.shift)
        input.press(Keysym.insert)
        input.release(Keysym.insert)
        input.release(Keysym.shift)
    }

    private static func notPasted() -> DesktopError {
        DesktopError(
            .failed, "The text has characters that the keyboard lacks, and the program did not paste them.",
            detail: "They are put on the clipboard and pasted with shift+Insert.")
    }
}
