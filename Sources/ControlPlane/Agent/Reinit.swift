import Logging

/// An event of the reinit stream (docs/contracts/control-plane.md#reinit).
package struct ReinitNotice: Sendable, Equatable {
    package static let prebuildClaimed = "prebuild_claimed"

    package var workspaceID: String
    package var reason: String
    package var ownerID: String

    package init(workspaceID: String, reason: String, ownerID: String) {
        (self.workspaceID, self.reason, self.ownerID) = (workspaceID, reason, ownerID)
    }
}

/// Waits for the prebuilt workspace to be claimed, for as long as the process lives.
package struct ReinitWatcher: Sendable {
    /// Which notices have been acted on: the same owner only once.
    private struct Owners {
        private var last: String?

        mutating func isNews(_ notice: ReinitNotice) -> Bool {
            guard notice.reason == ReinitNotice.prebuildClaimed, notice.ownerID != last else { return false }
            last = notice.ownerID
            return true
        }
    }

    private let runtime: LinkRuntime
    private let next: @Sendable () async throws -> ReinitNotice?

    /// - Parameter next: opens the stream and returns its first event, or nil when it ended without
    ///   one; throws ``ControlPlaneError``.
    package init(runtime: LinkRuntime, next: @escaping @Sendable () async throws -> ReinitNotice?) {
        (self.runtime, self.next) = (runtime, next)
    }

    /// Returns when the control plane says that this will never be (409), or the task is cancelled.
    /// - Parameter restart: ends the agent's session and begins another.
    package func run(restart: @Sendable (ReinitNotice) async -> Void) async {
        var backoff = Backoff()
        var owners = Owners()
        while !Task.isCancelled {
            let began = runtime.clock.now()
            var permanent = false
            do {
                if let notice = try await next(), owners.isNews(notice) {
                    runtime.logger.info(
                        "the prebuilt workspace was claimed; starting anew",
                        metadata: ["workspace": "\(notice.workspaceID)", "owner": "\(notice.ownerID)"])
                    await restart(notice)
                }
            } catch let error as ControlPlaneError where error.code == .http(409) {
                runtime.logger.debug("this is not a prebuilt workspace")
                return
            } catch {
                permanent = (error as? ControlPlaneError)?.isPermanent ?? false
                runtime.logger.debug("the reinit stream failed", metadata: ["error": "\(error)"])
            }
            let wait = backoff.next(
                lived: runtime.clock.now() - began, permanent: permanent, fraction: runtime.random())
            try? await runtime.clock.sleep(wait)
        }
    }
}
