import AgentHTTP
import FoundationEssentials
import NIOCore

extension DesktopAction {
    /// Decodes and checks the body of POST /action, without a desktop, so that an invalid request starts none.
    /// - Throws: ``DesktopError`` `.invalid` that names the field and what is wrong with it;
    ///   `.failed` when the library that knows the names of keys is not installed.
    public static func decode(_ body: ByteBuffer) throws(DesktopError) -> DesktopAction {
        let fields = try Fields.decode(body)
        guard let name = fields.action else { throw .invalid(#"Missing "action"."#) }
        guard let kind = Kind(rawValue: name) else { throw .invalid("Unknown action: \(name)") }
        var action = DesktopAction(kind, text: fields.text)
        action.coordinate = try point("coordinate", fields.coordinate)
        action.startCoordinate = try point("start_coordinate", fields.startCoordinate)
        if let name = fields.scrollDirection {
            guard let direction = Direction(rawValue: name) else { throw .invalid("Invalid scroll direction: \(name)") }
            action.scrollDirection = direction
        }
        if let amount = try number("scroll_amount", fields.scrollAmount, 0...DesktopLimits.scrollAmount) {
            action.scrollAmount = amount
        }
        if let duration = try milliseconds("duration", fields.duration) {
            action.durationMilliseconds = duration
        } else if kind == .wait {
            throw missing("duration", kind)
        }
        action.declaredWidth = try side("scaled_width", fields.scaledWidth)
        action.declaredHeight = try side("scaled_height", fields.scaledHeight)
        try action.takePictureFields(fields)
        try action.takeWaitFields(fields)
        if let names = fields.modifiers { try action.takeModifiers(names) }
        if let id = try number("id", fields.id, 0...Int(UInt32.max)) { action.windowID = UInt32(id) }
        try action.checkNeeds()
        return action
    }

    private mutating func takePictureFields(_ fields: Fields) throws(DesktopError) {
        if let values = fields.region {
            guard values.count == 4 else {
                throw .invalid("\"region\" must be [x, y, width, height], not \(values.count) numbers.")
            }
            let numbers = values.map(\.value)
            guard numbers[2] >= 1, numbers[3] >= 1 else {
                throw .invalid("\"region\" must be at least 1 by 1, not \(numbers[2]) by \(numbers[3]).")
            }
            region = DesktopRegion(x: numbers[0], y: numbers[1], width: numbers[2], height: numbers[3])
        }
        if let factor = fields.scale {
            let range = DesktopLimits.scales
            guard range.contains(factor) else {
                throw .invalid("\"scale\" must be from \(range.lowerBound) to \(range.upperBound), not \(factor).")
            }
            scale = factor
        }
        takesScreenshot = fields.screenshot ?? false
    }

    private mutating func takeWaitFields(_ fields: Fields) throws(DesktopError) {
        title = fields.title
        if let still = try Self.milliseconds("ms", fields.milliseconds) { stillMilliseconds = still }
        if let timeout = try Self.milliseconds("timeout_ms", fields.timeout) { timeoutMilliseconds = timeout }
    }

    private mutating func takeModifiers(_ names: [String]) throws(DesktopError) {
        guard names.isEmpty || kind.takesModifiers else {
            throw .invalid("\"modifiers\" are for clicks, drags and scroll, not for the \(kind.rawValue) action.")
        }
        guard names.count <= DesktopLimits.modifiers else {
            throw .invalid("\"modifiers\" has at most \(DesktopLimits.modifiers) keys, not \(names.count).")
        }
        for name in names {
            let keysyms = try KeyCombination(name).keysyms
            guard let keysym = keysyms.first, keysyms.count == 1, Keysym.isModifier(keysym) else {
                throw .invalid("\"modifiers\" takes ctrl, shift, alt, super and the like, not \(name).")
            }
            if !modifiers.contains(keysym) { modifiers.append(keysym) }
        }
    }

    /// Checks that the fields which the kind needs are there, and that the text is usable.
    private mutating func checkNeeds() throws(DesktopError) {
        switch kind {
        case .leftClickDrag:
            guard startCoordinate != nil, coordinate != nil else {
                throw .invalid(#"Missing "coordinate" or "start_coordinate" for left_click_drag."#)
            }
        case .mouseMove, .leftClick, .rightClick, .middleClick, .doubleClick, .tripleClick, .scroll:
            guard coordinate != nil else { throw Self.missing("coordinate", kind) }
        case .key: _ = try KeyCombination.sequence(try needText())
        case .keyDown, .keyUp, .holdKey: _ = try KeyCombination(try needText())
        case .type:
            let text = try needText()
            if let scalar = text.unicodeScalars.first(where: { Keysym.of($0) == nil }) {
                let number = String(scalar.value, radix: 16, uppercase: true)
                let padded = String(repeating: "0", count: max(0, 4 - number.count)) + number
                throw .invalid("\"text\" has a control character that no key types: U+\(padded).")
            }
        case .open:
            if try needText().isEmpty { throw Self.missing("text", kind) }
            try refuseNUL()
        case .clipboardSet:
            let bytes = try needText().utf8.count
            try refuseNUL()
            guard bytes <= DesktopLimits.clipboardBytes else {
                throw .invalid("\"text\" has \(bytes) bytes; the clipboard takes \(DesktopLimits.clipboardBytes).")
            }
        case .resize: newSize = try Self.size(try needText())
        case .zoom: if region == nil { throw Self.missing("region", kind) }
        case .focusWindow, .closeWindow: if windowID == nil { throw Self.missing("id", kind) }
        case .waitForWindow: if title?.isEmpty ?? true { throw Self.missing("title", kind) }
        case .leftMouseDown, .leftMouseUp, .middleMouseDown, .middleMouseUp, .rightMouseDown, .rightMouseUp,
            .cursorPosition, .screenshot, .wait, .waitStable, .clipboardGet, .windows:
            break
        }
    }

    private func needText() throws(DesktopError) -> String {
        guard let text else { throw Self.missing("text", kind) }
        return text
    }

    private func refuseNUL() throws(DesktopError) {
        if text?.utf8.contains(0) ?? false { throw .invalid("\"text\" must not contain a NUL character.") }
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

    private static func missing(_ field: String, _ kind: Kind) -> DesktopError {
        .invalid("Missing \"\(field)\" for \(kind.rawValue) action.")
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
