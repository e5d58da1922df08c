import AgentProto
import SwiftProtobuf

/// The states of one agent session after CREATED, in order, and how many of them the control plane has
/// acknowledged.
///
/// Never holds more than four: each state can only be followed by a later kind.
package struct LifecycleHistory: Sendable {
    package typealias State = Coder_Agent_V2_Lifecycle.State

    package struct Entry: Sendable, Equatable {
        package var state: State
        /// When it happened, however late it is reported.
        package var changedAt: Google_Protobuf_Timestamp
    }

    package private(set) var entries: [Entry] = []
    /// How many entries were acknowledged.
    package private(set) var acknowledged = 0

    package init() {}

    package var current: State { entries.last?.state ?? .created }

    /// The first entry that is not yet acknowledged.
    package var next: Entry? { acknowledged < entries.count ? entries[acknowledged] : nil }

    /// - Returns: whether the state may follow; otherwise nothing changes.
    package mutating func record(_ state: State, at time: Google_Protobuf_Timestamp) -> Bool {
        guard Self.mayFollow(current, state) else { return false }
        entries.append(Entry(state: state, changedAt: time))
        return true
    }

    /// The control plane has taken this entry. Anything but the next one is ignored.
    package mutating func acknowledge(_ entry: Entry) {
        if next == entry { acknowledged += 1 }
    }

    private static func mayFollow(_ current: State, _ next: State) -> Bool {
        switch (current, next) {
        case (.created, .starting), (.created, .shuttingDown),
            (.starting, .ready), (.starting, .startTimeout), (.starting, .startError), (.starting, .shuttingDown),
            (.ready, .shuttingDown), (.startTimeout, .shuttingDown), (.startError, .shuttingDown),
            (.shuttingDown, .off), (.shuttingDown, .shutdownTimeout), (.shuttingDown, .shutdownError):
            true
        default: false
        }
    }
}
