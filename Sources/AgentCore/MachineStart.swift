import Glibc

/// Which start of the machine, or of the container, this is: what was true before another one is over.
package enum MachineStart {
    /// A text without line breaks: the kernel's boot, and the first process of this pid namespace, which a container's
    /// start makes anew. Blocks on /proc.
    package static func identity() -> String {
        let boot = readTextFile("/proc/sys/kernel/random/boot_id") ?? ""
        var name = [CChar](repeating: 0, count: 64)
        let length = readlink("/proc/self/ns/pid", &name, name.count)
        let namespace = String(decoding: name.prefix(max(0, length)).map(UInt8.init(bitPattern:)), as: UTF8.self)
        return [String(boot.prefix { !$0.isNewline }), namespace, firstProcess].joined(separator: " ")
    }

    /// When pid 1 started, in the kernel's ticks; empty where it is hidden from us (hidepid).
    private static var firstProcess: String {
        guard let stat = readTextFile("/proc/1/stat"), let name = stat.lastIndex(of: ")") else { return "" }
        // proc(5): the 22nd field; two are in front of what follows the name.
        let fields = stat[stat.index(after: name)...].split(separator: " ")
        return fields.count > 19 ? String(fields[19]) : ""
    }
}
