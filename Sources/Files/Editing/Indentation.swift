import AgentCore

/// Translates the leads of a replacement into those of the file.
///
/// The lines of the search and the lines that they match are the same text in two spellings. Where they have several
/// levels, the width of a level on one side is measured by the other; otherwise by each side's own lines. A lead
/// that can be read in two ways, or in none, is not guessed.
struct Indentation {
    private let search: TextLines
    private let text: [UInt8]
    /// Where its first line begins.
    private let start: Int
    /// What the sender indents with.
    private let sender: IndentUnit
    /// For each search line the one with text at or before it, else the first after it: a line without text has no
    /// indentation to go by. Empty when there is none.
    private let nearest: [UInt32]
    /// Of the whole file; looked at when it is needed.
    private var whole: IndentUnit?
    private var file: TextLines
    private var scale: Scale?
    /// What the leads of the search are in the file; nil for one that is several there.
    private var spellings: [ArraySlice<UInt8>: ArraySlice<UInt8>?] = [:]
    /// What leads became that were translated at their reference.
    private var translated: [ArraySlice<UInt8>: [UInt8]] = [:]

    /// How a number of blanks in the search is one in the file.
    private enum Scale {
        /// The same for all lines: `from` there is `to` here, and from there on `per` blanks are `blanks`.
        case linear(from: Int, to: Int, per: Int, blanks: Int, Lead.Blank)
        /// For each line from its reference on: `per` blanks are `blanks`.
        case atReference(per: Int, blanks: Int, Lead.Blank)
        /// What is added to a lead is added as it was sent, unless it consists of other blanks than the file's.
        case unknown(Lead.Blank?)
        /// It can be read in two ways.
        case ambiguous
    }

    /// - Parameter start: where the text's first line begins.
    init(_ search: TextLines, _ replace: TextLines, in text: [UInt8], from start: Int) {
        (self.search, self.text, self.start, file) = (search, text, start, search)
        var sender = IndentUnit()
        sender.add(search)
        sender.add(replace)
        self.sender = sender
        var nearest: [UInt32] = []
        if let first = (0..<search.count).first(where: { search[$0].hasText }) {
            var last = UInt32(truncatingIfNeeded: first)
            nearest = (0..<search.count).map { index in
                if search[index].hasText { last = UInt32(truncatingIfNeeded: index) }
                return last
            }
        }
        self.nearest = nearest
    }

    /// - Parameter file: the lines that the search matched.
    mutating func begin(_ file: TextLines) {
        (self.file, scale, translated, spellings) = (file, nil, [:], [:])
    }

    /// - Parameters:
    ///   - own: the lead of a line of the replacement.
    ///   - reference: the search line that it takes the place of, or is inserted next to.
    /// - Returns: the lead in the file; nil when it cannot be told.
    mutating func lead(_ own: ArraySlice<UInt8>, at reference: Int) -> ArraySlice<UInt8>? {
        // With lines of blanks alone there is nothing to compare with.
        guard !nearest.isEmpty else { return own }
        let reference = Int(nearest[reference])
        let (searched, found) = (search[reference].lead, file[reference].lead)
        if own == searched { return found }
        let scale = self.scale ?? measured()
        self.scale = scale
        // Lines that stand together in the search do so in the file.
        if let spelling = spellings[own] ?? nil { return spelling }
        let lead = Lead(own)
        switch scale {
        case .ambiguous: return nil
        case .linear(let from, let to, let per, let blanks, let blank):
            if let lead, let count = scaled(lead, from, to, per, blanks) { return Self.lead(count, blank) }
            // Less than a whole level is an alignment, which is made of spaces.
            return extended(own, searched, found) { $0 == blank.rawValue || $0 == Lead.Blank.space.rawValue }
        case .atReference(let per, let blanks, let blank):
            guard let lead, let from = Lead(searched), let to = Lead(found), to.blank == nil || to.blank == blank,
                from.blank == nil || from.blank == sender.blank,
                let count = scaled(lead, from.count, to.count, per, blanks)
            else { return extended(own, searched, found) { $0 == blank.rawValue } }
            let result = Self.lead(count, blank)
            // Lines that stood together would not any more.
            if let before = translated.updateValue(Array(result), forKey: own), before != Array(result) { return nil }
            return result
        case .unknown(let blank):
            return extended(own, searched, found) { $0 == blank?.rawValue ?? found.last ?? $0 }
        }
    }

    private func scaled(_ lead: Lead, _ from: Int, _ to: Int, _ per: Int, _ blanks: Int) -> Int? {
        guard lead.blank == nil || lead.blank == sender.blank, (lead.count - from) * blanks % per == 0 else {
            return nil
        }
        let count = to + (lead.count - from) * blanks / per
        return (0...FilesLimits.editBytes).contains(count) ? count : nil
    }

    private static func lead(_ count: Int, _ blank: Lead.Blank) -> ArraySlice<UInt8> {
        [UInt8](repeating: blank.rawValue, count: count)[...]
    }

    /// What one lead has more than the other, the file's has more or less, too.
    /// - Parameter mayAdd: whether the file's lead can have such a blank more.
    private func extended(
        _ own: ArraySlice<UInt8>, _ searched: ArraySlice<UInt8>, _ found: ArraySlice<UInt8>,
        mayAdd: (UInt8) -> Bool
    ) -> ArraySlice<UInt8>? {
        if own.starts(with: searched) {
            let more = own.dropFirst(searched.count)
            return more.allSatisfy(mayAdd) ? found + more : nil
        }
        guard searched.starts(with: own) else { return nil }
        let less = searched.dropFirst(own.count)
        return found.suffix(less.count).elementsEqual(less) ? found.dropLast(less.count) : nil
    }

    // MARK: Measuring

    /// A lead of the search and the one that it has in the file.
    private struct Point: Hashable {
        var searched: Int
        var found: Int
    }

    private mutating func measured() -> Scale {
        var points: Set<Point> = []
        var blanks: Set<Lead.Blank> = []
        var isMixed = false
        for index in 0..<search.count where search[index].hasText {
            let (lead, spelling) = (search[index].lead, file[index].lead)
            let known = spellings[lead]
            spellings[lead] = .some(known == nil || known == .some(spelling) ? spelling : nil)
            // A mixed lead is an alignment rather than a level.
            guard let searched = Lead(search[index].lead), let found = Lead(file[index].lead) else { continue }
            isMixed = isMixed || searched.blank != nil && searched.blank != sender.blank
            if let blank = found.blank { blanks.insert(blank) }
            points.insert(Point(searched: searched.count, found: found.count))
        }
        guard blanks.count < 2, let blank = blanks.first ?? wholeFile().blank else { return .unknown(nil) }
        guard !isMixed, let senderBlank = sender.blank, let first = points.first else { return .unknown(blank) }
        // Of tabs, one is a level.
        let level = (
            sender: senderBlank == .tab ? 1 : sender.divisor > 1 ? sender.divisor : nil,
            file: blank == .tab ? 1 : wholeFile().width
        )
        guard let other = points.first(where: { $0.searched != first.searched }) else {
            return points.count > 1 ? atReference(points, level, blank) : single(first, level, blank)
        }
        guard let ratio = Ratio(other.found - first.found, per: other.searched - first.searched),
            ratio.isPossible(from: senderBlank, to: blank), points.allSatisfy({ ratio.joins(first, $0) })
        else { return atReference(points, level, blank) }
        // A level of one space is believed when nothing contradicts it.
        if senderBlank == .space, blank == .tab, ratio.per == 1, sender.divisor > 1 { return .ambiguous }
        return ratio.scale(from: first, blank)
    }

    private mutating func wholeFile() -> IndentUnit {
        if let whole { return whole }
        var unit = IndentUnit()
        var place = start
        while place < text.count {
            let end = ByteScan.lineEnd(in: text, from: place)
            unit.add(TextLine(text[place..<end]))
            place = end
        }
        whole = unit
        return unit
    }

    /// Lines that are indented in one way by the search and in another by the file.
    private func atReference(
        _ points: Set<Point>, _ level: (sender: Int?, file: Int?), _ blank: Lead.Blank
    ) -> Scale {
        var width = level.file
        if blank == .space, width.map({ width in points.contains { $0.found % width != 0 } }) ?? true {
            width = points.reduce(0) { greatestCommonDivisor($0, $1.found) }
        }
        guard let per = level.sender, let width, width > 1 || blank == .tab else { return .unknown(blank) }
        return .atReference(per: per, blanks: width, blank)
    }

    /// All lines of the search have one lead, and so have those of the file: either both have the same level, or one
    /// level is as wide as it seems on each side.
    private func single(_ point: Point, _ level: (sender: Int?, file: Int?), _ blank: Lead.Blank) -> Scale {
        var bySame = Ratio(point.found, per: point.searched)
        if let ratio = bySame, let from = sender.blank, !ratio.isPossible(from: from, to: blank) { bySame = nil }
        let byUnits = level.sender.flatMap { per in level.file.flatMap { Ratio($0, per: per) } }
        guard let bySame else { return byUnits?.scale(from: point, blank) ?? .unknown(blank) }
        guard let byUnits, let per = level.sender, let width = level.file, byUnits != bySame else {
            return bySame.scale(from: point, blank)
        }
        // Levels of that width would not be whole ones elsewhere.
        guard per % bySame.per == 0, width % bySame.blanks == 0 else { return byUnits.scale(from: point, blank) }
        // One lead alone does not tell how many levels it has.
        let isUnfounded =
            sender.blank == .space && sender.onlyCount == point.searched
            || blank == .space && whole?.onlyCount == point.found
        // A client sends lines with less indentation than they have, hardly ever with more.
        let isDeeper = point.found % width != 0 || point.found / width < point.searched / per
        if isUnfounded || isDeeper { return bySame.scale(from: point, blank) }
        // Indented as the file is, and by a part of it.
        if sender.blank == blank, per == width { return byUnits.scale(from: point, blank) }
        return .ambiguous
    }

    /// So many blanks in the file for so many in the search, without a common divisor.
    private struct Ratio: Equatable {
        let blanks: Int
        let per: Int

        /// nil unless both have the same sign.
        init?(_ blanks: Int, per: Int) {
            guard blanks > 0 && per > 0 || blanks < 0 && per < 0 else { return nil }
            let divisor = greatestCommonDivisor(abs(blanks), abs(per))
            (self.blanks, self.per) = (abs(blanks) / divisor, abs(per) / divisor)
        }

        /// Whether levels can be as wide as that: a tab is one level.
        func isPossible(from: Lead.Blank, to: Lead.Blank) -> Bool {
            switch (from, to) {
            case (.tab, .tab): blanks == per
            case (.tab, .space): per == 1
            case (.space, .tab): blanks == 1
            case (.space, .space): blanks <= IndentUnit.widest && per <= IndentUnit.widest
            }
        }

        func joins(_ a: Point, _ b: Point) -> Bool {
            (b.found - a.found) * per == (b.searched - a.searched) * blanks
        }

        func scale(from point: Point, _ blank: Lead.Blank) -> Scale {
            .linear(from: point.searched, to: point.found, per: per, blanks: blanks, blank)
        }
    }
}
