import AgentHTTP
import FoundationEssentials
import NIOCore

extension DesktopAction {
    /// The names of the contract.
    enum Name: String, CaseIterable {
        case key, type, scroll, screenshot, zoom, wait, open, windows, resize
        case keyDown = "key_down"
        case keyUp = "key_up"
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
        case cursorPosition = "cursor_position"
        case waitStable = "wait_stable"
        case clipboardGet = "clipboard_get"
        case clipboardSet = "clipboard_set"
        case focusWindow = "focus_window"
        case closeWindow = "close_window"
        case waitForWindow = "wait_for_window"

        /// Whether modifiers can be held during it.
        var allowsModifiers: Bool {
            switch self {
            case .leftClick, .rightClick, .middleClick, .doubleClick, .tripleClick, .leftClickDrag, .scroll: true
            default: false
            }
        }
    }

    /// Decodes and checks the body of POST /action, without a desktop, so that an invalid request starts none.
    /// - Throws: ``DesktopError`` `.invalid` that names the field and what is wrong with it;
    ///   `.failed` when the library that knows the names of keys is not installed.
    static func decode(_ body: ByteBuffer) throws(DesktopError) -> DesktopAction {
        let fields = try Fields.decode(body)
        guard let text = fields.action else { throw .invalid(#"Missing "action"."#) }
        guard let name = Name(rawValue: text) else { throw .invalid("Unknown action: \(text)") }
        let values = try ActionValues(fields, of: name)
        return DesktopAction(
            name: text, work: try values.work(), space: values.space,
            picture: fields.screenshot == true ? values.picture : nil)
    }
}

/// The values of a request's fields, each of them checked, whatever the action.
private struct ActionValues {
    private let name: DesktopAction.Name
    private let text: String?
    private let coordinate: DesktopPoint?
    private let start: DesktopPoint?
    private let direction: DriverAction.Direction
    private let steps: Int
    private let duration: Int?
    let space: CoordinateSpace
    let picture: Picture
    private let title: String?
    private let still: Int
    private let timeout: Int
    private let modifiers: [UInt32]
    private let window: UInt32?

    init(_ fields: Fields, of name: DesktopAction.Name) throws(DesktopError) {
        self.name = name
        text = fields.text
        title = fields.title
        coordinate = try Self.point("coordinate", fields.coordinate)
        start = try Self.point("start_coordinate", fields.startCoordinate)
        if let name = fields.scrollDirection {
            guard let named = DriverAction.Direction(rawValue: name) else {
                throw .invalid("Invalid scroll direction: \(name)")
            }
            direction = named
        } else {
            direction = .down
        }
        steps = try Self.number("scroll_amount", fields.scrollAmount, 0...DesktopLimits.scrollAmount) ?? 3
        duration = try Self.milliseconds("duration", fields.duration)
        space = CoordinateSpace(
            width: try Self.side("scaled_width", fields.scaledWidth),
            height: try Self.side("scaled_height", fields.scaledHeight))
        picture = Picture(region: try Self.region(fields.region), scale: try Self.scale(fields.scale))
        still = try Self.milliseconds("ms", fields.milliseconds) ?? 500
        timeout = try Self.milliseconds("timeout_ms", fields.timeout) ?? 10_000
        modifiers = try Self.modifiers(fields.modifiers ?? [], of: name)
        window = try Self.number("id", fields.id, 0...Int(UInt32.max)).map { UInt32($0) }
    }

    /// - Throws: when a field that the action needs is missing, or its text is not usable.
    func work() throws(DesktopError) -> DesktopAction.Work {
        switch name {
        case .key: .driver(.keys(try KeyCombination.sequence(try need("text", text))))
        case .keyDown: .driver(.press(try KeyCombination(try need("text", text))))
        case .keyUp: .driver(.release(try KeyCombination(try need("text", text))))
        case .holdKey: .driver(.hold(try KeyCombination(try need("text", text)), milliseconds: duration ?? 1_000))
        case .type: .driver(.type(try typedText()))
        case .mouseMove: .driver(.move(try need("coordinate", coordinate)))
        case .leftClick: .driver(try click(.left))
        case .rightClick: .driver(try click(.right))
        case .middleClick: .driver(try click(.middle))
        case .doubleClick: .driver(try click(.left, times: 2))
        case .tripleClick: .driver(try click(.left, times: 3))
        case .leftClickDrag: .driver(try drag())
        case .leftMouseDown: .driver(.button(.left, isDown: true))
        case .leftMouseUp: .driver(.button(.left, isDown: false))
        case .middleMouseDown: .driver(.button(.middle, isDown: true))
        case .middleMouseUp: .driver(.button(.middle, isDown: false))
        case .rightMouseDown: .driver(.button(.right, isDown: true))
        case .rightMouseUp: .driver(.button(.right, isDown: false))
        case .scroll:
            .driver(.scroll(direction, steps: steps, at: try need("coordinate", coordinate), modifiers: modifiers))
        case .cursorPosition: .driver(.position)
        case .screenshot: .driver(.picture(picture))
        case .zoom:
            .driver(.picture(Picture(region: try need("region", picture.region), scale: picture.scale)))
        case .clipboardGet: .driver(.readClipboard)
        case .clipboardSet: .driver(.setClipboard(try clipboardText()))
        case .resize: .driver(.resize(try Self.size(try need("text", text))))
        case .wait: .wait(milliseconds: try need("duration", duration))
        case .open: .open(try textWithoutNUL(try need("text", text.flatMap { $0.isEmpty ? nil : $0 })))
        case .waitStable:
            .screen(.untilStill(picture.region, milliseconds: still, timeoutMilliseconds: timeout))
        case .windows: .screen(.windows)
        case .focusWindow: .screen(.focus(try need("id", window)))
        case .closeWindow: .screen(.close(try need("id", window)))
        case .waitForWindow:
            .screen(
                .window(
                    titled: try need("title", title.flatMap { $0.isEmpty ? nil : $0 }), timeoutMilliseconds: timeout))
        }
    }

    private func need<Value>(_ field: String, _ value: Value?) throws(DesktopError) -> Value {
        guard let value else { throw .invalid("Missing \"\(field)\" for \(name.rawValue) action.") }
        return value
    }

    private func click(_ button: DriverAction.Button, times: Int = 1) throws(DesktopError) -> DriverAction {
        .click(button, times: times, at: try need("coordinate", coordinate), modifiers: modifiers)
    }

    private func drag() throws(DesktopError) -> DriverAction {
        guard let start, let coordinate else {
            throw .invalid(#"Missing "coordinate" or "start_coordinate" for left_click_drag."#)
        }
        return .drag(from: start, to: coordinate, modifiers: modifiers)
    }

    private func typedText() throws(DesktopError) -> String {
        let text = try need("text", text)
        if let scalar = text.unicodeScalars.first(where: { Keysym.of($0) == nil }) {
            let number = String(scalar.value, radix: 16, uppercase: true)
            let padded = String(repeating: "0", count: max(0, 4 - number.count)) + number
            throw .invalid("\"text\" has a control character that no key types: U+\(padded).")
        }
        return text
    }

    private func clipboardText() throws(DesktopError) -> String {
        let text = try textWithoutNUL(try need("text", text))
        let bytes = text.utf8.count
        guard bytes <= DesktopLimits.clipboardBytes else {
            throw .invalid("\"text\" has \(bytes) bytes; the clipboard takes \(DesktopLimits.clipboardBytes).")
        }
        return text
    }

    private func textWithoutNUL(_ text: String) throws(DesktopError) -> String {
        if text.utf8.contains(0) { throw .invalid("\"text\" must not contain a NUL character.") }
        return text
    }

    private static func modifiers(
        _ names: [String], of action: DesktopAction.Name
    ) throws(DesktopError) -> [UInt32] {
        guard names.isEmpty || action.allowsModifiers else {
            throw .invalid("\"modifiers\" are for clicks, drags and scroll, not for the \(action.rawValue) action.")
        }
        guard names.count <= DesktopLimits.modifiers else {
            throw .invalid("\"modifiers\" has at most \(DesktopLimits.modifiers) keys, not \(names.count).")
        }
        var modifiers: [UInt32] = []
        for name in names {
            let keysyms = try KeyCombination(name).keysyms()
            guard let keysym = keysyms.first, keysyms.count == 1, Keysym.isModifier(keysym) else {
                throw .invalid("\"modifiers\" takes ctrl, shift, alt, super and the like, not \(name).")
            }
            if !modifiers.contains(keysym) { modifiers.append(keysym) }
        }
        return modifiers
    }

    private static func region(_ values: [WholeNumber]?) throws(DesktopError) -> DesktopRegion? {
        guard let numbers = values?.map(\.value) else { return nil }
        guard numbers.count == 4 else {
            throw .invalid("\"region\" must be [x, y, width, height], not \(numbers.count) numbers.")
        }
        guard numbers[2] >= 1, numbers[3] >= 1 else {
            throw .invalid("\"region\" must be at least 1 by 1, not \(numbers[2]) by \(numbers[3]).")
        }
        return DesktopRegion(x: numbers[0], y: numbers[1], width: numbers[2], height: numbers[3])
    }

    private static func scale(_ factor: Double?) throws(DesktopError) -> Double {
        let range = DesktopLimits.scales
        guard let factor, !range.contains(factor) else { return factor ?? 1 }
        throw .invalid("\"scale\" must be from \(range.lowerBound) to \(range.upperBound), not \(factor).")
    }

    /// Reads `1280x720`.
    private static func size(_ text: String) throws(DesktopError) -> DesktopSize {
        let sides = text.lowercased().split(separator: "x", omittingEmptySubsequences: false).map { Int($0) }
        guard sides.count == 2, let width = sides[0], let height = sides[1],
            (1...DesktopLimits.pictureSide).contains(width), (1...DesktopLimits.pictureSide).contains(height)
        else {
            throw .invalid(
                "\"text\" must be a size such as 1280x720, at most \(DesktopLimits.pictureSide) pixels on a side, "
                    + "not \(text.prefix(40)).")
        }
        return DesktopSize(width: width, height: height)
    }

    private static func point(_ field: String, _ values: [WholeNumber]?) throws(DesktopError) -> DesktopPoint? {
        guard let values else { return nil }
        guard values.count == 2 else { throw .invalid("\"\(field)\" must be [x, y], not \(values.count) numbers.") }
        return DesktopPoint(x: values[0].value, y: values[1].value)
    }

    private static func milliseconds(_ field: String, _ value: WholeNumber?) throws(DesktopError) -> Int? {
        try number(field, value, 0...DesktopLimits.durationMilliseconds, unit: " milliseconds")
    }

    /// nil, which is native, also for 0 and less, which clients send for it.
    private static func side(_ field: String, _ value: WholeNumber?) throws(DesktopError) -> Int? {
        guard let side = value?.value, side > 0 else { return nil }
        return try number(field, value, 1...DesktopLimits.declaredSide)
    }

    private static func number(
        _ field: String, _ number: WholeNumber?, _ range: ClosedRange<Int>, unit: String = ""
    ) throws(DesktopError) -> Int? {
        guard let value = number?.value, !range.contains(value) else { return number?.value }
        throw .invalid(
            value < range.lowerBound
                ? "\"\(field)\" must be at least \(range.lowerBound)\(unit), not \(value)."
                : "\"\(field)\" must be at most \(range.upperBound)\(unit), not \(value).")
    }
}

extension DesktopError {
    static func invalid(_ message: String, detail: String? = nil) -> DesktopError {
        DesktopError(.invalid, message, detail: detail)
    }
}

/// The fields of the body; only their types are checked.
private struct Fields: Decodable {
    var action: String?
    var coordinate: [WholeNumber]?
    var startCoordinate: [WholeNumber]?
    var text: String?
    var duration: WholeNumber?
    var scrollAmount: WholeNumber?
    var scrollDirection: String?
    var scaledWidth: WholeNumber?
    var scaledHeight: WholeNumber?
    var modifiers: [String]?
    var region: [WholeNumber]?
    var scale: Double?
    var screenshot: Bool?
    var title: String?
    var id: WholeNumber?
    var milliseconds: WholeNumber?
    var timeout: WholeNumber?

    enum CodingKeys: String, CodingKey {
        case action, coordinate, text, duration, modifiers, region, scale, screenshot, title, id
        case startCoordinate = "start_coordinate"
        case scrollAmount = "scroll_amount"
        case scrollDirection = "scroll_direction"
        case scaledWidth = "scaled_width"
        case scaledHeight = "scaled_height"
        case milliseconds = "ms"
        case timeout = "timeout_ms"

        /// For the end of an error's sentence.
        var type: String {
            switch self {
            case .action, .text, .scrollDirection, .title: "a string"
            case .coordinate, .startCoordinate: "an array of two whole numbers"
            case .region: "an array of four whole numbers"
            case .modifiers: "an array of strings"
            case .scale: "a number"
            case .screenshot: "true or false"
            case .duration, .scrollAmount, .scaledWidth, .scaledHeight, .id, .milliseconds, .timeout: "a whole number"
            }
        }
    }

    static func decode(_ body: ByteBuffer) throws(DesktopError) -> Fields {
        // The message is the one that clients match (docs/contracts/desktop.md#routes).
        func invalid(_ detail: String) -> DesktopError { .invalid("Failed to decode request body.", detail: detail) }
        let data = Data(body.readableBytesView)
        do {
            try JSONShape.check(data)
            return try JSONDecoder().decode(Fields.self, from: data)
        } catch let error as JSONShape.Failure {
            throw invalid(error.detail)
        } catch let DecodingError.typeMismatch(_, context), let DecodingError.valueNotFound(_, context),
            let DecodingError.dataCorrupted(context)
        {
            // A field has a wrong type, at any depth; without a key the body is no JSON. The decoder's own text would
            // name types of the language.
            guard let key = context.codingPath.first.flatMap({ CodingKeys(stringValue: $0.stringValue) }) else {
                throw invalid("The body is not valid JSON.")
            }
            throw invalid("\"\(key.stringValue)\" must be \(key.type).")
        } catch {
            throw invalid("The body is not valid JSON.")
        }
    }
}
