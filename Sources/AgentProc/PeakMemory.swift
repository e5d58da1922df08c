import AgentCore
import CPlatform
import Glibc

/// The most memory that a process had.
enum PeakMemory {
    /// That of this process so far, in bytes; nil without /proc.
    static func ofThisProcess() -> Int64? { readTextFile("/proc/self/status").flatMap(parse) }

    /// Has that of this process begin anew with what it has now, so that little is borrowed. Nothing happens where /proc is
    /// read-only.
    static func forgetThatOfThisProcess() {
        let file = wa_open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC, 0)
        guard file >= 0 else { return }
        // Only the peak, see proc(5).
        _ = "5".withCString { write(file, $0, 1) }
        close(file)
    }

    /// - Parameter status: as /proc/PID/status has it (proc(5)).
    static func parse(_ status: String) -> Int64? {
        for line in status.utf8.split(separator: UInt8(ascii: "\n")) where line.starts(with: "VmHWM:".utf8) {
            let number = line.dropFirst("VmHWM:".utf8.count).split(whereSeparator: { $0 == 0x20 || $0 == 0x09 }).first
            return number.flatMap { Int64(String(Substring($0))) }.map { $0 * 1_024 }
        }
        return nil
    }

    /// What a program took itself.
    /// - Parameters:
    ///   - reported: the kernel's figure, which is that of the program or of what it borrowed, whichever is more.
    ///   - borrowed: our own peak, read after the program began.
    /// - Returns: nil when the figure may be ours. The kernel's counters lag behind by some pages of each core, so it has
    ///   to be above ours by an eighth.
    static func ofProgram(reported: Int64, borrowed: Int64?) -> Int64? {
        guard let borrowed, reported > borrowed + borrowed / 8 else { return nil }
        return reported
    }
}
