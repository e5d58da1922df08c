import AgentCore
import Glibc

/// Free space of the directories that the daemon writes to.
enum DiskChecks {
    /// A directory, and what it is for.
    struct Place: Sendable {
        var purpose: String
        var path: String
    }

    /// What statvfs(3) says that this user may still use.
    struct Space: Sendable, Equatable {
        /// Bytes.
        var free: UInt64
        /// Bytes.
        var total: UInt64
        /// Inodes.
        var freeFiles: UInt64
        /// Inodes; 0 where the file system has no limit.
        var totalFiles: UInt64
    }

    enum Reading: Sendable, Equatable {
        case space(Space)
        /// Why there is none.
        case failed(String)
        /// The mount does not answer.
        case hangs
    }

    /// A mount that takes longer does not answer.
    static let patience = Duration.seconds(2)
    static let scarceBytes: UInt64 = 1 << 30
    /// More than that is enough, however large the disk.
    static let ampleBytes: UInt64 = 10 << 30
    static let missingBytes: UInt64 = 100 << 20
    static let scarceFiles: UInt64 = 1_000
    /// Free parts of the whole, in percent.
    static let scarcePercent: UInt64 = 5

    static func check(_ places: [Place]) -> DoctorCheck {
        let readings = LeftBehind.run(
            atMost: patience, places.map { place in { @Sendable in read(place.path) } })
        return check(Array(zip(places, readings.map { $0 ?? .hangs })))
    }

    static func check(_ readings: [(Place, Reading)]) -> DoctorCheck {
        var findings = DoctorFindings()
        for (place, reading) in readings {
            let name = "\(place.purpose) \(place.path)"
            switch reading {
            case .hangs:
                findings.error(
                    "\(name): the file system does not answer",
                    fix: "mend the mount, or take it away with umount -f")
            case .failed(let reason): findings.error("\(name): \(reason)", fix: "make \(place.path) accessible")
            case .space(let space): judge(space, name, place.path, &findings)
            }
        }
        return findings.check("disk")
    }

    private static func judge(_ space: Space, _ name: String, _ path: String, _ findings: inout DoctorFindings) {
        let size = "\(ByteCount(space.free)) of \(ByteCount(space.total)) free"
        let room = "make room on the file system of \(path)"
        let files = "delete files that are not needed on the file system of \(path): it has no room for more of them"
        if space.free < missingBytes {
            findings.error("\(name): \(size)", fix: room)
        } else if space.free < scarceBytes || space.free < ampleBytes && isScarce(space.free, space.total) {
            findings.warning("\(name): \(size)", fix: room)
        } else {
            findings.ok("\(name): \(size)")
        }
        let inodes = "\(name): \(space.freeFiles) of \(space.totalFiles) inodes free"
        guard space.totalFiles > 0 else { return }
        if space.freeFiles == 0 {
            findings.error(inodes, fix: files)
        } else if space.freeFiles < scarceFiles || isScarce(space.freeFiles, space.totalFiles) {
            findings.warning(inodes, fix: files)
        }
    }

    private static func isScarce(_ free: UInt64, _ total: UInt64) -> Bool { free < total / 100 * scarcePercent }

    /// Blocks. Of a directory that is not there yet, the one in which it would be made.
    static func read(_ path: String) -> Reading {
        var info = statvfs()
        var place = path
        while statvfs(place, &info) != 0 {
            guard errno == ENOENT, place != "/", place.hasPrefix("/") else { return .failed(errnoText(errno)) }
            place = parentDirectory(of: place)
        }
        let size = UInt64(info.f_frsize)
        return .space(
            Space(
                free: UInt64(info.f_bavail).multipliedReportingOverflow(by: size).partialValue,
                total: UInt64(info.f_blocks).multipliedReportingOverflow(by: size).partialValue,
                freeFiles: UInt64(info.f_favail), totalFiles: UInt64(info.f_files)))
    }

    /// Where the daemon itself writes.
    static func places(_ settings: AgentConfiguration) -> [Place] {
        [
            Place(purpose: "state directory", path: settings.stateDirectory),
            Place(purpose: "log directory", path: settings.logDirectory),
        ]
    }

    /// The directory in which everything that outlives the daemon is.
    static func stateDirectory(_ path: String) -> DoctorCheck {
        let (name, fix) = ("state-directory", "chown and chmod 0700 \(path), or choose another --state-dir")
        var info = stat()
        guard lstat(path, &info) == 0 else {
            let number = errno
            guard number == ENOENT else { return .error(name, "\(path): \(errnoText(number))", fix: fix) }
            return absentStateDirectory(path)
        }
        do {
            try requirePrivateDirectory(path)
        } catch {
            return .error(name, "\(error)", fix: fix)
        }
        guard access(path, R_OK | W_OK | X_OK) == 0 else {
            return .error(name, "\(path) cannot be written: \(errnoText(errno))", fix: fix)
        }
        return .ok(name, "\(path) belongs to uid \(info.st_uid), mode 0\(String(info.st_mode & 0o7777, radix: 8))")
    }

    private static func absentStateDirectory(_ path: String) -> DoctorCheck {
        var parent = parentDirectory(of: path)
        while access(parent, F_OK) != 0, errno == ENOENT, parent != "/" { parent = parentDirectory(of: parent) }
        guard access(parent, W_OK | X_OK) == 0 else {
            return .error(
                "state-directory", "\(path) is not there, and \(parent) cannot be written: \(errnoText(errno))",
                fix: "make it with mode 0700, or choose another --state-dir")
        }
        return .ok("state-directory", "\(path) is made when the daemon starts")
    }
}

/// A size for people: `1.5 GiB`.
struct ByteCount: CustomStringConvertible {
    var bytes: UInt64
    init(_ bytes: UInt64) { self.bytes = bytes }

    var description: String {
        let units = ["KiB", "MiB", "GiB", "TiB"]
        guard let unit = (1...4).last(where: { bytes >> (10 * UInt64($0)) > 0 }) else { return "\(bytes) B" }
        let tenths = ((bytes >> (10 * UInt64(unit - 1))) * 10) >> 10
        return "\(tenths / 10).\(tenths % 10) \(units[unit - 1])"
    }
}
