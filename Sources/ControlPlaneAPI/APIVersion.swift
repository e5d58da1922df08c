/// A version of the upward API (docs/contracts/agent-api.md#versions).
package struct APIVersion: Sendable, Hashable, Comparable, CustomStringConvertible {
    package let major: Int
    package let minor: Int

    package init(_ major: Int, _ minor: Int) {
        self.major = major
        self.minor = minor
    }

    /// What we speak, newest first: the order in which they are tried.
    package static let spoken = [APIVersion(2, 9), APIVersion(2, 8), APIVersion(2, 7)]

    /// UpdateAppStatus.
    package var hasAppStatus: Bool { self >= APIVersion(2, 8) }
    /// `session_id`, `confined_process_name` and `sequence_number` of boundary logs.
    package var hasBoundarySessions: Bool { self >= APIVersion(2, 9) }

    package static func < (a: APIVersion, b: APIVersion) -> Bool { (a.major, a.minor) < (b.major, b.minor) }

    /// As on the wire: `2.9`.
    package var description: String { "\(major).\(minor)" }
}
