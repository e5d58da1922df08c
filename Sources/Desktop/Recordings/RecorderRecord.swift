import AgentCore
import FoundationEssentials
import Glibc
import Logging

/// Our record of a recorder, beside what it records: a daemon that is killed leaves its recorders running, and the
/// next one ends those that are certainly of the last.
struct RecorderRecord: Codable, Equatable {
    /// After a reboot, process numbers and start times of the record mean nothing.
    var boot: String
    /// Leads a session of its own, in the recording's directory.
    var recorder: ProcessIdentity

    /// Bytes of a record; ours have about a hundred.
    private static let limit = 4 << 10

    /// Writes the record of a recorder that has just been started. Blocks.
    /// - Throws: ``CoreError`` that names the path; nothing when the recorder has ended.
    static func write(_ pid: Int32, to files: RecordingFiles) throws {
        guard let recorder = ProcessHandle(pid: pid)?.identity else { return }
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        let record = RecorderRecord(boot: SessionFiles.boot, recorder: recorder)
        try OwnFile.replace(files.record, with: Array(try encoder.encode(record)) + [UInt8(ascii: "\n")])
    }

    /// - Returns: nil where there is none.
    /// - Throws: why it cannot be read.
    static func read(of files: RecordingFiles) throws -> RecorderRecord? {
        do {
            let bytes = try OwnFile.read(files.record, limit: limit)
            guard let record = try? JSONDecoder().decode(RecorderRecord.self, from: Data(bytes)) else {
                throw CoreError(.invalid, "\(files.record) is damaged")
            }
            return record
        } catch let error as CoreError where error.code == .system(ENOENT) {
            return nil
        }
    }

    /// What is left of the recorder: itself, and the processes of its session. Blocks: reads all of /proc.
    ///
    /// The kernel gives the number of a session to nothing else while something is in it. So with the recorder alive,
    /// what is in its session is its own. Without it, the number may be that of a later session, so only those
    /// count that are in the recording's directory, too.
    func processes(of files: RecordingFiles) -> [ProcessHandle] {
        guard boot == SessionFiles.boot else { return [] }
        let leader = ProcessHandle(recorder)
        let children = directoryEntries("/proc").compactMap { Int32($0) }
            .filter { $0 != recorder.pid && getsid($0) == recorder.pid }
            .compactMap { pid -> ProcessHandle? in
                // What is read after this is of the process that the handle holds.
                guard let process = ProcessHandle(pid: pid), getsid(pid) == recorder.pid,
                    leader?.isAlive == true || Self.isSame("/proc/\(pid)/cwd", files.directory), process.isAlive
                else { return nil }
                return process
            }
        return [leader].compactMap { $0 } + children
    }

    private static func isSame(_ link: String, _ directory: String) -> Bool {
        var target = stat()
        var own = stat()
        guard stat(link, &target) == 0, lstat(directory, &own) == 0 else { return false }
        return target.st_dev == own.st_dev && target.st_ino == own.st_ino
    }
}

/// Ends the recorders that an earlier run of the agent left.
struct LeftoverRecorders: Sendable {
    /// Of all recordings.
    let directory: String
    let pool: BlockingPool
    let clock: AgentClock
    let logger: Logger
    /// How long to wait after SIGKILL.
    let grace: Duration

    /// A recorder may start another program before SIGKILL reaches it.
    private static let passes = 3

    func end() async {
        guard let records = try? await pool.runToEnd({ [self] in read() }), !records.isEmpty else { return }
        for _ in 0..<Self.passes {
            let left = (try? await pool.runToEnd { records.flatMap { $0.record.processes(of: $0.files) } }) ?? []
            guard !left.isEmpty else { return }
            logger.notice(
                "ending recorders of an earlier run of the agent",
                metadata: ["pids": "\(left.map { "\($0.pid)" }.joined(separator: " "))"])
            // Not SIGINT: their files are removed.
            for process in left { process.signal(SIGKILL) }
            let deadline = clock.now() + grace
            while left.contains(where: \.isAlive), clock.now() < deadline {
                // Not our children, so their end has to be polled for.
                guard (try? await clock.sleep(.milliseconds(10))) != nil else { return }
            }
        }
    }

    /// The records of this boot; those that cannot be read are logged.
    private func read() -> [(files: RecordingFiles, record: RecorderRecord)] {
        // In a directory of another user's the records would be his as well.
        guard (try? requirePrivateDirectory(directory)) != nil else { return [] }
        return directoryEntries(directory).compactMap { name in
            let files = RecordingFiles(directory: "\(directory)/\(name)")
            do {
                return try RecorderRecord.read(of: files).map { (files, $0) }
            } catch {
                logger.warning(
                    "cannot read which recorder an earlier run of the agent left, so it is not ended if it still runs",
                    metadata: ["error": "\(error)"])
                return nil
            }
        }
    }
}
