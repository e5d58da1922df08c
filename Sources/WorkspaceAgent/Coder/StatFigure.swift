import ControlPlane

/// A power of 1024 in front of a unit.
enum BinaryPrefix: String, CaseIterable {
    case kibi = "Ki"
    case mebi = "Mi"
    case gibi = "Gi"
    case tebi = "Ti"

    var factor: Double {
        switch self {
        case .kibi: 0x1p10
        case .mebi: 0x1p20
        case .gibi: 0x1p30
        case .tebi: 0x1p40
        }
    }
}

/// A figure of `stat`: how much is used, and of how much.
struct StatFigure {
    enum Unit: String {
        case cores
        case bytes = "B"
    }

    var amount: ResourceReader.Amount
    var unit: Unit

    /// `3.02/16 GiB (19%)`. Without a limit there is neither a total nor a percentage.
    /// - Parameter prefix: of bytes; cores have none.
    func text(_ prefix: BinaryPrefix?) -> String {
        let factor = prefix?.factor ?? 1
        var text = Self.number(amount.used / factor)
        if let total = amount.total { text += "/\(Self.number(total / factor))" }
        text += " \(prefix?.rawValue ?? "")\(unit.rawValue)"
        if let total = amount.total, total > 0 {
            text += " (\(Self.fixed(amount.used / total * 100, decimals: 0))%)"
        }
        return text
    }

    /// In plain bytes or cores.
    var json: SyncJSON {
        .object([
            ("total", amount.total.map { .number($0) } ?? .null), ("unit", .string(unit.rawValue)),
            ("used", .number(amount.used)),
        ])
    }

    /// With as many decimals as make sense beside its whole part, and no zeros at their end.
    static func number(_ value: Double) -> String {
        fixed(value, decimals: value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0)
    }

    private static func fixed(_ value: Double, decimals: Int) -> String {
        let scale = (0..<decimals).reduce(1.0) { scale, _ in scale * 10 }
        let scaled = (max(0, value) * scale).rounded(.toNearestOrEven)
        // Nothing that is measured comes near it.
        guard scaled < 0x1p62 else { return "\(value)" }
        let (whole, part) = Int64(scaled).quotientAndRemainder(dividingBy: Int64(scale))
        var digits = String(String(part + Int64(scale)).dropFirst())
        while digits.last == "0" { digits.removeLast() }
        return digits.isEmpty ? "\(whole)" : "\(whole).\(digits)"
    }
}
