/// Formats that clients send in place of a tar archive, known by their first bytes.
enum ForeignArchive {
    private static let formats: [(start: [UInt8], name: String)] = [
        ([0xFD, 0x37, 0x7A, 0x58, 0x5A, 0x00], "an archive compressed with xz"),
        ([0x28, 0xB5, 0x2F, 0xFD], "an archive compressed with zstd"),
        (Array("BZh".utf8), "an archive compressed with bzip2"),
        ([0x04, 0x22, 0x4D, 0x18], "an archive compressed with lz4"),
        (Array("LZIP".utf8), "an archive compressed with lzip"),
        ([0x1F, 0x9D], "an archive compressed with compress"),
        ([0x1F, 0x8B], "an archive compressed with gzip twice"),
        ([0x50, 0x4B, 0x03, 0x04], "a zip archive"),
        ([0x50, 0x4B, 0x05, 0x06], "an empty zip archive"),
        ([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], "a 7z archive"),
    ]

    /// What begins with the bytes; nil unless it is one of the known formats. A tar archive can begin with them, too,
    /// as it begins with a file's name: ask only about what isn't one.
    static func name(of start: some Collection<UInt8>) -> String? {
        formats.first { start.starts(with: $0.start) }?.name
    }
}
