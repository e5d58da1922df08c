import AgentCore
import AgentHTTP

/// What a glob request asks for.
struct GlobQuery: Sendable {
    struct Body: Decodable {
        var root: String
        var pattern: String
        var limit: WholeNumber?
        var gitignore: Bool?
    }

    let root: String
    let pattern: GlobPattern
    let limit: Int
    let gitignore: Bool

    /// - Throws: ``HTTPProblem`` 400.
    init(_ body: Body) throws {
        root = try SearchField.root(body.root)
        pattern = try SearchField.pattern("pattern", body.pattern)
        limit = try SearchField.number("limit", body.limit, 1...FilesLimits.globMaximum) ?? FilesLimits.globDefault
        gitignore = body.gitignore ?? true
    }
}

/// What a grep request asks for.
struct GrepQuery: Sendable {
    struct Body: Decodable {
        var root: String
        var pattern: String
        var fixed: Bool?
        var ignore_case: Bool?
        var glob: String?
        var context: WholeNumber?
        var limit: WholeNumber?
        var gitignore: Bool?
    }

    let root: String
    let search: GrepMatcher
    let glob: GlobPattern?
    let limit: Int
    let gitignore: Bool

    /// - Throws: ``HTTPProblem`` 400.
    init(_ body: Body) throws {
        root = try SearchField.root(body.root)
        guard !body.pattern.utf8.contains(UInt8(ascii: "\n")) else {
            throw HTTPProblem.invalid("pattern", "must not contain a newline: each line is looked at by itself")
        }
        var options: Pattern.Options = .lines
        if body.fixed == true { options.insert(.literal) }
        if body.ignore_case == true { options.insert(.ignoreCase) }
        let pattern: Pattern
        do {
            pattern = try Pattern(body.pattern, options)
        } catch {
            throw HTTPProblem.invalid("pattern", error.message)
        }
        let context = try SearchField.number("context", body.context, 0...FilesLimits.grepContext) ?? 0
        search = GrepMatcher(pattern: pattern, context: context)
        glob = try body.glob.flatMap { $0.isEmpty ? nil : try SearchField.pattern("glob", $0) }
        limit = try SearchField.number("limit", body.limit, 1...FilesLimits.grepMaximum) ?? FilesLimits.grepDefault
        gitignore = body.gitignore ?? true
    }
}

/// The checks that both share.
enum SearchField {
    static func root(_ path: String) throws -> String {
        guard !path.isEmpty else { throw HTTPProblem.invalid("root", "must not be empty") }
        guard LexicalPath.isAbsolute(path) else {
            throw HTTPProblem(.badRequest, "file path must be absolute: \(goQuoted(path))")
        }
        return LexicalPath.clean(path)
    }

    static func number(_ field: String, _ number: WholeNumber?, _ range: ClosedRange<Int>) throws -> Int? {
        guard let number = number?.value else { return nil }
        guard range.contains(number) else {
            throw HTTPProblem.invalid(field, "must be from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// A pattern for paths below the root. Without a slash it is for names at any depth; a slash at its beginning says
    /// that it is not, one at its end asks for all that is in a directory.
    static func pattern(_ field: String, _ text: String) throws -> GlobPattern {
        guard !text.isEmpty else { throw HTTPProblem.invalid(field, "must not be empty") }
        let (any, limit) = (Array("**/".utf8), GlobPattern.maximumBytes - 3)
        var bytes = PathText.bytes(text)
        guard bytes.count <= limit else {
            throw HTTPProblem.invalid(field, "has \(bytes.count) bytes; the limit is \(limit)")
        }
        let hasSlash = bytes.contains(UInt8(ascii: "/"))
        if bytes.starts(with: "./".utf8) { bytes.removeFirst(2) }
        if bytes.first == UInt8(ascii: "/") { bytes.removeFirst() }
        if bytes.isEmpty || bytes.last == UInt8(ascii: "/") { bytes += Array("**".utf8) }
        do {
            return try GlobPattern(hasSlash ? bytes : any + bytes)
        } catch {
            throw HTTPProblem.invalid(
                field,
                "\(error.message) \(goQuoted(text)): every [ and { needs its closing ] and }, every \\ a character "
                    + "behind it, and a range such as [a-z] its lower end first")
        }
    }
}
