import AgentProto
import ControlPlaneAPI
import Logging
import Synchronization

/// The banners that the control plane wants shown, as of the last answer.
package final class AnnouncementBanners: Sendable {
    package typealias Banner = Coder_Agent_V2_BannerConfig

    private let banners = Mutex<[Banner]>([])

    package init() {}

    /// Those that are enabled, in the control plane's order.
    package var current: [Banner] { banners.withLock { $0 } }

    func set(_ all: [Banner]) {
        let kept = all.lazy.filter(\.enabled).prefix(LinkLimits.banners).map { banner in
            var banner = banner
            banner.message = String(banner.message.prefix(LinkLimits.bannerCharacters))
            return banner
        }
        banners.withLock { $0 = Array(kept) }
    }
}

/// Fetches the banners once, then every two minutes.
package struct FetchAnnouncementBanners: Routine {
    package static let interval = Duration.seconds(120)

    package let name = "announcement banners"
    package let atShutdown = RoutineShutdown.stops
    private let banners: AnnouncementBanners
    private let runtime: LinkRuntime

    package init(_ banners: AnnouncementBanners, runtime: LinkRuntime) {
        (self.banners, self.runtime) = (banners, runtime)
    }

    package func run(_ connection: any AgentConnection) async throws {
        while true {
            try await runtime.tolerating("announcement banners") {
                banners.set(try await connection.call(AgentAPI.getAnnouncementBanners, .init()).announcementBanners)
            }
            try await runtime.clock.sleep(Self.interval)
        }
    }
}

extension LinkRuntime {
    /// Does something that a connection can go without: when no answer comes in time that is logged,
    /// and the next turn tries again.
    func tolerating(_ what: String, _ body: () async throws -> Void) async throws {
        do {
            try await body()
        } catch let error as ControlPlaneError where error.code == .timeout {
            logger.warning("no answer; trying again later", metadata: ["routine": "\(what)", "error": "\(error)"])
        }
    }
}
