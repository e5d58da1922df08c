import ControlPlaneAPI
import SwiftProtobuf

/// Every bound of the run loop and of the routines beside it, and what happens at it.
package enum LinkLimits {
    /// How long one attempt to connect may take. Then it has failed, and is tried again.
    package static let dial = Duration.seconds(30)
    /// How long an rpc may go unanswered. Then it fails with `.timeout`: see docs/control-plane.md
    /// for what each routine makes of that.
    package static let call = Duration.seconds(30)
    /// How long an orderly close of the connection, and then the end of its routines, is waited
    /// for. A routine that is still not done is left alone, and not run on the next connection.
    package static let teardown = Duration.seconds(5)
    /// How long everything that is left may take to be delivered at shutdown. The rest is lost.
    package static let delivery = Duration.seconds(5)
    /// How long start scripts may take to end once shutdown has cancelled them. Then the shutdown
    /// goes on without them.
    package static let startScriptsEnd = Duration.seconds(15)
    /// How long run_on_stop scripts may take all together. Then the state is SHUTDOWN_TIMEOUT.
    package static let stopScripts = Duration.seconds(600)
    /// Characters of a reason that /healthz and the log show. A longer one is cut.
    package static let reasonCharacters = 500

    /// Connection reports that wait. Further ones are dropped, logged once for each such time.
    package static let connectionReports = 2_048
    /// Characters of a connection report's reason. A longer one is cut.
    package static let connectionReasonCharacters = 1_024

    /// Announcement banners kept. Further ones are left out.
    package static let banners = 64
    /// Characters of a banner's message. A longer one is cut.
    package static let bannerCharacters = 8_192

    /// Datapoints in a window of the resources monitor. A larger window is cut to it.
    package static let datapoints = 1_000
    /// Volumes that are monitored. Further ones are left out, with a warning.
    package static let volumes = 64
    /// How long after a configuration that was not answered it is asked for again.
    package static let resourcesRetry = Duration.seconds(60)
    /// How long reading memory, or all volumes, may take. Then the datapoint lacks them.
    package static let resourceRead = Duration.seconds(5)
    /// What a collection interval is clamped to.
    package static let collectionInterval = Duration.seconds(1)...Duration.seconds(86_400)

    /// Apps whose health is checked. Further ones are left out, with a warning.
    package static let apps = 256
    /// What an app's interval is clamped to.
    package static let appInterval = Duration.seconds(1)...Duration.seconds(86_400)
    /// By how much an app's time to answer is shorter than its interval. Later it has not answered
    /// (docs/contracts/control-plane.md#app-health).
    package static let appMargin = Duration.milliseconds(1)

    /// What the interval of stats is clamped to.
    package static let statsInterval = Duration.seconds(1)...Duration.seconds(3_600)
    /// The interval when the control plane names none that makes sense.
    package static let defaultStatsInterval = Duration.seconds(60)
    /// Metrics in one report. Further ones are left out.
    package static let statsMetrics = 1_000

    /// Entries of CODER_AGENT_SUBSYSTEM. More is an error.
    package static let subsystems = 16

    /// The duration as Swift's, within the range. Any value from outside will do.
    static func clamp(_ duration: Google_Protobuf_Duration, to range: ClosedRange<Duration>) -> Duration {
        min(max(duration.duration, range.lowerBound), range.upperBound)
    }
}
