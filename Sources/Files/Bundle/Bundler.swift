import AgentCore
import Glibc
import NIOCore

/// Makes the archive of a bundle, piece by piece: the files, then the manifest. Used by one thread at a time.
final class Bundler {
    /// Files and directory entries that are looked at in one piece of work.
    private static let stepsAtOnce = 2_000

    private struct Reading {
        var file: RegularFile
        var path: String
        var rest: Int
        var padding: Int
    }

    private let home: String
    private let environment: [String: String]
    /// Whether it has taken too long.
    private let isLate: () -> Bool
    private var manifest: BundleManifest
    private var requests: ArraySlice<String>
    private var request = ""
    private var walk: GlobWalk?
    private var hasMatched = false
    private var reading: Reading?
    private var paths: Set<[UInt8]> = []
    private var bytes = 0
    private var isEnded = false

    init(
        _ paths: [String], home: String, environment: [String: String], limits: BundleLimits = BundleLimits(),
        isLate: @escaping () -> Bool
    ) {
        (self.home, self.environment, self.isLate) = (home, environment, isLate)
        manifest = BundleManifest(requested: paths, limits: limits)
        requests = paths[...]
    }

    /// The next bytes of the archive, which may be none; nil behind the last.
    func next() -> ByteBuffer? {
        guard !isEnded else { return nil }
        if walk != nil { _ = requireTime() }
        var plain = ByteBuffer()
        for _ in 0..<Self.stepsAtOnce where !isEnded && plain.readableBytes < FilesLimits.chunkBytes { fill(&plain) }
        return plain
    }

    /// Whether nothing is left.
    var isComplete: Bool { isEnded }

    private func fill(_ plain: inout ByteBuffer) {
        if reading != nil { return read(&plain) }
        if let step = walk?.step() {
            if case .match(let path) = step { match(PathText.text(path), &plain) }
        } else if walk != nil {
            endWalk()
        } else if let next = requests.popFirst() {
            request = next
            if requireRoom() { begin(&plain) }
        } else {
            end(&plain)
        }
    }

    private func endWalk() {
        walk = nil
        if !hasMatched { fail("no matches") }
    }

    private func begin(_ plain: inout ByteBuffer) {
        do throws(FilesError) {
            let path = try BundlePath.expand(request, home: home, environment: environment)
            if BundlePath.isPattern(path) {
                hasMatched = false
                do { walk = GlobWalk(try GlobPattern(path)) } catch { fail("glob pattern: \(error.message)") }
            } else {
                take((try? PathResolution.resolve(path)) ?? path, &plain)
            }
        } catch {
            fail(error.message)
        }
    }

    private func match(_ path: String, _ plain: inout ByteBuffer) {
        hasMatched = true
        guard !paths.contains(PathText.bytes(path)) else { return }
        guard requireRoom() else {
            walk = nil
            return
        }
        take(path, &plain)
    }

    /// - Returns: whether another file may be taken.
    private func requireRoom() -> Bool {
        guard requireTime() else { return false }
        guard manifest.files.count < manifest.limits.max_files else {
            manifest.truncated = true
            fail("file count limit reached")
            return false
        }
        return true
    }

    private func requireTime() -> Bool {
        guard isLate() else { return true }
        fail("exceeded maximum collection time")
        stop()
        return false
    }

    /// Nothing more is taken.
    private func stop() {
        manifest.truncated = true
        (requests, walk) = ([], nil)
    }

    private func fail(_ reason: String, _ path: String? = nil) {
        manifest.errors.append(.init(requested: request, path: path, reason: reason))
    }

    private func take(_ path: String, _ plain: inout ByteBuffer) {
        let key = PathText.bytes(path)
        guard !paths.contains(key) else { return }
        let file: RegularFile
        do { file = try Self.open(path) } catch { return fail(error.message, path) }
        let size = max(0, Int(file.info.st_size))
        let count = min(size, manifest.limits.max_bytes_per_file)
        let archived = "files\(path)"
        let header = TarWriter.header(
            TarEntry(
                kind: .file, name: PathText.bytes(archived), size: count, mode: 0o644, seconds: file.info.st_mtim.tv_sec
            ))
        bytes += header.count + count + TarBlock.padding(of: count)
        guard bytes <= manifest.limits.max_total_bytes else {
            fail("total byte limit reached", path)
            return stop()
        }
        paths.insert(key)
        if count < size { manifest.truncated = true }
        manifest.files.append(
            .init(
                requested: request, path: path, archive_path: archived, size: size,
                mod_time: BundleManifest.time(file.info.st_mtim), bytes_written: count, truncated: count < size))
        plain.writeBytes(header)
        lseek(file.number, size - count, SEEK_SET)
        reading = Reading(file: file, path: path, rest: count, padding: TarBlock.padding(of: count))
    }

    /// Some of the file's content. What it has no more is zeros, and not counted.
    private func read(_ plain: inout ByteBuffer) {
        guard let now = reading else { return }
        let wanted = min(now.rest, max(FilesLimits.chunkBytes - plain.readableBytes, 1))
        let count = wanted == 0 ? 0 : now.file.read(wanted, into: &plain)
        if count < 0 { fail("read file: read \(now.path): \(FilesError.reason(CInt(-count)))", now.path) }
        guard count <= 0, wanted > 0 else {
            reading?.rest -= count
            return finish(&plain)
        }
        plain.writeRepeatingByte(0, count: now.rest)
        manifest.files[manifest.files.count - 1].bytes_written -= now.rest
        manifest.files[manifest.files.count - 1].truncated = true
        manifest.truncated = true
        reading?.rest = 0
        finish(&plain)
    }

    private func finish(_ plain: inout ByteBuffer) {
        guard let now = reading, now.rest == 0 else { return }
        plain.writeRepeatingByte(0, count: now.padding)
        reading = nil
    }

    private func end(_ plain: inout ByteBuffer) {
        let json = manifest.json
        let entry = TarEntry(
            kind: .file, name: Array("manifest.json".utf8), size: json.count, mode: 0o644, seconds: time(nil))
        plain.writeBytes(TarWriter.header(entry))
        plain.writeBytes(json)
        plain.writeRepeatingByte(0, count: TarBlock.padding(of: json.count))
        plain.writeBytes(TarBlock.end)
        isEnded = true
    }

    /// - Throws: ``FilesError`` with the reason for the manifest.
    private static func open(_ path: String) throws(FilesError) -> RegularFile {
        var info = stat()
        let result = withPath(path) { stat($0, &info) }
        if result == -ENOENT { throw FilesError(.notFound, "does not exist") }
        if result == 0, info.st_mode & S_IFMT != S_IFREG {
            throw FilesError(.invalid, "not a regular file: \(kind(info.st_mode))")
        }
        do { return try RegularFile(path) } catch { throw FilesError(error.code, "open file: \(error.message)") }
    }

    private static func kind(_ mode: mode_t) -> String {
        switch mode & S_IFMT {
        case S_IFDIR: "directory"
        case S_IFIFO: "named pipe"
        case S_IFSOCK: "socket"
        default: "device"
        }
    }
}
