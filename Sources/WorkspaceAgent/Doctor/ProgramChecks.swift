import AgentCore
import GitCredentials
import Glibc

/// Programs and libraries that parts of the agent need.
enum ProgramChecks {
    /// The first with `git add --sparse`, which the git watcher uses.
    static let oldestGit = (2, 34)

    static func git(_ machine: DoctorMachine) -> DoctorCheck {
        guard let path = machine.program("git") else {
            return .warning(
                "git", "there is no git on PATH: the git watcher and clones do not work",
                fix: "install git (Debian: apt install git), or put it on the PATH of the daemon")
        }
        guard let line = machine.firstLine(of: path, ["--version"]), let version = version(line) else {
            return .error("git", "\(path) --version does not say its version", fix: "install git again")
        }
        guard version >= oldestGit else {
            return .warning(
                "git", "\(path) is \(line): the git watcher needs \(oldestGit.0).\(oldestGit.1) or newer",
                fix: "install git \(oldestGit.0).\(oldestGit.1) or newer")
        }
        return .ok("git", "\(line) at \(path)")
    }

    /// Of `git version 2.43.0.windows.1`.
    static func version(_ line: String) -> (Int, Int)? {
        guard let word = line.split(separator: " ").first(where: { $0.first?.isNumber == true }) else { return nil }
        let numbers = word.split(separator: ".").prefix(2).compactMap { Int($0) }
        guard let major = numbers.first, numbers.count == 2, let minor = numbers.last else { return nil }
        return (major, minor)
    }

    /// - Parameter client: looked for on this machine; another one in tests.
    static func gitSSH(_ machine: DoctorMachine, client: GitSSHClient) -> DoctorCheck {
        switch client {
        case .openSSH(let path):
            let version = machine.firstLine(of: path, ["-V"]) ?? "of unknown version"
            return .ok("git-ssh", "OpenSSH's client at \(path) (\(version))")
        case .libssh2(let version):
            return .ok(
                "git-ssh",
                "the built-in client with libssh2 \(version), as there is no ssh on PATH; RSA keys and ssh_config need "
                    + "openssh-client")
        case .none(let reason):
            return .warning(
                "git-ssh", "git has no ssh client, so remotes over ssh do not work: \(reason)",
                fix: "install openssh-client (Debian: apt install openssh-client)")
        }
    }

    static func libgit2(problem: String?) -> DoctorCheck {
        guard let problem else { return .ok("libgit2", "it can be loaded") }
        return .warning(
            "libgit2", "the git watcher runs git for each repository, which is slower: \(problem)",
            fix: "install the libgit2 of that version (Debian: libgit2-1.7 for libgit2.so.1.7)")
    }

    static func sqlite(problem: String?) -> DoctorCheck {
        guard let problem else { return .ok("sqlite", "it can be loaded") }
        return .warning(
            "sqlite", "boundary's audit logs are not taken: \(problem)",
            fix: "install SQLite (Debian: apt install libsqlite3-0) and restart the daemon")
    }

    /// - Parameter scripts: where scripts of the workspace leave programs.
    static func desktop(_ machine: DoctorMachine, scripts: String) -> DoctorCheck {
        guard let path = findExecutable("portabledesktop", in: machine.searchPath + [scripts]) else {
            return .warning(
                "portabledesktop", "found neither on PATH nor in \(scripts): there is no virtual desktop",
                fix: "install portabledesktop, or have a script put it into the script directory")
        }
        return .ok("portabledesktop", path)
    }

    /// - Parameter hasDesktop: whether portabledesktop is there, without which Xvnc serves nothing.
    static func xvnc(_ machine: DoctorMachine, hasDesktop: Bool) -> DoctorCheck {
        if let path = machine.program("Xvnc") { return .ok("xvnc", path) }
        guard hasDesktop else { return .ok("xvnc", "not on PATH, and not needed without portabledesktop") }
        return .warning(
            "xvnc", "not on PATH: the desktop starts only if portabledesktop brings its own",
            fix: "install TigerVNC's Xvnc (Debian: apt install tigervnc-standalone-server)")
    }

    static func desktopLibraries(missing: [String]) -> DoctorCheck {
        guard !missing.isEmpty else { return .ok("desktop-libraries", "all can be loaded") }
        return .warning(
            "desktop-libraries",
            "some cannot be loaded: pictures and input of the desktop go through portabledesktop, slowly, or fail",
            fix: "apt install \(missing.joined(separator: " "))")
    }

    static func ffmpeg(_ machine: DoctorMachine) -> DoctorCheck {
        if let path = machine.program("ffmpeg") { return .ok("ffmpeg", path) }
        return .warning(
            "ffmpeg", "not on PATH: recordings of the desktop need portabledesktop's own recorder",
            fix: "install ffmpeg (Debian: apt install ffmpeg)")
    }

    static func novnc(directory: String) -> DoctorCheck {
        if access("\(directory)/core/rfb.js", R_OK) == 0 { return .ok("novnc", directory) }
        return .warning(
            "novnc", "\(directory) has no core/rfb.js: the desktop's viewer has no page",
            fix: "install noVNC (Debian: apt install novnc), or name its directory with --novnc-dir")
    }

    /// - Parameter login: the shell that the passwd database names; nil where it has no such user.
    static func shell(login: String?) -> DoctorCheck {
        guard access("/bin/sh", X_OK) == 0 else {
            return .error("shell", "/bin/sh cannot be run: no command can", fix: "install a shell as /bin/sh")
        }
        guard let login, !login.isEmpty else {
            return .warning(
                "shell", "uid \(geteuid()) has no login shell in the passwd database: scripts run with /bin/sh",
                fix: "add the user to /etc/passwd with a shell")
        }
        guard access(login, X_OK) == 0 else {
            return .warning(
                "shell", "the login shell \(login) cannot be run: scripts run with /bin/sh",
                fix: "install it, or choose another with chsh -s")
        }
        return .ok("shell", login)
    }
}
