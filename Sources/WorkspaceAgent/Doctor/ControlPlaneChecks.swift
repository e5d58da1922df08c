import AgentCore
import ControlPlane
import Glibc
import LocalAgent
import Synchronization

/// The way to the control plane: one request tells of address, TLS, token and clock.
enum ControlPlaneChecks {
    private static let url = "control-plane-url"
    /// Of the whole request.
    static let patience = Duration.seconds(5)
    /// Seconds that the clocks may differ without a warning.
    static let toleratedSkew = 30
    /// Seconds from which on certificates and tokens fail.
    static let harmfulSkew = 300

    /// - Parameter settings: nil runs standalone.
    static func all(_ settings: LinkSettings?, _ environment: [String: String]) -> [DoctorCheck] {
        guard let settings else {
            return [.ok(url, "standalone: neither --agent-url nor CODER_AGENT_URL is set")]
        }
        let configuration: LinkConfiguration
        do {
            _ = try ServerAddress(settings.url, what: "--agent-url")
            guard settings.auth != "token" || settings.tokenFile != nil || settings.token != nil else {
                return [
                    .ok(url, "\(settings.address); not tried without a token"),
                    .error("token", "there is no token", fix: "set --agent-token-file or CODER_AGENT_TOKEN_FILE"),
                ]
            }
            configuration = try LinkConfiguration(settings.input(environment))
        } catch {
            // The message names the flag.
            let name = error.code == .token ? "token" : url
            return [.error(name, error.message, fix: "mend the flag or the variable CODER_AGENT_… that stands for it")]
        }
        do throws(ControlPlaneError) {
            try configuration.checkFiles()
        } catch {
            return [
                .ok(url, "\(configuration.url); not tried without the CA file"),
                .error("tls", error.description, fix: "give a PEM file of certificates that this user can read"),
            ]
        }
        return tried(settings, configuration, environment)
    }

    private static func tried(
        _ settings: LinkSettings, _ configuration: LinkConfiguration, _ environment: [String: String]
    ) -> [DoctorCheck] {
        let server = configuration.url
        let way = configuration.proxies.proxy(for: server).map { " through the proxy \($0)" } ?? ""
        do {
            let result = Mutex<(probe: ControlPlaneREST.Probe, now: Int)?>(nil)
            try MainThreadExecutor.run {
                let probe = try await GitLink.use(settings, environment, patience) { try await $0.probe() }
                result.withLock { $0 = (probe, time(nil)) }
            }
            guard let (probe, now) = result.withLock({ $0 }) else { return [] }
            return address(probe, "\(server)\(way)") + [tls(configuration), token(probe, settings)]
                + [clock(probe.date, now: now)]
        } catch let error as ControlPlaneError where error.code == .tls {
            return [
                .ok(url, "\(server)\(way) can be reached"),
                .error(
                    "tls", error.description,
                    fix:
                        "name its authority's PEM file with --agent-ca-file, or mend the certificate; see the clock, too"
                ),
            ]
        } catch {
            return [
                .error(
                    url, "\(error)",
                    fix: "check --agent-url (CODER_AGENT_URL), the name's DNS, proxies and firewalls on the way")
            ]
        }
    }

    /// - Parameter server: with the proxy on the way.
    private static func address(_ probe: ControlPlaneREST.Probe, _ server: String) -> [DoctorCheck] {
        // A server that refuses the token is a control plane.
        guard let refusal = probe.refusal, refusal.code != .http(401), probe.tokenProblem == nil else {
            return [.ok(url, "\(server) answers")]
        }
        return [
            .error(
                url, refusal.description,
                fix: "check that --agent-url (CODER_AGENT_URL) is the control plane's address, and the control plane")
        ]
    }

    private static func tls(_ configuration: LinkConfiguration) -> DoctorCheck {
        guard configuration.url.isSecure else { return .ok("tls", "not used: the address begins with http://") }
        return .ok("tls", "trusted\(configuration.caFile.map { ", with the authorities of \($0)" } ?? "")")
    }

    private static func token(_ probe: ControlPlaneREST.Probe, _ settings: LinkSettings) -> DoctorCheck {
        let source = settings.auth != "token" ? settings.auth : settings.tokenFile ?? "--agent-token"
        if let problem = probe.tokenProblem {
            return .error("token", problem.description, fix: "put the agent's token there, readable by this user alone")
        }
        if let refusal = probe.refusal {
            guard refusal.code == .http(401) else {
                return .ok("token", "from \(source); whether it is accepted is not known")
            }
            return .error(
                "token", "that of \(source) is not accepted: \(refusal.description)",
                fix: "give the token of this workspace's agent, as the control plane has it now")
        }
        if settings.auth == "token", let path = settings.tokenFile, isOpenToOthers(path) {
            return .warning("token", "\(path) is accepted, but others may read it", fix: "chmod 0600 \(path)")
        }
        return .ok("token", "that of \(source) is accepted")
    }

    private static func isOpenToOthers(_ path: String) -> Bool {
        var info = stat()
        return stat(path, &info) == 0 && info.st_mode & 0o077 != 0
    }

    /// - Parameters:
    ///   - date: the control plane's time as HTTP has it; nil when it does not say.
    ///   - now: our time when that came, in seconds since 1970.
    static func clock(_ date: String?, now: Int) -> DoctorCheck {
        guard let date else { return .ok("clock", "not compared: the control plane does not say its time") }
        guard let theirs = seconds(ofHTTPDate: date) else {
            return .ok("clock", "not compared: the control plane's Date is not an HTTP date")
        }
        let ahead = now - theirs
        let text = "this machine is \(abs(ahead)) s \(ahead < 0 ? "behind" : "ahead of") the control plane"
        let fix = "set the clock, and keep it with NTP (timedatectl set-ntp true)"
        switch abs(ahead) {
        case 0...toleratedSkew: return .ok("clock", text)
        case ...harmfulSkew: return .warning("clock", "\(text): times in logs are wrong", fix: fix)
        default: return .error("clock", "\(text): certificates and tokens may fail", fix: fix)
        }
    }

    /// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7); nil for anything else.
    static func seconds(ofHTTPDate text: String) -> Int? {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        let words = text.split(separator: " ")
        guard words.count == 6, words[5] == "GMT", let day = Int32(words[1]), (1...31).contains(day),
            let month = months.firstIndex(of: String(words[2])), let year = Int32(words[3]),
            (1970...9999).contains(year)
        else { return nil }
        let time = words[4].split(separator: ":").compactMap { UInt8($0) }
        guard time.count == 3 else { return nil }
        var fields = tm()
        (fields.tm_mday, fields.tm_mon, fields.tm_year) = (day, Int32(month), year - 1900)
        (fields.tm_hour, fields.tm_min, fields.tm_sec) = (Int32(time[0]), Int32(time[1]), Int32(time[2]))
        return timegm(&fields)
    }
}
