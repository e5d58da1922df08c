import Glibc

/// Reads how much memory and disk there is. Blocks; call it on a `BlockingPool`.
package struct ResourceReader: Sendable {
    package struct Usage: Sendable, Equatable {
        /// Bytes.
        package var used: Int64
        /// Bytes.
        package var total: Int64

        package init(used: Int64, total: Int64) { (self.used, self.total) = (used, total) }
    }

    /// Where `/proc` and `/sys` are; another directory in tests.
    let root: String

    package init(root: String = "") { self.root = root }

    /// Memory of the tightest cgroup that limits us, else of the machine. What the kernel could drop
    /// at once (inactive file pages) does not count as used.
    package func memory() -> Usage? {
        let machine = meminfo()
        let tightest = tightest("memory", .memory, .memory1)
        // "No limit" is a number larger than any machine in version 1.
        if let tightest, tightest.total < machine?.total ?? .max { return tightest }
        return machine
    }

    /// How many processes and threads there are and may be, by the tightest cgroup that limits them; nil without one.
    package func tasks() -> Usage? {
        let files = Files(limit: "pids.max", usage: "pids.current")
        return tightest("pids", files, files)
    }

    /// What `df` says of the file system at the path.
    /// - Returns: nil when there is none; `errno` then says why.
    package func volume(_ path: String) -> Usage? {
        var info = statvfs()
        guard statvfs(root + path, &info) == 0 else { return nil }
        let (blocks, free, size) = (UInt64(info.f_blocks), UInt64(info.f_bfree), UInt64(info.f_frsize))
        return Usage(used: Self.bytes(blocks - min(free, blocks), size), total: Self.bytes(blocks, size))
    }

    /// The names of a controller's files in a cgroup.
    struct Files {
        var limit: String
        var usage: String
        /// The key of memory.stat for what the kernel could drop at once.
        var cache: String?

        static let memory = Files(limit: "memory.max", usage: "memory.current", cache: "inactive_file")
        /// In version 1.
        static let memory1 = Files(
            limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache: "total_inactive_file")
    }

    /// - Parameters:
    ///   - new: in version 2 of cgroups.
    ///   - old: in version 1.
    func tightest(_ controller: Substring, _ new: Files, _ old: Files) -> Usage? {
        let groups = text("/proc/self/cgroup") ?? ""
        var tightest: Usage?
        for line in groups.split(separator: "\n") {
            // hierarchy:controllers:path; hierarchy 0 without controllers is version 2.
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            let found: Usage? =
                if parts[1].isEmpty {
                    limit("/sys/fs/cgroup", parts[2], new)
                } else if parts[1].split(separator: ",").contains(controller) {
                    limit("/sys/fs/cgroup/\(controller)", parts[2], old)
                } else {
                    nil
                }
            if let found, found.total < tightest?.total ?? .max { tightest = found }
        }
        return tightest
    }

    /// The tightest limit on the way from our group to the root: a limit binds all below it. In a
    /// container the path is often not there, and the root is our group.
    private func limit(_ mount: String, _ group: Substring, _ files: Files) -> Usage? {
        var path = group == "/" ? "" : String(group)
        var tightest: Usage?
        while true {
            let directory = mount + path
            if let limit = number(text("\(directory)/\(files.limit)")), limit > 0, limit < tightest?.total ?? .max,
                let used = used(files, in: directory)
            {
                tightest = Usage(used: used, total: limit)
            }
            guard let slash = path.lastIndex(of: "/") else { return tightest }
            path = String(path[..<slash])
        }
    }

    /// What a group uses.
    func used(_ files: Files, in directory: String) -> Int64? {
        guard let usage = number(text("\(directory)/\(files.usage)")) else { return nil }
        let cache = files.cache.flatMap { value($0, in: text("\(directory)/memory.stat") ?? "") } ?? 0
        return max(0, usage - min(usage, cache))
    }

    func meminfo() -> Usage? {
        guard let text = text("/proc/meminfo"), let total = value("MemTotal:", in: text),
            let available = value("MemAvailable:", in: text)
        else { return nil }
        func bytes(_ kibibytes: Int64) -> Int64 { Self.bytes(UInt64(max(0, kibibytes)), 1024) }
        return Usage(used: max(0, bytes(total) - bytes(available)), total: bytes(total))
    }

    /// The number after a key at the start of a line.
    func value(_ key: String, in text: String) -> Int64? {
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ", omittingEmptySubsequences: true)
            if words.count >= 2, words[0] == key { return Int64(words[1]) }
        }
        return nil
    }

    func number(_ text: String?) -> Int64? {
        // `max` is no number, and neither is a limit past 2^63.
        text.flatMap { Int64($0.prefix { $0.isNumber }) }
    }

    private static func bytes(_ count: UInt64, _ size: UInt64) -> Int64 {
        let (product, overflow) = count.multipliedReportingOverflow(by: size)
        return overflow ? .max : Int64(clamping: product)
    }

    /// The first 64 KiB of a file; nil when it cannot be read.
    func text(_ path: String) -> String? {
        let descriptor = open(root + path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        var length = 0
        while length < buffer.count {
            let (start, room) = (length, buffer.count - length)
            let count = buffer.withUnsafeMutableBytes { bytes in
                read(descriptor, bytes.baseAddress.map { $0 + start }, room)
            }
            if count < 0 { return nil }
            if count == 0 { break }
            length += count
        }
        return String(decoding: buffer[..<length], as: UTF8.self)
    }
}
