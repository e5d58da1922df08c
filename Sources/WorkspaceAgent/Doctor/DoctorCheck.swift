/// What one check of `workspace-agent doctor` found.
struct DoctorCheck: Sendable, Equatable, Codable {
    enum Status: String, Codable, Comparable {
        case ok
        /// Something does less than it could, or will soon.
        case warning
        /// Something does not work.
        case error

        private var rank: Int { [.ok: 0, .warning: 1, .error: 2][self, default: 0] }
        static func < (a: Self, b: Self) -> Bool { a.rank < b.rank }
    }

    /// In kebab-case; stable.
    var name: String
    var status: Status
    var detail: String
    /// What to do about it; nil when nothing is wrong.
    var fix: String?

    static func ok(_ name: String, _ detail: String) -> Self { Self(name: name, status: .ok, detail: detail) }

    static func warning(_ name: String, _ detail: String, fix: String) -> Self {
        Self(name: name, status: .warning, detail: detail, fix: fix)
    }

    static func error(_ name: String, _ detail: String, fix: String) -> Self {
        Self(name: name, status: .error, detail: detail, fix: fix)
    }
}

/// `--output json`.
struct DoctorReport: Codable { var checks: [DoctorCheck] }

/// Several findings about one thing, of which the worst counts.
struct DoctorFindings {
    private var findings: [(status: DoctorCheck.Status, text: String, fix: String?)] = []

    mutating func ok(_ text: String) { findings.append((.ok, text, nil)) }
    mutating func warning(_ text: String, fix: String) { findings.append((.warning, text, fix)) }
    mutating func error(_ text: String, fix: String) { findings.append((.error, text, fix)) }

    /// All of it, what is wrong first; each fix once.
    func check(_ name: String) -> DoctorCheck {
        let wrong = findings.filter { $0.status != .ok }.sorted { $0.status > $1.status }
        var fixes: [String] = []
        for fix in wrong.compactMap(\.fix) where !fixes.contains(fix) { fixes.append(fix) }
        return DoctorCheck(
            name: name, status: wrong.first?.status ?? .ok,
            detail: (wrong + findings.filter { $0.status == .ok }).map(\.text).joined(separator: "; "),
            fix: fixes.isEmpty ? nil : fixes.joined(separator: "; "))
    }
}
