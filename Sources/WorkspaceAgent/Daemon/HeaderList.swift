/// Headers `k=v` in one variable: separated by commas, and one that holds a comma in quotes, as in a line of CSV.
enum HeaderList {
    static func parse(_ text: String) -> [String] {
        var headers: [String] = []
        var rest = Substring(text)
        while !rest.isEmpty {
            var header = ""
            if rest.first == "\"" {
                rest.removeFirst()
                while let end = rest.firstIndex(of: "\"") {
                    header += rest[..<end]
                    rest = rest[rest.index(after: end)...]
                    // Twice, it stands for itself.
                    guard rest.first == "\"" else { break }
                    header += "\""
                    rest.removeFirst()
                }
            }
            header += rest.prefix { $0 != "," }
            rest = rest.drop { $0 != "," }.dropFirst()
            if !header.isEmpty { headers.append(header) }
        }
        return headers
    }

    static func text(_ headers: [String]) -> String {
        headers.map { header in
            guard header.contains(",") || header.hasPrefix("\"") else { return header }
            return "\"" + header.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"")
                + "\""
        }.joined(separator: ",")
    }
}
