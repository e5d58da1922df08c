import Foundation
import Glibc

/// What /proc knows of a process.
public enum ProcFS {
    public static func exists(_ pid: pid_t) -> Bool { access("/proc/\(pid)", F_OK) == 0 }

    /// Whether it runs: there, and no zombie.
    public static func runs(_ pid: pid_t) -> Bool { state(pid).map { $0 != "Z" && $0 != "X" } ?? false }

    /// Whether anything of the process group runs.
    public static func runs(group: pid_t) -> Bool {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.contains { pid in
            guard let fields = fields(pid), fields.count > 2, pid_t(fields[2]) == group else { return false }
            return fields[0] != "Z" && fields[0] != "X"
        }
    }

    public static func threads(_ pid: pid_t) -> Int { entries("/proc/\(pid)/task") }

    public static func descriptors(_ pid: pid_t) -> Int { entries("/proc/\(pid)/fd") }

    public static func residentKiB(_ pid: pid_t) -> Int {
        status(pid, "VmRSS:").flatMap { Int($0.prefix { $0.isNumber }) } ?? 0
    }

    /// A field of /proc/PID/status, name and colon given, value trimmed.
    public static func status(_ pid: pid_t, _ field: String) -> String? {
        text("/proc/\(pid)/status").split(separator: "\n").first { $0.hasPrefix(field) }
            .map { $0.dropFirst(field.count).trimmingCharacters(in: .whitespaces) }
    }

    /// `R`, `S`, `T`, `Z` …; nil when there is no such process.
    public static func state(_ pid: pid_t) -> Character? { fields(pid)?.first?.first }

    /// Children of a process, zombies among them.
    public static func children(of parent: pid_t) -> [(pid: pid_t, isZombie: Bool)] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.compactMap { pid in
            guard let fields = fields(pid), fields.count > 1, pid_t(fields[1]) == parent else { return nil }
            return (pid, fields[0] == "Z")
        }
    }

    public static func text(_ path: String) -> String {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var area = [UInt8](repeating: 0, count: 16384)
        while case let n = read(descriptor, &area, area.count), n > 0 { bytes += area.prefix(n) }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The fields of /proc/PID/stat behind the name.
    public static func fields(_ pid: pid_t) -> [Substring]? {
        let text = text("/proc/\(pid)/stat")
        guard let end = text.lastIndex(of: ")") else { return nil }
        return text[text.index(after: end)...].split(separator: " ")
    }

    private static func entries(_ path: String) -> Int {
        (try? FileManager.default.contentsOfDirectory(atPath: path).count) ?? 0
    }
}
