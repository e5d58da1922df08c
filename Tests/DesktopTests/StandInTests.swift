import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// Holds the stand-in of portabledesktop against what the real one was recorded to answer. Not compared: how long
/// each took; numbers of processes, displays and ports, names of scratch directories and times beyond their form;
/// of pictures all but their size, and that the answer tells their bytes rightly, since the real one's backdrop is
/// its own and the recorder cut them.
@Suite(.timeLimit(.minutes(15)), .blocking) struct StandInTests {
    private struct Recorded: Decodable {
        struct Case: Decodable {
            var args: [String]
            /// nil for one that goes on until it is interrupted.
            var exit: Int32?
            var stdout: String
            var stderr: String

            private enum CodingKeys: CodingKey { case args, exit, stdout, stderr }

            init(from decoder: any Decoder) throws {
                let values = try decoder.container(keyedBy: CodingKeys.self)
                args = try values.decode([String].self, forKey: .args)
                exit = try? values.decode(Int32.self, forKey: .exit)
                stdout = try values.decode(String.self, forKey: .stdout)
                stderr = try values.decode(String.self, forKey: .stderr)
            }
        }

        var cases: [Case]
    }

    @Test func answersAsTheRealOneDid() async throws {
        let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("Vectors/portabledesktop_cli.json")
        let recorded = try JSONDecoder().decode(Recorded.self, from: Data(contentsOf: file))
        #expect(recorded.cases.count == 66)
        let scratch = try TemporaryDirectory()
        var started: [pid_t] = []
        // The first of the two desktops is orphaned by the second.
        defer { for pid in started { kill(pid, SIGTERM) } }
        for item in recorded.cases {
            let answer = try await Self.run(item, scratch.path)
            started += answer.output.matches(of: /"(?:xvncPid|openboxPid|pid)":([0-9]+)/).compactMap { pid_t($0.1) }
            let what = "\(item.args.joined(separator: " "))"
            #expect(answer.code == item.exit, "\(what): \(answer)")
            #expect(Self.plain(answer.errors, scratch.path) == Self.plain(item.stderr), "\(what)")
            if item.stdout.contains("iVBORw0KGgo") {
                try Self.comparePicture(answer.output, item.stdout)
            } else {
                #expect(Self.plain(answer.output, scratch.path) == Self.plain(item.stdout), "\(what)")
            }
        }
        let picture = try Data(contentsOf: URL(fileURLWithPath: "\(scratch.path)/a.png"))
        #expect(DesktopProgram.size(ofPNG: picture) == DesktopSize(width: 1280, height: 800))
    }

    private struct Answer {
        /// nil when it was interrupted.
        var code: Int32?
        var output: String
        var errors: String
    }

    private static func run(_ item: Recorded.Case, _ scratch: String) async throws -> Answer {
        let program = "\(SessionWorld.fixtures)/portabledesktop"
        let arguments = [program] + item.args.map { $0.replacing("/TMP", with: scratch) }
        let environment = ["HOME": "\(scratch)/home", "TMPDIR": scratch, "PATH": "/usr/bin:/bin"]
        guard item.exit == nil else {
            let result = try CommandResult.of(arguments, environment: environment)
            return Answer(code: result.code, output: result.output, errors: result.errors)
        }
        let (out, err) = ("\(scratch)/out", "\(scratch)/err")
        let pid = try DaemonProcess.spawn(
            ["/bin/sh", "-c", "exec \"$@\" >\(out) 2>\(err)", "sh"] + arguments,
            ProcessInfo.processInfo.environment.merging(environment) { $1 })
        try await eventually("it goes on") { ProcFS.text(out) == item.stdout.replacing("/TMP", with: scratch) }
        kill(pid, SIGINT)
        waitpid(pid, nil, 0)
        return Answer(code: nil, output: ProcFS.text(out), errors: ProcFS.text(err))
    }

    /// Without what is another in each run.
    private static func plain(_ text: String, _ scratch: String = "/TMP") -> String {
        text.replacing("\(scratch)/home/.cache/portabledesktop/runtime", with: "/RUNTIME")
            .replacing("\(scratch)/home", with: "/HOME").replacing(scratch, with: "/TMP")
            .replacing(/"(display|vncPort|xvncPid|openboxPid|pid)":[0-9]+/) { "\"\($0.1)\":N" }
            .replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z/, with: "TIME")
            .replacing(/portabledesktop-[0-9]+/, with: "portabledesktop-N")
            .replacing(/display: :[0-9]+/, with: "display: :N")
            .replacing(/127\.0\.0\.1:[0-9]+/, with: "127.0.0.1:N")
    }

    private static func comparePicture(_ answer: String, _ recorded: String) throws {
        struct Answer: Decodable {
            var data: String
            var size: Int
        }
        // The recorded ones are cut, but the header with the size is at the beginning.
        let head = try #require(recorded.firstRange(of: "iVBORw0KGgo"))
        let expected = try #require(Data(base64Encoded: String(recorded[head.lowerBound...].prefix(64))))
        let picture: Data
        if recorded.hasPrefix("{") {
            let decoded = try JSONDecoder().decode(Answer.self, from: Data(answer.utf8))
            picture = try #require(Data(base64Encoded: decoded.data))
            #expect(decoded.size == picture.count)
            #expect(answer == "{\"data\":\"\(decoded.data)\",\"size\":\(decoded.size)}\n")
        } else {
            picture = try #require(Data(base64Encoded: String(answer.dropLast())))
            #expect(answer.last == "\n")
        }
        #expect(DesktopProgram.size(ofPNG: picture) == DesktopProgram.size(ofPNG: expected))
    }
}
