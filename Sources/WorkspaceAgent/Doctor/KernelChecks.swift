import AgentCore
import ControlPlane
import Glibc

/// Limits and rights that the kernel gives the daemon and what it starts.
enum KernelChecks {
    /// Enough for one repository with as many directories as are watched at most, of half of which the daemon takes.
    static let wantedWatches = 16_384
    /// Enough for all clients that watch files (64), the git watcher, and other programs of the user.
    static let wantedInstances = 128
    static let wantedFiles: UInt64 = 4_096

    static func inotify(_ machine: DoctorMachine) -> DoctorCheck {
        let directory = "/proc/sys/fs/inotify"
        guard let watches = machine.number("\(directory)/max_user_watches"),
            let instances = machine.number("\(directory)/max_user_instances")
        else {
            return .warning(
                "inotify", "\(directory) cannot be read: repositories are polled and files not watched",
                fix: "use a kernel with inotify")
        }
        var findings = DoctorFindings()
        if watches < wantedWatches {
            findings.warning(
                "fs.inotify.max_user_watches is \(watches): of large repositories some are polled",
                fix: "as root: sysctl fs.inotify.max_user_watches=524288")
        }
        if instances < wantedInstances {
            findings.warning(
                "fs.inotify.max_user_instances is \(instances): not all clients can watch files at once",
                fix: "as root: sysctl fs.inotify.max_user_instances=\(wantedInstances * 4)")
        }
        findings.ok("\(watches) watches and \(instances) instances a user")
        return findings.check("inotify")
    }

    /// - Parameter hard: the limit to which the daemon raises its own.
    static func openFiles(hard: UInt64) -> DoctorCheck {
        guard hard < wantedFiles else { return .ok("open-files", hard == .max ? "unlimited" : "\(hard)") }
        return .warning(
            "open-files", "\(hard) open files at most: with many clients and processes new connections wait",
            fix: "raise the hard limit to \(wantedFiles) or more (LimitNOFILE= of systemd, ulimit -Hn, limits.conf)")
    }

    static func cgroup(_ machine: DoctorMachine) -> DoctorCheck {
        let reader = ResourceReader(root: machine.root)
        var findings = DoctorFindings()
        if let memory = reader.memory() {
            let text = "memory: \(ByteCount(UInt64(memory.used))) of \(ByteCount(UInt64(memory.total))) used"
            if isNearlyUsed(memory) {
                findings.warning(
                    "\(text): the kernel may kill processes soon", fix: "end what needs much, or raise the memory limit"
                )
            } else {
                findings.ok(text)
            }
        }
        if let tasks = reader.tasks() {
            let text = "processes and threads: \(tasks.used) of \(tasks.total)"
            if isNearlyUsed(tasks) {
                findings.warning(
                    "\(text): commands may not start soon", fix: "end what has many, or raise the limit (pids.max)")
            } else {
                findings.ok(text)
            }
        } else {
            findings.ok("no limit of processes")
        }
        return findings.check("cgroup")
    }

    private static func isNearlyUsed(_ usage: ResourceReader.Usage) -> Bool { usage.used >= usage.total / 10 * 9 }

    /// Bits of the effective capabilities (capabilities(7)).
    private enum Capability: UInt64 {
        case sysPtrace = 19
        case sysNice = 23
        case sysResource = 24
    }

    static func privileges(_ machine: DoctorMachine) -> DoctorCheck {
        let name = "ptrace-and-capabilities"
        guard let status = machine.text("/proc/self/status") else {
            return .error(name, "/proc/self/status cannot be read", fix: "mount proc on /proc")
        }
        func field(_ key: String) -> Substring {
            let line = status.split(separator: "\n").first { $0.hasPrefix("\(key):") }
            return line?.split(whereSeparator: { $0 == "\t" || $0 == " " }).last ?? ""
        }
        let capabilities = UInt64(field("CapEff"), radix: 16) ?? 0
        func has(_ capability: Capability) -> Bool { capabilities >> capability.rawValue & 1 == 1 }
        var findings = DoctorFindings()
        if let nice = machine.environment["CODER_PROC_NICE_SCORE"].flatMap({ Int($0) }), nice < 0, !has(.sysNice) {
            findings.warning(
                "CODER_PROC_NICE_SCORE=\(nice) cannot be applied without CAP_SYS_NICE: processes keep the daemon's "
                    + "niceness", fix: "give the daemon CAP_SYS_NICE, or choose a score of 0 or more")
        }
        let own = machine.number("/proc/self/oom_score_adj") ?? 0
        if let score = machine.environment["CODER_PROC_OOM_SCORE"].flatMap({ Int($0) }), score < own,
            !has(.sysResource)
        {
            findings.warning(
                "CODER_PROC_OOM_SCORE=\(score) is below the daemon's own \(own) and cannot be applied without "
                    + "CAP_SYS_RESOURCE", fix: "give the daemon CAP_SYS_RESOURCE, or choose a score of \(own) or more")
        }
        if field("NoNewPrivs") == "1" {
            findings.warning(
                "no_new_privs is set: sudo and other set-user-ID programs do not work in what the daemon starts",
                fix: "remove NoNewPrivileges= from the service, or allowPrivilegeEscalation: false from the container")
        }
        let scope = machine.number("/proc/sys/kernel/yama/ptrace_scope") ?? 0
        if scope == 3 || scope == 2 && !has(.sysPtrace) {
            findings.warning(
                "kernel.yama.ptrace_scope is \(scope): debuggers and strace cannot attach to processes",
                fix: scope == 3
                    ? "boot with another value: 3 cannot be changed" : "as root: sysctl kernel.yama.ptrace_scope=1")
        }
        findings.ok("ptrace_scope \(scope), seccomp \(field("Seccomp") == "0" ? "off" : "on")")
        return findings.check(name)
    }
}
