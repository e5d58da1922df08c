import AgentCore
import Glibc

/// Mounts of what the kernel makes up, as /proc, or mounts when it is touched. There may be no end to what is in them,
/// and reading it may act or wait, so that a search goes into one only if its root lies in it.
struct KernelFileSystems: Sendable {
    private static let types: Set<String> = [
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl",
        "mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs",
    ]

    private let devices: Set<dev_t>

    init() { self.init(table: readTextFile("/proc/self/mountinfo") ?? "") }

    /// - Parameter table: as /proc/self/mountinfo has it (proc(5)).
    init(table: String) {
        var devices: Set<dev_t> = []
        for line in table.split(separator: "\n") {
            let fields = line.split(separator: " ")
            // Behind the sixth field come any number of others up to a dash; then the type.
            guard fields.count > 6, let dash = fields[6...].firstIndex(of: "-"), dash + 1 < fields.count,
                Self.types.contains(String(fields[dash + 1])), let device = Self.device(fields[2])
            else { continue }
            devices.insert(device)
        }
        self.devices = devices
    }

    func contain(_ device: dev_t) -> Bool { devices.contains(device) }

    /// The number that stat(2) has of `MAJOR:MINOR`.
    private static func device(_ text: Substring) -> dev_t? {
        let parts = text.split(separator: ":")
        guard parts.count == 2, let major = UInt32(parts[0]), let minor = UInt32(parts[1]) else { return nil }
        let high = dev_t(major & ~0xFFF) << 32 | dev_t(minor & ~0xFF) << 12
        return high | dev_t(major & 0xFFF) << 8 | dev_t(minor & 0xFF)
    }
}
