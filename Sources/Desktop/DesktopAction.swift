/// A point in the caller's coordinate space.
public struct DesktopPoint: Sendable, Equatable {
    public var x: Int
    public var y: Int

    public init(x: Int, y: Int) {
        self.x = x
        self.y = y
    }
}

/// A part of the screen in the caller's coordinate space; width and height at least 1.
public struct DesktopRegion: Sendable, Equatable {
    public var x: Int
    public var y: Int
    public var width: Int
    public var height: Int

    public init(x: Int, y: Int, width: Int, height: Int) {
        self.x = x
        self.y = y
        self.width = width
        self.height = height
    }
}

/// One validated action (docs/contracts/desktop.md#actions).
public struct DesktopAction: Sendable, Equatable {
    public enum Kind: String, Sendable, CaseIterable {
        case key
        case keyDown = "key_down"
        case keyUp = "key_up"
        case type
        case holdKey = "hold_key"
        case mouseMove = "mouse_move"
        case leftClick = "left_click"
        case rightClick = "right_click"
        case middleClick = "middle_click"
        case doubleClick = "double_click"
        case tripleClick = "triple_click"
        case leftClickDrag = "left_click_drag"
        case leftMouseDown = "left_mouse_down"
        case leftMouseUp = "left_mouse_up"
        case middleMouseDown = "middle_mouse_down"
        case middleMouseUp = "middle_mouse_up"
        case rightMouseDown = "right_mouse_down"
        case rightMouseUp = "right_mouse_up"
        case scroll
        case cursorPosition = "cursor_position"
        case screenshot
        /// A screenshot of a region.
        case zoom
        case wait
        case waitStable = "wait_stable"
        case open
        case clipboardGet = "clipboard_get"
        case clipboardSet = "clipboard_set"
        case windows
        case focusWindow = "focus_window"
        case closeWindow = "close_window"
        case waitForWindow = "wait_for_window"
        case resize
    }

    public enum Direction: String, Sendable, CaseIterable {
        case up, down, left, right
    }

    public var kind: Kind
    public var coordinate: DesktopPoint?
    public var startCoordinate: DesktopPoint?
    public var text: String?
    /// 0...``DesktopLimits/durationMilliseconds``.
    public var durationMilliseconds: Int
    /// 0...``DesktopLimits/scrollAmount``.
    public var scrollAmount: Int
    public var scrollDirection: Direction
    /// The caller's coordinate space, each 1...``DesktopLimits/declaredSide``; nil is the desktop's own.
    public var declaredWidth: Int?
    public var declaredHeight: Int?
    /// X keysyms that are held during a click, a drag or a turn of the wheel.
    public var modifiers: [UInt32] = []
    /// The part of the screen of a picture, or the one that has to be still; nil is all of it.
    public var region: DesktopRegion?
    /// Of a picture, in ``DesktopLimits/scales``.
    public var scale = 1.0
    /// Whether a picture is taken afterwards.
    public var takesScreenshot = false
    /// A part of the window's title.
    public var title: String?
    public var windowID: UInt32?
    /// How long the screen has to be still: 0...``DesktopLimits/durationMilliseconds``.
    public var stillMilliseconds = 500
    /// How long an event is waited for: 0...``DesktopLimits/durationMilliseconds``.
    public var timeoutMilliseconds = 10_000
    /// The desktop's new size.
    public var newSize: DesktopSize?

    /// The caller's coordinate space where both sides of it are declared.
    public var declared: DesktopSize? {
        get {
            guard let declaredWidth, let declaredHeight else { return nil }
            return DesktopSize(width: declaredWidth, height: declaredHeight)
        }
        set { (declaredWidth, declaredHeight) = (newValue?.width, newValue?.height) }
    }

    public init(
        _ kind: Kind, coordinate: DesktopPoint? = nil, startCoordinate: DesktopPoint? = nil, text: String? = nil,
        durationMilliseconds: Int = 1_000, scrollAmount: Int = 3, scrollDirection: Direction = .down,
        declared: DesktopSize? = nil
    ) {
        self.kind = kind
        self.coordinate = coordinate
        self.startCoordinate = startCoordinate
        self.text = text
        self.durationMilliseconds = durationMilliseconds
        self.scrollAmount = scrollAmount
        self.scrollDirection = scrollDirection
        (declaredWidth, declaredHeight) = (declared?.width, declared?.height)
    }
}

extension DesktopAction.Kind {
    /// Whether it can be repeated without a further effect.
    var changesNothing: Bool {
        switch self {
        case .screenshot, .zoom, .cursorPosition, .mouseMove, .clipboardGet: true
        default: false
        }
    }

    /// Whether modifiers can be held during it.
    var takesModifiers: Bool {
        switch self {
        case .leftClick, .rightClick, .middleClick, .doubleClick, .tripleClick, .leftClickDrag, .scroll: true
        default: false
        }
    }

    /// Whether it sends pointer events.
    var usesPointer: Bool {
        switch self {
        case .mouseMove, .leftMouseDown, .leftMouseUp, .middleMouseDown, .middleMouseUp, .rightMouseDown,
            .rightMouseUp:
            true
        default: takesModifiers
        }
    }

    /// Whether it may take as long as the client says, so that it has to end when the client goes away.
    var mayTakeLong: Bool {
        switch self {
        case .holdKey, .wait, .waitStable, .waitForWindow: true
        default: false
        }
    }

    /// Whether a ``DesktopDriver`` performs it.
    var isOfDriver: Bool {
        switch self {
        case .wait, .open, .waitStable, .windows, .focusWindow, .closeWindow, .waitForWindow: false
        default: true
        }
    }
}
