import AgentCore
import BoundaryLog
import Desktop
import GitCredentials
import GitWatch
import Glibc
import WorkspaceScripts

/// All checks, run at once: none waits for another, and one that hangs is left behind.
struct DoctorChecks {
    /// Of all of them; less than the 10 s that the command may take.
    static let patience = Duration.seconds(7)

    /// Checks that are made together, one after the other.
    private struct Group: Sendable {
        /// What is reported of when it takes too long.
        var name: String
        var run: @Sendable () -> [DoctorCheck]

        init(_ name: String, _ run: @escaping @Sendable () -> [DoctorCheck]) { (self.name, self.run) = (name, run) }
        /// A single one.
        init(one name: String, _ run: @escaping @Sendable () -> DoctorCheck) { self.init(name) { [run()] } }
    }

    private let settings: AgentConfiguration
    private let machine: DoctorMachine

    init(_ settings: AgentConfiguration) {
        self.settings = settings
        machine = DoctorMachine(environment: settings.environment)
    }

    /// In the order in which they are shown. Blocks for at most ``patience``.
    func run() -> [DoctorCheck] {
        let groups = daemon + programs + desktop + kernel
        let results = LeftBehind.run(atMost: Self.patience, groups.map(\.run))
        return zip(groups, results).flatMap { group, result in
            result ?? [
                .error(
                    group.name, "no result within \(Self.patience.components.seconds) s",
                    fix: "look for a file system or a server that does not answer")
            ]
        }
    }

    private var daemon: [Group] {
        [
            Group(one: "http-socket") { [settings] in SocketChecks.http(settings.httpSocket) },
            Group(one: "agent-socket") { [settings] in SocketChecks.agent(settings.agentSocket) },
            Group(one: "boundary-socket") { [settings] in SocketChecks.boundary(settings.boundarySocket) },
            Group("control-plane-url") { [settings] in
                ControlPlaneChecks.all(settings.link, settings.environment)
            },
            Group("tailnet") { [settings] in TailnetCheck.all(settings) },
            Group("wireguard") { [settings] in WireGuardCheck.all(settings.wireGuardFile) },
            Group(one: "state-directory") { [settings] in DiskChecks.stateDirectory(settings.stateDirectory) },
            Group(one: "disk") { [settings] in
                DiskChecks.check(
                    DiskChecks.places(settings)
                        + [.init(purpose: "TMPDIR", path: settings.environment["TMPDIR"] ?? "/tmp")])
            },
        ]
    }

    private var programs: [Group] {
        [
            Group(one: "git") { [machine] in ProgramChecks.git(machine) },
            Group(one: "git-ssh") { [machine] in
                ProgramChecks.gitSSH(machine, client: .find(environment: machine.environment))
            },
            Group(one: "libgit2") { ProgramChecks.libgit2(problem: GitLibrary.problem) },
            Group(one: "sqlite") { ProgramChecks.sqlite(problem: SQLiteLibrary.problem) },
            Group("bundle") { BundleChecks.bundle() },
            Group(one: "ca-store") { BundleChecks.certificates(CertificateStore.find(), bundle: OwnProgram.bundle) },
            Group(one: "user-lookup") {
                BundleChecks.user(UserAccount.find(), nameService: readTextFile("/etc/nsswitch.conf") ?? "")
            },
            Group(one: "shell") { ProgramChecks.shell(login: UserAccount.find()?.shell) },
        ]
    }

    private var desktop: [Group] {
        let scripts = ScriptRunner.binDirectory(state: "\(settings.stateDirectory)/scripts")
        return [
            Group("portabledesktop") { [machine] in
                let program = ProgramChecks.desktop(machine, scripts: scripts)
                return [program, ProgramChecks.xvnc(machine, hasDesktop: program.status == .ok)]
            },
            Group(one: "desktop-libraries") {
                ProgramChecks.desktopLibraries(missing: DesktopLibraries.missingPackages)
            },
            Group(one: "ffmpeg") { [machine] in ProgramChecks.ffmpeg(machine) },
            Group(one: "novnc") { [settings] in ProgramChecks.novnc(directory: settings.novncDirectory) },
        ]
    }

    private var kernel: [Group] {
        [
            Group(one: "inotify") { [machine] in KernelChecks.inotify(machine) },
            Group(one: "open-files") {
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                return KernelChecks.openFiles(hard: UInt64(limit.rlim_max))
            },
            Group(one: "cgroup") { [machine] in KernelChecks.cgroup(machine) },
            Group(one: "ptrace-and-capabilities") { [machine] in KernelChecks.privileges(machine) },
        ]
    }
}
