import AgentCore
import Glibc
import NIOCore

/// The files of one recording, in a directory of its own, so that a new recording never finds the files of an old
/// one. Every call blocks.
struct RecordingFiles: Sendable, Equatable {
    let directory: String
    var video: String { "\(directory)/video.mp4" }
    var thumbnail: String { "\(directory)/thumbnail.jpg" }
    /// ``RecorderRecord``.
    var record: String { "\(directory)/recorder.json" }

    /// Makes the directory (0700).
    /// - Throws: ``CoreError`` that names the path, also when its parent is a link or belongs to another user.
    func create() throws {
        let parent = parentDirectory(of: directory)
        try createDirectories(parent, mode: 0o700)
        try requirePrivateDirectory(parent)
        guard mkdir(directory, 0o700) == 0 else {
            throw CoreError.system(errno, "cannot create directory \(directory)")
        }
    }

    /// Makes both files with mode 0600: the recorder would create them readable by all.
    func createEmpty() throws {
        for path in [video, thumbnail] { close(try OwnFile.open(path, O_WRONLY | O_CREAT | O_EXCL)) }
    }

    /// Empties the directory for the next recorder.
    func removeContents() { Self.removeContents(of: directory) }

    func remove() { removeOwnTree(directory) }

    var videoBytes: Int {
        var info = stat()
        return lstat(video, &info) == 0 ? Int(info.st_size) : 0
    }

    /// Opens a complete recording.
    /// - Throws: ``CoreError`` that names the path, also when something else is at a file's path.
    func open() throws -> RecordedVideo {
        let video = try Self.openOwn(video)
        let picture: CInt
        do {
            picture = try Self.openOwn(thumbnail)
        } catch  where error.code == .system(ENOENT) {
            picture = -1
        } catch {
            close(video)
            throw error
        }
        let recorded = RecordedVideo(video: video, thumbnail: picture)
        guard recorded.isComplete else { throw CoreError(.invalid, "\(self.video) has no index: it was not finished") }
        return recorded
    }

    /// Opens a file that a recorder may have created, and corrects its mode.
    private static func openOwn(_ path: String) throws(CoreError) -> CInt {
        let descriptor = try OwnFile.open(path, O_RDONLY)
        fchmod(descriptor, 0o600)
        return descriptor
    }

    private static func removeContents(of directory: String) {
        for name in directoryEntries(directory) {
            let path = "\(directory)/\(name)"
            var info = stat()
            // A link is removed, never followed.
            if lstat(path, &info) == 0, info.st_mode & S_IFMT == S_IFDIR {
                removeOwnTree(path)
            } else {
                unlink(path)
            }
        }
    }
}

/// The files of a recording, held open, since they may be removed while they are sent. Reads block.
package final class RecordedVideo: Sendable {
    private let videoFile: CInt
    private let thumbnailFile: CInt
    /// Bytes of the video.
    package let videoBytes: Int
    /// Bytes of the thumbnail, 0 without one.
    package let thumbnailBytes: Int

    fileprivate init(video: CInt, thumbnail: CInt) {
        videoFile = video
        thumbnailFile = thumbnail
        videoBytes = Self.size(video)
        thumbnailBytes = Self.size(thumbnail)
    }

    deinit {
        close(videoFile)
        if thumbnailFile >= 0 { close(thumbnailFile) }
    }

    /// - Throws: ``CoreError`` where the disk fails or the file is shorter than it was.
    func readVideo(at offset: Int, count: Int) throws -> ByteBuffer { try Self.read(videoFile, offset, count) }

    /// - Throws: as ``readVideo(at:count:)``.
    func readThumbnail(at offset: Int, count: Int) throws -> ByteBuffer {
        try Self.read(thumbnailFile, offset, count)
    }

    private static func read(_ file: CInt, _ offset: Int, _ count: Int) throws -> ByteBuffer {
        var buffer = ByteBufferAllocator().buffer(capacity: count)
        while buffer.readableBytes < count {
            let at = offset + buffer.readableBytes
            let n = buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: count - buffer.readableBytes) { area in
                max(0, pread(file, area.baseAddress, min(area.count, offset + count - at), off_t(at)))
            }
            guard n > 0 else { throw CoreError.system(EIO, "a recording's file ended early") }
        }
        return buffer
    }

    /// Whether the file has an index (`moov`) and frames (`mdat`), each complete: top-level boxes are a
    /// size in 4 bytes, a type in 4, and a size in 8 more where the first is 1 (ISO 14496-12, 4.2).
    var isComplete: Bool {
        var offset = 0
        var seen: Set<String> = []
        // ffmpeg's files have four or five, fragmented ones two a fragment; the bound is for damaged files.
        for _ in 0..<100_000 {
            guard let head = try? Self.read(videoFile, offset, 8),
                let short: UInt32 = head.getInteger(at: 0), let type = head.getString(at: 4, length: 4)
            else { break }
            var size = Int(short)
            if short == 1 {
                guard let long: UInt64 = (try? Self.read(videoFile, offset + 8, 8))?.getInteger(at: 0),
                    long <= UInt64(Int.max)
                else { return false }
                size = Int(long)
            }
            guard size >= 8, size <= videoBytes - offset else { return false }
            seen.insert(type)
            offset += size
            if offset == videoBytes { return seen.isSuperset(of: ["moov", "mdat"]) }
        }
        return false
    }

    private static func size(_ file: CInt) -> Int {
        var info = stat()
        return file >= 0 && fstat(file, &info) == 0 ? Int(info.st_size) : 0
    }
}
