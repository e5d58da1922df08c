/// One validated action (docs/contracts/desktop.md#actions): what it needs is in its case, checked.
package struct DesktopAction: Sendable, Equatable {
    /// Who does it.
    package enum Work: Sendable, Equatable {
        case driver(DriverAction)
        case screen(ScreenAction)
        case wait(milliseconds: Int)
        /// Opens a file or an address, or runs a command line.
        case open(String)
    }

    /// As clients name it.
    package var name: String
    package var work: Work
    package var space = CoordinateSpace()
    /// The picture that follows.
    package var picture: Picture?

    /// Whether it may take as long as the client says, so that it has to end when the client goes away.
    var mayTakeLong: Bool {
        switch work {
        case .wait, .driver(.hold), .screen(.untilStill), .screen(.window): true
        case .driver, .screen, .open: false
        }
    }
}

/// What a ``DesktopDriver`` does with the pointer, the keyboard, the picture and the clipboard. Points and regions are in
/// the caller's coordinates.
package enum DriverAction: Sendable, Equatable {
    package enum Button: String, Sendable, CaseIterable { case left, middle, right }
    package enum Direction: String, Sendable { case up, down, left, right }

    case keys([KeyCombination])
    case press(KeyCombination)
    case release(KeyCombination)
    case hold(KeyCombination, milliseconds: Int)
    case type(String)
    case move(DesktopPoint)
    /// Modifiers are X keysyms.
    case click(Button, times: Int, at: DesktopPoint, modifiers: [UInt32])
    case button(Button, isDown: Bool)
    case drag(from: DesktopPoint, to: DesktopPoint, modifiers: [UInt32])
    /// The steps are 0...``DesktopLimits/scrollAmount``.
    case scroll(Direction, steps: Int, at: DesktopPoint, modifiers: [UInt32])
    case position
    case picture(Picture)
    case readClipboard
    case setClipboard(String)
    case resize(DesktopSize)

    /// Whether it can be done twice without a further effect.
    var isRepeatable: Bool {
        switch self {
        case .picture, .position, .move, .readClipboard: true
        default: false
        }
    }

    /// Whether it sends pointer events.
    var usesPointer: Bool {
        switch self {
        case .move, .click, .button, .drag, .scroll: true
        default: false
        }
    }
}

/// What is asked of the X server, or of the screen as it changes.
package enum ScreenAction: Sendable, Equatable {
    /// Waits until the region, nil for the whole screen, has not changed for some time.
    case untilStill(DesktopRegion?, milliseconds: Int, timeoutMilliseconds: Int)
    case windows
    case focus(UInt32)
    case close(UInt32)
    /// Waits for a window with this text in its title.
    case window(titled: String, timeoutMilliseconds: Int)
}

/// What a picture shows.
package struct Picture: Sendable, Equatable {
    /// nil is the whole screen.
    package var region: DesktopRegion?
    /// In ``DesktopLimits/scales``.
    package var scale = 1.0
}

/// The caller's coordinate space, each side 1...``DesktopLimits/declaredSide``; nil is the desktop's own.
package struct CoordinateSpace: Sendable, Equatable {
    package var width: Int?
    package var height: Int?

    var isNative: Bool { width == nil && height == nil }

    /// Its size on a desktop of this size.
    func size(on native: DesktopSize) -> DesktopSize {
        DesktopSize(width: width ?? native.width, height: height ?? native.height)
    }
}

/// A point in the caller's coordinate space.
package struct DesktopPoint: Sendable, Equatable {
    package var x: Int
    package var y: Int
}

/// A part of the screen in the caller's coordinate space; width and height at least 1.
package struct DesktopRegion: Sendable, Equatable {
    package var x: Int
    package var y: Int
    package var width: Int
    package var height: Int
}
