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
        let durations = 0...DesktopLimits.durationMilliseconds
        if let duration = try number("duration", fields.duration, durations, unit: " milliseconds") {
            action.durationMilliseconds = duration
        } else if kind == .wait {
            throw missing("duration", kind)
        }
        let sides = 1...DesktopLimits.declaredSide
        action.declaredWidth = try number("scaled_width", fields.scaledWidth, sides)
        action.declaredHeight = try number("scaled_height", fields.scaledHeight, sides)
        try action.checkNeeds()
        return action
    }

    /// Checks that the fields which the kind needs are there, and that the text is usable.
    private func checkNeeds() throws(DesktopError) {
        switch kind {
        case .leftClickDrag where startCoordinate == nil: throw Self.missing("start_coordinate", kind)
        case .mouseMove, .leftClick, .rightClick, .middleClick, .doubleClick, .tripleClick, .scroll, .leftClickDrag:
            guard coordinate != nil else { throw Self.missing("coordinate", kind) }
        case .key, .keyDown, .keyUp, .holdKey:
            guard let text else { throw Self.missing("text", kind) }
            _ = try KeyCombination(text)
        case .type:
            guard let text else { throw Self.missing("text", kind) }
            if let scalar = text.unicodeScalars.first(where: { Keysym.of($0) == nil }) {
                let number = String(scalar.value, radix: 16, uppercase: true)
                let padded = String(repeating: "0", count: max(0, 4 - number.count)) + number
                throw .invalid("\"text\" has a control character that no key types: U+\(padded).")
            }
        case .open:
            guard let text, !text.isEmpty else { throw Self.missing("text", kind) }
            if text.utf8.contains(0) { throw .invalid("\"text\" must not contain a NUL character.") }
        case .leftMouseDown, .leftMouseUp, .cursorPosition, .screenshot, .wait: break
        }
    }

    private static func missing(_ field: String, _ kind: Kind) -> DesktopError {
        .invalid("Missing \"\(field)\" for \(kind.rawValue) action.")
    }

    private static func point(_ field: String, _ values: [WholeNumber]?) throws(DesktopError) -> DesktopPoint? {
        guard let values else { return nil }
        guard values.count == 2 else { throw .invalid("\"\(field)\" must be [x, y], not \(values.count) numbers.") }
        return DesktopPoint(x: values[0].value, y: values[1].value)
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

    enum CodingKeys: String, CodingKey {
        case action, coordinate, text, duration
        case startCoordinate = "start_coordinate"
        case scrollAmount = "scroll_amount"
        case scrollDirection = "scroll_direction"
        case scaledWidth = "scaled_width"
        case scaledHeight = "scaled_height"

        /// For the end of an error's sentence.
        var type: String {
            switch self {
            case .action, .text, .scrollDirection: "a string"
            case .coordinate, .startCoordinate: "an array of two whole numbers"
            case .duration, .scrollAmount, .scaledWidth, .scaledHeight: "a whole number"
            }
        }
    }

    static func decode(_ body: ByteBuffer) throws(DesktopError) -> Fields {
        let invalid = "Request body must be valid JSON."
        let data = Data(body.readableBytesView)
        do {
            try JSONShape.check(data)
            return try JSONDecoder().decode(Fields.self, from: data)
        } catch let error as JSONShape.Failure {
            throw .invalid(invalid, detail: error.detail)
        } catch let DecodingError.typeMismatch(_, context), let DecodingError.valueNotFound(_, context),
            let DecodingError.dataCorrupted(context)
        {
            // A field has a wrong type, at any depth; without a key the body is no JSON object.
            guard let key = context.codingPath.first.flatMap({ CodingKeys(stringValue: $0.stringValue) }) else {
                throw .invalid(invalid, detail: context.debugDescription)
            }
            throw .invalid("\"\(key.stringValue)\" must be \(key.type).")
        } catch {
            throw .invalid(invalid, detail: "\(error)")
        }
    }
}
