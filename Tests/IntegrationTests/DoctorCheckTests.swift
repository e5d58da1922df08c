import AgentCore
import AgentTestSupport
import Foundation
import GitCredentials
import Synchronization
import Testing

@testable import WorkspaceAgent

/// The checks of `doctor` on machines that are made up: each is seen to fail, and mended.
@Suite("Doctor: checks", .blocking) struct DoctorCheckTests {
    /// A directory with files in the place of /proc, /sys and PATH.
    private struct Fake {
        let directory: TemporaryDirectory
        var environment: [String: String] = [:]

        init() throws {
            directory = try TemporaryDirectory()
            environment["PATH"] = "\(directory.path)/bin"
        }

        var machine: DoctorMachine { DoctorMachine(environment: environment, root: directory.path) }

        func write(_ path: String, _ text: String, mode: mode_t = 0o644) throws {
            let file = "\(directory.path)\(path)"
            try FileManager.default.createDirectory(
                atPath: parentDirectory(of: file), withIntermediateDirectories: true)
            try Data(text.utf8).write(to: URL(fileURLWithPath: file))
            chmod(file, mode)
        }

        func program(_ name: String, _ script: String) throws {
            try write("/text", "#!/bin/sh\n\(script)\n")
            try write("/bin/\(name)", "")
            // Of a file that this process writes, a child that another test starts has a descriptor for a moment, and
            // the kernel runs no program that is open for writing.
            let copy = try CommandResult.of(
                ["install", "-m", "755", "\(directory.path)/text", "\(directory.path)/bin/\(name)"])
            try #require(copy.code == 0, "\(copy.errors)")
        }
    }

    @Test func inotify() throws {
        let fake = try Fake()
        #expect(KernelChecks.inotify(fake.machine).status == .warning, "no inotify at all")
        try fake.write("/proc/sys/fs/inotify/max_user_watches", "8192\n")
        try fake.write("/proc/sys/fs/inotify/max_user_instances", "128\n")
        let few = KernelChecks.inotify(fake.machine)
        #expect(few.status == .warning && few.detail.contains("max_user_watches is 8192"))
        #expect(few.fix?.contains("sysctl fs.inotify.max_user_watches=524288") == true)
        try fake.write("/proc/sys/fs/inotify/max_user_watches", "524288\n")
        #expect(KernelChecks.inotify(fake.machine) == .ok("inotify", "524288 watches and 128 instances a user"))
        try fake.write("/proc/sys/fs/inotify/max_user_instances", "16\n")
        #expect(KernelChecks.inotify(fake.machine).fix?.contains("max_user_instances=512") == true)
    }

    @Test func cgroup() throws {
        let fake = try Fake()
        let group = "/sys/fs/cgroup/workspace"
        try fake.write("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
        #expect(
            KernelChecks.cgroup(fake.machine) == .ok("cgroup", "memory: 4.0 GiB of 8.0 GiB used; no limit of processes")
        )
        try fake.write("/proc/self/cgroup", "0::/workspace\n")
        try fake.write("\(group)/memory.max", "1073741824\n")
        try fake.write("\(group)/memory.current", "1063741824\n")
        try fake.write("\(group)/memory.stat", "inactive_file 0\n")
        try fake.write("\(group)/pids.max", "100\n")
        try fake.write("\(group)/pids.current", "95\n")
        let full = KernelChecks.cgroup(fake.machine)
        #expect(full.status == .warning)
        #expect(full.detail.contains("memory: 1014.4 MiB of 1.0 GiB used: the kernel may kill"))
        #expect(full.detail.contains("processes and threads: 95 of 100: commands may not start soon"))
        try fake.write("\(group)/memory.stat", "inactive_file 1000000000\n")
        try fake.write("\(group)/pids.max", "max\n")
        #expect(KernelChecks.cgroup(fake.machine).status == .ok)
    }

    @Test func privileges() throws {
        var fake = try Fake()
        #expect(KernelChecks.privileges(fake.machine).status == .error, "no /proc")
        func status(_ capabilities: String, noNewPrivileges: Int = 0) -> String {
            "Name:\tx\nCapEff:\t\(capabilities)\nNoNewPrivs:\t\(noNewPrivileges)\nSeccomp:\t2\n"
        }
        try fake.write("/proc/self/status", status("0000000000000000"))
        #expect(KernelChecks.privileges(fake.machine).status == .ok)
        fake.environment["CODER_PROC_NICE_SCORE"] = "-5"
        fake.environment["CODER_PROC_OOM_SCORE"] = "-100"
        let weak = KernelChecks.privileges(fake.machine)
        #expect(weak.status == .warning)
        #expect(weak.detail.contains("CODER_PROC_NICE_SCORE=-5 cannot be applied without CAP_SYS_NICE"))
        #expect(weak.detail.contains("CODER_PROC_OOM_SCORE=-100 is below"))
        // Bits 23 and 24.
        try fake.write("/proc/self/status", status("0000000001800000"))
        #expect(KernelChecks.privileges(fake.machine).status == .ok)
        try fake.write("/proc/sys/kernel/yama/ptrace_scope", "2\n")
        #expect(KernelChecks.privileges(fake.machine).fix == "as root: sysctl kernel.yama.ptrace_scope=1")
        try fake.write("/proc/sys/kernel/yama/ptrace_scope", "1\n")
        #expect(KernelChecks.privileges(fake.machine).status == .ok)
        try fake.write("/proc/self/status", status("0000000001800000", noNewPrivileges: 1))
        #expect(KernelChecks.privileges(fake.machine).detail.contains("sudo"))
    }

    @Test func openFiles() {
        #expect(KernelChecks.openFiles(hard: 1_024).status == .warning)
        #expect(KernelChecks.openFiles(hard: 4_096).status == .ok)
        #expect(KernelChecks.openFiles(hard: .max) == .ok("open-files", "unlimited"))
    }

    @Test func git() throws {
        let fake = try Fake()
        #expect(ProgramChecks.git(fake.machine).detail.contains("no git on PATH"))
        try fake.program("git", "echo git version 2.25.1")
        let old = ProgramChecks.git(fake.machine)
        #expect(old.status == .warning && old.fix == "install git 2.34 or newer")
        try fake.program("git", "echo git version 2.34.0.windows.1")
        #expect(ProgramChecks.git(fake.machine).status == .ok)
        try fake.program("git", "exit 1")
        #expect(ProgramChecks.git(fake.machine).status == .error)
        // Killed when it takes too long: it would not end by itself.
        try fake.program("git", "exec /usr/bin/tail -f /dev/null")
        #expect(ProgramChecks.git(fake.machine).status == .error)
    }

    @Test func whatAPortableProgramFinds() {
        #expect(BundleChecks.bundle().isEmpty, "the plain program is in none")
        #expect(BundleChecks.certificates(nil, bundle: nil).status == .warning)
        #expect(BundleChecks.certificates("/etc/x", bundle: "/b") == .ok("ca-store", "/etc/x"))
        #expect(BundleChecks.certificates("/b/lib/x", bundle: "/b").detail.hasPrefix("the bundle's"))
        let account = UserAccount(name: "me", home: "/", shell: "/bin/sh")
        #expect(BundleChecks.user(account, nameService: "").status == .ok)
        let unknown = BundleChecks.user(nil, nameService: "passwd: files sss [NOTFOUND=return] ldap\n")
        #expect(unknown.status == .warning && !unknown.detail.contains("sss"), "the plain program asks these")
        let portable = BundleChecks.user(nil, nameService: "passwd:\tfiles sss\n", bundle: "/b")
        #expect(portable.detail.contains("a portable program cannot ask sss"), "\(portable)")
        #expect(!BundleChecks.user(nil, nameService: "passwd: files\n", bundle: "/b").detail.contains("ask"))
    }

    @Test func gitSSHNamesTheClient() throws {
        let fake = try Fake()
        try fake.program("ssh", "echo OpenSSH_9.9 >&2")
        let own = ProgramChecks.gitSSH(fake.machine, client: .find(environment: fake.environment))
        #expect(own == .ok("git-ssh", "OpenSSH's client at \(fake.directory.path)/bin/ssh (OpenSSH_9.9)"))
        let library = ProgramChecks.gitSSH(fake.machine, client: .libssh2(version: "1.11.0"))
        #expect(library.status == .ok && library.detail.contains("libssh2 1.11.0"))
        let none = ProgramChecks.gitSSH(fake.machine, client: .none(reason: "no libssh2"))
        #expect(none.status == .warning && none.fix?.contains("openssh-client") == true)
    }

    @Test func desktopPrograms() throws {
        let fake = try Fake()
        let scripts = "\(fake.directory.path)/scripts"
        #expect(ProgramChecks.desktop(fake.machine, scripts: scripts).status == .warning)
        #expect(ProgramChecks.xvnc(fake.machine, hasDesktop: false).status == .ok)
        #expect(ProgramChecks.xvnc(fake.machine, hasDesktop: true).status == .warning)
        #expect(ProgramChecks.ffmpeg(fake.machine).status == .warning)
        #expect(ProgramChecks.novnc(directory: fake.directory.path).fix?.contains("--novnc-dir") == true)
        try fake.write("/scripts/portabledesktop", "", mode: 0o755)
        try fake.program("Xvnc", "")
        try fake.program("ffmpeg", "")
        try fake.write("/core/rfb.js", "")
        #expect(ProgramChecks.desktop(fake.machine, scripts: scripts).status == .ok)
        #expect(ProgramChecks.xvnc(fake.machine, hasDesktop: true).status == .ok)
        #expect(ProgramChecks.ffmpeg(fake.machine).status == .ok)
        #expect(ProgramChecks.novnc(directory: fake.directory.path).status == .ok)
        #expect(ProgramChecks.desktopLibraries(missing: ["libpng16-16"]).fix == "apt install libpng16-16")
        #expect(ProgramChecks.libgit2(problem: "libgit2.so.1.5: no such file").status == .warning)
        #expect(ProgramChecks.sqlite(problem: nil) == .ok("sqlite", "it can be loaded"))
        #expect(ProgramChecks.sqlite(problem: "no such file").fix?.contains("apt install libsqlite3-0") == true)
    }

    @Test func shell() {
        #expect(ProgramChecks.shell(login: nil).status == .warning)
        #expect(ProgramChecks.shell(login: "/nonexistent/zsh").detail.contains("/nonexistent/zsh cannot be run"))
        #expect(ProgramChecks.shell(login: "/bin/sh").status == .ok)
    }

    @Test func disk() {
        typealias Space = DiskChecks.Space
        let (gib, place) = (UInt64(1) << 30, DiskChecks.Place(purpose: "state directory", path: "/s"))
        func status(_ free: UInt64, of total: UInt64, files: UInt64 = 0, of allFiles: UInt64 = 0) -> DoctorCheck.Status
        {
            let space = Space(free: free, total: total, freeFiles: files, totalFiles: allFiles)
            return DiskChecks.check([(place, .space(space))]).status
        }
        #expect(status(20 * gib, of: 100 * gib) == .ok)
        #expect(status(4 * gib, of: 100 * gib) == .warning)
        #expect(status(20 * gib, of: 1_000 * gib) == .ok, "enough, however large the disk")
        #expect(status(gib - 1, of: 2 * gib) == .warning)
        #expect(status(100 << 20, of: 2 * gib) == .warning)
        #expect(status(100 << 20 - 1, of: 2 * gib) == .error)
        #expect(status(20 * gib, of: 40 * gib, files: 0, of: 10) == .error)
        #expect(status(20 * gib, of: 40 * gib, files: 900, of: 10_000) == .warning)
        #expect(status(20 * gib, of: 40 * gib, files: 40_000, of: 1_000_000) == .warning)
        #expect(status(20 * gib, of: 40 * gib, files: 400_000, of: 1_000_000) == .ok)
        let check = DiskChecks.check([(place, .hangs), (place, .failed("Not a directory"))])
        #expect(check.status == .error && check.detail.contains("does not answer"))
    }

    @Test func stateDirectory() throws {
        let directory = try TemporaryDirectory()
        #expect(DiskChecks.stateDirectory("\(directory.path)/a/b").detail.hasSuffix("is made when the daemon starts"))
        #expect(DiskChecks.stateDirectory(directory.path).status == .ok)
        chmod(directory.path, 0o770)
        let open = DiskChecks.stateDirectory(directory.path)
        #expect(open.status == .error && open.fix?.contains("chmod 0700 \(directory.path)") == true)
        chmod(directory.path, 0o700)
        #expect(DiskChecks.stateDirectory(directory.path).status == .ok)
        #expect(DiskChecks.stateDirectory("/dev/null").detail.contains("is not a directory"))
        guard Privileges.isRoot else { return }
        chown(directory.path, Privileges.nobody, Privileges.nobody)
        #expect(DiskChecks.stateDirectory(directory.path).detail.contains("belongs to uid \(Privileges.nobody)"))
    }

    @Test func clock() {
        // As `date -u -d @784111777` has it.
        let date = "Sun, 06 Nov 1994 08:49:37 GMT"
        #expect(ControlPlaneChecks.seconds(ofHTTPDate: date) == 784_111_777)
        func status(_ skew: Int) -> DoctorCheck.Status {
            ControlPlaneChecks.clock(date, now: 784_111_777 + skew).status
        }
        #expect(status(-30) == .ok && status(30) == .ok)
        #expect(status(31) == .warning && status(-300) == .warning)
        #expect(status(301) == .error && status(-4_000) == .error)
        #expect(ControlPlaneChecks.clock(date, now: 784_111_000).detail.hasPrefix("this machine is 777 s behind"))
        for wrong in [
            "", "now", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 99 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 x GMT",
        ] {
            #expect(ControlPlaneChecks.clock(wrong, now: 0).status == .ok, "\(wrong)")
        }
    }

    @Test func theTableShowsWhatIsWrongAndNoControlCharacters() {
        let checks: [DoctorCheck] = [
            .ok("git", "git version 2"), .error("token", "a\u{1B}[2Jb\nc", fix: "mend\u{7}it"),
        ]
        #expect(
            DoctorCommand.lines(checks, colours: false) == [
                "ok       git    git version 2", "error    token  a\u{241B}[2Jb c", "    fix: mend\u{2407}it",
            ])
        #expect(DoctorCommand.lines(checks, colours: true).first?.hasPrefix("\u{1B}[32mok     \u{1B}[0m") == true)
    }
}

/// What /healthz says of disks.
@Suite("Disk health", .blocking) struct DiskHealthTests {
    private let clock = ManualClock()

    /// A file system that answers when it is told to.
    private final class Disk: Sendable {
        let looks = Atomic(0)
        let answers = DispatchSemaphore(value: 0)
        let free = Atomic<UInt64>(20 << 30)

        func read() -> DiskChecks.Reading {
            looks.add(1, ordering: .sequentiallyConsistent)
            answers.wait()
            let free = free.load(ordering: .sequentiallyConsistent)
            return .space(.init(free: free, total: 40 << 30, freeFiles: 0, totalFiles: 0))
        }
    }

    @Test func itIsLookedAtWhenAskedAndOnceAMinute() async throws {
        let disk = Disk()
        disk.free.store(0, ordering: .sequentiallyConsistent)
        let health = DiskHealth([.init(purpose: "state directory", path: "/s")], clock: AgentClock(clock)) { _ in
            disk.read()
        }
        #expect(health.report() == nil, "nothing is known yet")
        disk.answers.signal()
        try await eventually("the first look is over") { health.report() != nil }
        #expect(health.report()?.degrades == true)
        #expect(health.report()?.text.contains("state directory /s: 0 B of 40.0 GiB free; make room") == true)
        #expect(disk.looks.load(ordering: .sequentiallyConsistent) == 1)
        disk.free.store(20 << 30, ordering: .sequentiallyConsistent)
        disk.answers.signal()
        clock.advance(by: .seconds(59))
        _ = health.report()
        #expect(disk.looks.load(ordering: .sequentiallyConsistent) == 1)
        clock.advance(by: .seconds(1))
        try await eventually("there is room again") { health.report() == nil }
        #expect(disk.looks.load(ordering: .sequentiallyConsistent) == 2)
    }

    @Test func oneThatHangsIsAskedOnce() async throws {
        let disk = Disk()
        let health = DiskHealth([.init(purpose: "log directory", path: "/l")], clock: AgentClock(clock)) { _ in
            disk.read()
        }
        try await eventually("it is asked") { disk.looks.load(ordering: .sequentiallyConsistent) == 1 }
        clock.advance(by: .seconds(2))
        #expect(health.report()?.text.contains("log directory /l: the file system does not answer") == true)
        clock.advance(by: .seconds(600))
        #expect(health.report()?.degrades == true)
        #expect(disk.looks.load(ordering: .sequentiallyConsistent) == 1)
        disk.answers.signal()
        disk.answers.signal()
        try await eventually("it answers again") { health.report() == nil }
    }

    @Test func whatIsScarceDegradesNothing() async throws {
        let disk = Disk()
        disk.free.store(500 << 20, ordering: .sequentiallyConsistent)
        disk.answers.signal()
        let health = DiskHealth([.init(purpose: "log directory", path: "/l")], clock: AgentClock(clock)) { _ in
            disk.read()
        }
        try await eventually("it is looked at") { health.report() != nil }
        #expect(health.report()?.degrades == false)
    }
}
