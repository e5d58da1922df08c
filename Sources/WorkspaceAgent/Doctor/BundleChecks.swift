import AgentCore
import BoundaryLog
import GitWatch
import Glibc

/// What depends on the image around a portable bundle: its certificates, and its users.
enum BundleChecks {
    /// No check for the plain program.
    static func bundle() -> [DoctorCheck] {
        guard let bundle = OwnProgram.bundle else { return [] }
        let absent = ["libgit2": GitLibrary.problem, "sqlite": SQLiteLibrary.problem].compactMap {
            $0.value == nil ? nil : $0.key
        }
        guard absent.isEmpty else {
            return [
                .error(
                    "bundle",
                    "\(bundle): its own libraries cannot be loaded: \(absent.sorted().joined(separator: ", "))",
                    fix: "unpack it again; a file is missing or damaged")
            ]
        }
        let origin = OwnProgram.singleFile.map { ", unpacked from \($0)" } ?? ""
        return [.ok("bundle", "\(bundle), version \(BuildInfo.version), with libraries of its own\(origin)")]
    }

    static func certificates(_ store: String?, bundle: String?) -> DoctorCheck {
        guard let store else {
            return .warning(
                "ca-store", "this machine has no certificate authorities: TLS works only with --agent-ca-file",
                fix: "install them (Debian: apt install ca-certificates)")
        }
        guard let bundle, store.hasPrefix(bundle) else { return .ok("ca-store", store) }
        return .ok("ca-store", "the bundle's, since this machine has none: \(store)")
    }

    /// - Parameters:
    ///   - account: of the daemon's user.
    ///   - nameService: nsswitch.conf(5).
    static func user(
        _ account: UserAccount?, nameService: String, bundle: String? = OwnProgram.bundle
    ) -> DoctorCheck {
        if let account { return .ok("user-lookup", "uid \(geteuid()) is \(account.name)") }
        let sources = nameService.split(separator: "\n").first { $0.hasPrefix("passwd:") }?.dropFirst("passwd:".count)
        let modules = (sources ?? "").split(whereSeparator: { $0 == " " || $0 == "\t" }).filter {
            !["files", "compat", "dns"].contains($0) && !$0.hasPrefix("[")
        }
        let why =
            bundle != nil && !modules.isEmpty
            ? "; a portable program cannot ask \(modules.joined(separator: ", "))" : ""
        return .warning(
            "user-lookup", "uid \(geteuid()) has no entry in the user database\(why): HOME, USER and SHELL are used",
            fix: "set these variables, or add the user to /etc/passwd")
    }
}
