/// A point in the caller's coordinate space.
public struct DesktopPoint: Sendable, Equatable {
    public var x: Int
    public var y: Int

    public init(x: Int, y: Int) {
        self.x = x
        self.y = y
    }
}

/// One validated action (spec: virtual desktop, actions).
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
        case scroll
        case cursorPosition = "cursor_position"
        case screenshot
        case wait
        case open
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
