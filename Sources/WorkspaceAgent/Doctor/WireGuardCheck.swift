import Sodium

/// The file of `--wireguard-config`; nothing without it.
enum WireGuardCheck {
    static func all(_ path: String?) -> [DoctorCheck] {
        guard let path else { return [] }
        if let problem = Sodium.problem {
            return [
                .warning(
                    "wireguard", "\(problem)",
                    fix: "install libsodium (Debian: apt install libsodium23) and restart the daemon")
            ]
        }
        do {
            let (configuration, warnings) = try TunnelParts.read(path)
            guard let warning = warnings.first else {
                return [.ok("wireguard", "\(path): \(configuration.peers.count) peers")]
            }
            return [.warning("wireguard", warning, fix: "correct the file and restart the daemon")]
        } catch {
            return [.error("wireguard", "\(error)", fix: "correct the file: the daemon does not start with it")]
        }
    }
}
