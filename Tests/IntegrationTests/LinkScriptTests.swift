import AgentProto
import AgentTestSupport
import ControlPlaneAPI
import Glibc
import Testing

@testable import ControlPlaneSimulator

/// What scripts and metadata commands find when the built daemon starts them.
@Suite("Link: scripts", .blocking, .timeLimit(.minutes(5))) struct LinkScriptTests {
    /// The daemon's own files are nobody else's to read; those of scripts are as they would be without it.
    @Test(arguments: [("022", mode_t(0o644)), ("027", 0o640)])
    func scriptsGetTheMaskThatTheDaemonWasStartedWith(mask: String, mode: mode_t) async throws {
        let world = try await LinkWorld { manifest, _ in
            manifest.scripts = [
                LinkWorld.script("start", "touch by-start"),
                LinkWorld.script("cron", "touch by-cron") { ($0.runOnStart, $0.cron) = (false, "* * * * * *") },
            ]
            manifest.metadata = [LinkWorld.metadata("m", "touch by-metadata; umask")]
        }
        let daemon = try world.daemon(wrapper: ["sh", "-c", "umask \(mask); exec \"$@\"", "sh"])
        for name in ["by-start", "by-cron", "by-metadata"] {
            let path = "\(world.directory.path)/\(name)"
            try await eventually("\(name)") { access(path, F_OK) == 0 }
            var info = stat()
            #expect(stat(path, &info) == 0 && info.st_mode & 0o777 == mode, "\(name)")
        }
        var info = stat()
        #expect(stat("\(world.directory.path)/log/workspace-agent.log", &info) == 0 && info.st_mode & 0o077 == 0)
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }

    /// A bin directory that another user made: what lies there must not be run in place of anything.
    @Test(.enabled(if: geteuid() == 0)) func anotherUsersBinDirectoryIsNotOnThePath() async throws {
        let directory = try TemporaryDirectory()
        let bin = "\(directory.path)/state/scripts/bin"
        for path in ["\(directory.path)/state", "\(directory.path)/state/scripts", bin] { mkdir(path, 0o700) }
        chown(bin, 65_534, 65_534)
        let world = try await LinkWorld(directory: directory) { manifest, _ in
            manifest.metadata = [LinkWorld.metadata("path", "echo \"$PATH\"")]
        }
        let daemon = try world.daemon()
        let seen = try await world.recorder.wait("metadata") { !$0.requests(AgentAPI.batchUpdateMetadata).isEmpty }
        let path = seen.requests(AgentAPI.batchUpdateMetadata).flatMap(\.metadata).first?.result.value
        #expect(path?.contains("bin") == true && path?.contains("state/scripts") == false, "\(path as Any)")
        #expect(try daemon.connect().run("echo \"$PATH\"")["output"] as? String == "\(path ?? "")\n")
        #expect(daemon.log.contains("is not put on PATH"))
        #expect(try await daemon.stop() == 0)
        await world.stop()
    }
}
