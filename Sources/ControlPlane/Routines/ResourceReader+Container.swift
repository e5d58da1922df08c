import AgentCore
import Glibc

/// What `stat` shows: of the machine, and of the container that this process is in.
extension ResourceReader {
    /// How much is used of something; `total` is nil without a limit.
    package struct Amount: Sendable, Equatable {
        package var used: Double
        package var total: Double?

        package init(used: Double, total: Double?) { (self.used, self.total) = (used, total) }

        package init(_ usage: Usage) { self.init(used: Double(usage.used), total: Double(usage.total)) }
    }

    // MARK: Memory, in bytes

    /// All memory but what the kernel calls available.
    package func machineMemory() -> Amount? { meminfo().map { Amount($0) } }

    /// The container's: of the tightest limit that binds it, else of its own group.
    package func containerMemory() -> Amount? {
        // "No limit" is a number larger than any machine in version 1.
        if let tightest = tightest("memory", .memory, .memory1), tightest.total <= meminfo()?.total ?? .max {
            return Amount(tightest)
        }
        guard let group = containerGroup("memory") else { return nil }
        return used(group.isVersion2 ? .memory : .memory1, in: group.directory).map {
            Amount(used: Double($0), total: nil)
        }
    }

    // MARK: Processors, in cores

    /// What was consumed up to one moment. Two of them give the use between.
    package struct ProcessorSample: Sendable {
        /// Time in which a core worked. In clock ticks for a machine, in seconds for a container.
        var busy: Double
        /// The time of all cores together, in the same unit; nil where a clock measures it.
        var all: Double?
        var at: Duration
        package var cores: Double?
    }

    package func machineProcessors(at time: Duration) -> ProcessorSample? {
        guard let text = text("/proc/stat") else { return nil }
        let lines = text.split(separator: "\n").filter { $0.hasPrefix("cpu") }
        guard let all = lines.first, all.hasPrefix("cpu ") else { return nil }
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice already.
        let ticks = all.split(separator: " ").dropFirst().prefix(8).compactMap { Double($0) }
        guard ticks.count >= 4, lines.count > 1 else { return nil }
        let sum = ticks.reduce(0, +)
        let idle = ticks[3] + (ticks.count > 4 ? ticks[4] : 0)
        return ProcessorSample(busy: sum - idle, all: sum, at: time, cores: Double(lines.count - 1))
    }

    package func containerProcessors(at time: Duration) -> ProcessorSample? {
        guard let group = containerGroup("cpuacct") else { return nil }
        let seconds: Double?
        if group.isVersion2 {
            seconds = text("\(group.directory)/cpu.stat").flatMap { value("usage_usec", in: $0) }.map {
                Double($0) / 1e6
            }
        } else {
            seconds = number(text("\(group.directory)/cpuacct.usage")).map { Double($0) / 1e9 }
        }
        return seconds.map { ProcessorSample(busy: $0, all: nil, at: time, cores: coreLimit()) }
    }

    /// The cores that were busy on average between two samples.
    package static func cores(from first: ProcessorSample, to second: ProcessorSample) -> Amount {
        let busy = max(0, second.busy - first.busy)
        var used = 0.0
        if let (from, to) = first.all.flatMap({ from in second.all.map { (from, $0) } }) {
            // All cores together make the whole, whatever the length of a tick.
            if to > from { used = min(1, busy / (to - from)) * (second.cores ?? 1) }
        } else if second.at > first.at {
            used = busy / ((second.at - first.at) / .seconds(1))
        }
        return Amount(used: used, total: second.cores)
    }

    /// The tightest limit of the groups that we are in; nil without one.
    private func coreLimit() -> Double? {
        func share(_ quota: Substring?, _ period: Substring?) -> Double? {
            guard let quota = quota.flatMap({ Double($0) }), let period = period.flatMap({ Double($0) }), quota > 0,
                period > 0
            else { return nil }
            return quota / period
        }
        return groups("cpu").compactMap { directory, isVersion2 -> Double? in
            if isVersion2 {
                let words = text("\(directory)/cpu.max")?.split { $0 == " " || $0 == "\n" } ?? []
                return words.count == 2 ? share(words[0], words[1]) : nil
            }
            func first(_ name: String) -> Substring? {
                text("\(directory)/cpu.cfs_\(name)")?.split(separator: "\n").first
            }
            return share(first("quota_us"), first("period_us"))
        }.min()
    }

    // MARK: The container

    /// Files that container engines leave in what they start.
    private static let marks = [
        "/.dockerenv", "/run/.containerenv", "/run/systemd/container", "/var/run/secrets/kubernetes.io",
    ]
    /// Parts of the names that container engines give to control groups.
    private static let engines = [
        "/docker/", "/docker-", "/kubepods", "/libpod", "/lxc/", "/lxc.payload", "/crio-", "/cri-containerd", "/ecs/",
        "/buildkit/", "/garden/", "/machine.slice/",
    ]

    /// Whether this process runs in a container: an engine left its mark, the control groups that it sees are not the
    /// machine's, or its root is the layered file system of an image.
    package func isInContainer() -> Bool {
        if Self.marks.contains(where: { access(root + $0, F_OK) == 0 }) || isNamespaceRoot { return true }
        if let groups = text("/proc/1/cgroup"), Self.engines.contains(where: { groups.contains($0) }) { return true }
        if let environment = text("/proc/1/environ"),
            environment.split(separator: "\0").contains(where: { $0.hasPrefix("container=") })
        {
            return true
        }
        return (text("/proc/self/mounts") ?? "").split(separator: "\n").contains { line in
            let words = line.split(separator: " ")
            return words.count > 2 && words[1] == "/" && ["overlay", "aufs"].contains(words[2])
        }
    }

    /// Every group has a type but the kernel's own root.
    private var isNamespaceRoot: Bool { access("\(root)/sys/fs/cgroup/cgroup.type", F_OK) == 0 }

    /// The directory of the container's own group. In a container with a namespace of groups that is the root; the path
    /// that the kernel names is often not there otherwise, and the root is what the engine mounted for us.
    private func containerGroup(_ controller: String) -> (directory: String, isVersion2: Bool)? {
        let groups = groups(controller)
        guard let root = groups.last else { return nil }
        if root.isVersion2, isNamespaceRoot { return root }
        return groups.first { access(self.root + $0.directory, F_OK) == 0 }
    }

    /// Our groups that may account for a controller, the innermost first.
    private func groups(_ controller: String) -> [(directory: String, isVersion2: Bool)] {
        var version2: [(directory: String, isVersion2: Bool)] = []
        for line in (text("/proc/self/cgroup") ?? "").split(separator: "\n") {
            // hierarchy:controllers:path; hierarchy 0 without controllers is version 2.
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            let isVersion2 = parts[1].isEmpty
            guard isVersion2 || parts[1].split(separator: ",").contains(controller[...]) else { continue }
            let mount = isVersion2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/\(controller)"
            var directories: [(directory: String, isVersion2: Bool)] = []
            var path = parts[2] == "/" ? "" : parts[2]
            while true {
                directories.append((mount + path, isVersion2))
                guard let slash = path.lastIndex(of: "/") else { break }
                path = path[..<slash]
            }
            if !isVersion2 { return directories }
            version2 = directories
        }
        return version2
    }
}
