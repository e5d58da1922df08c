/// Reads the text of a ``GlobPattern``.
struct GlobParser {
    private let units: [GlobUnit]
    private var index = 0
    private var nesting = 0
    /// Whether an element of the path begins here.
    private var beginsElement = true

    private static let failure = FilesError(.invalid, "syntax error in pattern")

    init(_ units: [GlobUnit]) { self.units = units }

    mutating func parse() throws(FilesError) -> [GlobAutomaton.Node] {
        let nodes = try sequence()
        guard index == units.count else { throw Self.failure }
        return nodes
    }

    /// Up to the end, or the `,` or `}` of the braces that it stands in.
    private mutating func sequence() throws(FilesError) -> [GlobAutomaton.Node] {
        var nodes: [GlobAutomaton.Node] = []
        while index < units.count {
            let unit = units[index]
            if nesting > 0, unit == "," || unit == "}" { return nodes }
            switch unit {
            case "}": throw Self.failure
            case "{": nodes.append(try braces())
            case "*": stars(&nodes)
            default:
                index += 1
                let step = try step(unit)
                nodes.append(.step(step))
                if case .unit("/") = step { beginsElement = true } else { beginsElement = false }
            }
        }
        return nodes
    }

    /// - Parameter unit: the one before the index.
    private mutating func step(_ unit: GlobUnit) throws(FilesError) -> GlobAutomaton.Step {
        switch unit {
        case "?": return .any
        case "[":
            do {
                return .oneOf(try GlobClass(units, &index))
            } catch {
                throw Self.failure
            }
        case "\\":
            guard index < units.count else { throw Self.failure }
            index += 1
            return .unit(units[index - 1])
        default: return .unit(unit)
        }
    }

    private mutating func braces() throws(FilesError) -> GlobAutomaton.Node {
        nesting += 1
        defer { nesting -= 1 }
        guard nesting <= GlobPattern.maximumNesting else {
            throw FilesError(.invalid, "pattern has braces nested more than \(GlobPattern.maximumNesting) deep")
        }
        var choices: [[GlobAutomaton.Node]] = []
        let begins = beginsElement
        repeat {
            index += 1
            beginsElement = begins
            choices.append(try sequence())
            guard index < units.count else { throw Self.failure }
        } while units[index] == ","
        index += 1
        beginsElement = false
        return .either(choices)
    }

    /// `**` counts as any number of elements where it is an element of its own, else as `*`.
    private mutating func stars(_ nodes: inout [GlobAutomaton.Node]) {
        let begin = index
        while index < units.count, units[index] == "*" { index += 1 }
        let next = index < units.count ? units[index] : nil
        let isElement = beginsElement && (next == nil || next == "/" || nesting > 0 && (next == "," || next == "}"))
        beginsElement = false
        guard isElement, index - begin > 1 else { return nodes.append(.repeated(.any)) }
        guard next == "/" else { return nodes.append(.repeated(.anything)) }
        // No element at all, or some with the slash behind them.
        nodes.append(.either([[], [.repeated(.anything), .step(.unit("/"))]]))
        index += 1
        beginsElement = true
    }
}
