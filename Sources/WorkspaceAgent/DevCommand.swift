import AgentCore
import ArgumentParser
import CPlatform
import ControlPlaneSimulator
import Glibc
import LocalAgent
import NIOCore

/// `workspace-agent dev`: a simulated control plane and the daemon connected to it.
struct DevCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dev", abstract: "Run the daemon with a simulated control plane, and print what that receives.",
        discussion: """
            Nothing leaves this machine: the control plane listens on 127.0.0.1. State, sockets and logs are in a \
            directory of their own, so that it can run beside another daemon. Ctrl-C ends both in order.

            Example:
              workspace-agent dev --manifest manifest.json
            """)

    enum Output: String, ExpressibleByArgument, CaseIterable {
        case text
        case json
    }

    @Option(
        help:
            "The manifest as JSON (protobuf's form, UUIDs as text allowed); default is a demonstration. [WORKSPACE_AGENT_DEV_MANIFEST]"
    )
    var manifest: String?

    @Option(name: .shortAndLong, help: "text: short lines; json: one object a line. [WORKSPACE_AGENT_DEV_OUTPUT]")
    var output = Output.text

    @OptionGroup(title: "Daemon options")
    var agent: DaemonOptions

    func run() throws {
        let setup: DevSetup
        do {
            setup = try DevSetup(agent, manifest: manifest, environment: ProcessEnvironment.current)
        } catch let error as ConfigurationError {
            throw ValidationError(error.message)
        }
        // Before the first thread, which would inherit its mask: the daemon takes these from a
        // descriptor, and one that reached a thread of ours would end the process.
        let signals = [SIGTERM, SIGINT, SIGHUP, SIGCHLD]
        _ = wa_block_signals(signals, CInt(signals.count))
        try DevSession(setup, output: output).run()
    }
}
