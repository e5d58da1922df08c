/// The interpreter that a text names in its first line (`#!/usr/bin/env python3`).
///
/// Such a text runs as `interpreter arguments… -c text`, so that a script for bash or python means the same whatever the
/// user's login shell is. The kernel is not asked: it reads the line from a file alone, and passes all arguments as one.
public struct Shebang: Sendable, Equatable {
    /// The interpreter and its arguments, which are separated by white space.
    public let words: [String]

    /// nil unless the text, without white space in front, begins with `#!` and a program in the same line.
    public init?(_ text: String) {
        let scalars = text.unicodeScalars.drop { $0.properties.isWhitespace }
        guard scalars.starts(with: "#!".unicodeScalars) else { return nil }
        let line = scalars.dropFirst(2).prefix { $0 != "\n" && $0 != "\r" }
        words = line.split { $0.properties.isWhitespace }.map { String($0) }
        if words.isEmpty { return nil }
    }

    /// The arguments of a command that runs the text: its own interpreter, or else the shell's `-c`.
    public static func command(for text: String, shell: String) -> [String] {
        (Shebang(text)?.words ?? [shell]) + ["-c", text]
    }
}
