import AgentCore

/// A path as bundle-files takes it: `~/` and variables stand for what the environment says.
enum BundlePath {
    /// The clean path.
    /// - Throws: ``FilesError`` with the reason for the manifest.
    static func expand(_ text: String, home: String, environment: [String: String]) throws(FilesError) -> String {
        guard !text.isEmpty else { throw FilesError(.invalid, "path is empty") }
        var path: [UInt8] = []
        var rest = Array(text.utf8)[...]
        if text == "~" || text.utf8.starts(with: "~/".utf8) {
            path += home.utf8
            rest = rest.dropFirst()
        }
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "$"), let name = takeName(&rest) else {
                path.append(byte)
                continue
            }
            path += try value(name, environment)
        }
        let expanded = String(decoding: path, as: UTF8.self)
        guard !expanded.isEmpty else { throw FilesError(.invalid, "path is empty") }
        guard LexicalPath.isAbsolute(expanded) else {
            throw FilesError(.invalid, "path \(goQuoted(utf8: PathText.bytes(expanded))) is not absolute")
        }
        return LexicalPath.clean(expanded)
    }

    /// Whether the path is a pattern for several.
    static func isPattern(_ path: String) -> Bool { path.utf8.contains { "*?[{".utf8.contains($0) } }

    /// The name behind a dollar sign, with or without braces; nil when there is none.
    private static func takeName(_ rest: inout ArraySlice<UInt8>) -> String? {
        let hasBrace = rest.first == UInt8(ascii: "{")
        let name = rest.dropFirst(hasBrace ? 1 : 0).prefix(while: isNameByte)
        let behind = rest[name.endIndex...]
        guard !name.isEmpty, !hasBrace || behind.first == UInt8(ascii: "}") else { return nil }
        rest = behind.dropFirst(hasBrace ? 1 : 0)
        return String(decoding: name, as: UTF8.self)
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): true
        default: false
        }
    }

    /// A variable that is not set is an error: nothing in its place would make another path of it, such as `/**`.
    private static func value(
        _ name: String, _ environment: [String: String]
    ) throws(FilesError) -> String.UTF8View {
        guard let value = environment[name] else {
            throw FilesError(.invalid, "the variable \(goQuoted(name)) is not set")
        }
        return value.utf8
    }
}
