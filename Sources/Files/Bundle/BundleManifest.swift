import FoundationEssentials
import Glibc

/// What a bundle may be at most; part of its manifest.
struct BundleLimits: Encodable, Sendable {
    var max_files = FilesLimits.bundleFiles
    var max_bytes_per_file = FilesLimits.bundleBytesPerFile
    /// Of the archive without the manifest, headers included.
    var max_total_bytes = FilesLimits.bundleBytes
}

/// What is in a bundle and what is not (docs/contracts/files.md#bundle-files).
struct BundleManifest: Encodable {
    struct File: Encodable {
        var requested: String
        var path: String
        var archive_path: String
        /// Bytes that the file has, of which the bundle may have only the last.
        var size: Int
        var mod_time: String
        var bytes_written: Int
        var truncated: Bool
    }

    struct Failure: Encodable {
        var requested: String
        var path: String?
        var reason: String
    }

    var requested: [String]
    var files: [File] = []
    var errors: [Failure] = []
    var truncated = false
    var limits: BundleLimits

    private enum CodingKeys: String, CodingKey { case requested, files, errors, truncated, limits }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(requested, forKey: .requested)
        try container.encode(files.isEmpty ? nil : files, forKey: .files)
        try container.encode(errors.isEmpty ? nil : errors, forKey: .errors)
        try container.encode(truncated, forKey: .truncated)
        try container.encode(limits, forKey: .limits)
    }

    var json: [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // It holds nothing that JSON could not.
        return (try? encoder.encode(self)).map { Array($0) } ?? []
    }

    /// RFC 3339 in UTC, with as many digits of the second as there are.
    static func time(_ time: timespec) -> String {
        let seconds = Date(timeIntervalSince1970: Double(time.tv_sec)).ISO8601Format().dropLast()
        guard time.tv_nsec > 0 else { return "\(seconds)Z" }
        var digits = String(time.tv_nsec + 1_000_000_000).dropFirst()
        while digits.last == "0" { digits.removeLast() }
        return "\(seconds).\(digits)Z"
    }
}
