import AgentProto
import ControlPlaneAPI
import FoundationEssentials

/// The health of all apps of the workspace (docs/contracts/control-plane.md#app-health).
struct AppHealthState: Sendable {
    typealias Health = Coder_Agent_V2_AppHealth

    struct App: Sendable {
        var id: Data
        var slug: String
        var url: String
        var interval: Duration
        var threshold: Int
        var failures = 0
        var health: Health
        /// What the control plane believes.
        var reported: Health
        /// When it is asked next.
        var due: Duration
        /// Whether an answer is awaited; no app is asked twice at a time.
        var isAsked = false
        /// How long it has to answer: it is to be over before its next turn.
        var patience: Duration { interval - LinkLimits.appMargin }
    }

    /// A change to report; acknowledged with the same value.
    struct Change: Sendable, Equatable {
        var id: Data
        var health: Health
    }

    private(set) var apps: [App] = []
    /// Whether there was a manifest on this connection.
    private(set) var isKnown = false

    /// Takes over the apps of a manifest. An app that is still there keeps its health and its turn;
    /// what the control plane believes of it is what the manifest says.
    /// - Returns: how many were left out because there are too many.
    mutating func update(_ manifest: [Coder_Agent_V2_WorkspaceApp], now: Duration) -> Int {
        var known: [Data: App] = [:]
        for app in apps { known[app.id] = app }
        let checked = manifest.filter(Self.isChecked)
        var seen: Set<Data> = []
        apps = checked.prefix(LinkLimits.apps).filter { seen.insert($0.id).inserted }.map { app in
            let believed = Health(rawValue: app.health.rawValue) ?? .unspecified
            var fresh = App(
                id: app.id, slug: app.slug, url: app.healthcheck.url,
                interval: LinkLimits.clamp(app.healthcheck.interval, to: LinkLimits.appInterval),
                threshold: Int(app.healthcheck.threshold), health: believed, reported: believed, due: now)
            if let old = known[app.id] {
                (fresh.health, fresh.failures, fresh.isAsked) = (old.health, old.failures, old.isAsked)
                fresh.due = min(old.due, now + fresh.interval)
            }
            return fresh
        }
        isKnown = true
        return max(0, checked.count - LinkLimits.apps)
    }

    /// Interval, threshold and url must all be given, and the check not be disabled.
    private static func isChecked(_ app: Coder_Agent_V2_WorkspaceApp) -> Bool {
        app.hasHealthcheck && app.healthcheck.threshold > 0 && !app.healthcheck.url.isEmpty && app.health != .disabled
            && app.healthcheck.interval.duration > .zero
    }

    /// The time of the next check; nil when there is none to wait for.
    var nextDue: Duration? { apps.lazy.filter { !$0.isAsked }.map(\.due).min() }

    /// The apps to ask now. Their next turn is an interval away, if they have answered by then.
    mutating func takeDue(_ now: Duration) -> [App] {
        var due: [App] = []
        for index in apps.indices where !apps[index].isAsked && apps[index].due <= now {
            apps[index].due = now + apps[index].interval
            apps[index].isAsked = true
            due.append(apps[index])
        }
        return due
    }

    /// The connection is over: what the control plane believes is in the next one's manifest.
    mutating func endConnection() { isKnown = false }

    /// The answers that were awaited will not come: the checks were cancelled.
    mutating func forgetAsked() {
        for index in apps.indices { apps[index].isAsked = false }
    }

    /// Counts an answer: more than `threshold` failures in a row are UNHEALTHY, one success is HEALTHY.
    mutating func observe(_ id: Data, success: Bool) {
        guard let index = apps.firstIndex(where: { $0.id == id }) else { return }
        apps[index].isAsked = false
        if success {
            apps[index].failures = 0
            apps[index].health = .healthy
        } else {
            apps[index].failures = min(apps[index].failures + 1, apps[index].threshold + 1)
            if apps[index].failures > apps[index].threshold { apps[index].health = .unhealthy }
        }
    }

    /// What the control plane does not know yet.
    var changes: [Change] {
        apps.lazy.filter { $0.health != $0.reported }.map { Change(id: $0.id, health: $0.health) }
    }

    /// The control plane has taken these.
    mutating func acknowledge(_ changes: [Change]) {
        for change in changes {
            guard let index = apps.firstIndex(where: { $0.id == change.id }) else { continue }
            apps[index].reported = change.health
        }
    }
}
