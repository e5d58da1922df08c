import AgentCore
import AgentProto
import AgentTestSupport
import FoundationEssentials
import Glibc
import Testing

@testable import WorkspaceScripts

/// What lies in the place of a file.
enum Obstacle: String, CaseIterable, Sendable {
    case link, danglingLink, pipe, directory, hardLink, socket, device, foreignFile, foreignLink

    static var possible: [Obstacle] {
        geteuid() == 0 ? allCases : allCases.filter { ![.device, .foreignFile, .foreignLink].contains($0) }
    }

    /// - Parameter victim: a file of ours that must stay as it is.
    func put(at path: String, victim: String) {
        switch self {
        case .link: symlink(victim, path)
        case .danglingLink: symlink("\(victim)-missing", path)
        case .pipe: mkfifo(path, 0o666)
        case .directory: mkdir(path, 0o755)
        case .hardLink: Glibc.link(victim, path)
        case .socket: mknod(path, S_IFSOCK | 0o666, 0)
        // /dev/full: each write fails.
        case .device: mknod(path, S_IFCHR | 0o666, 0x107)
        case .foreignFile:
            close(creat(path, 0o666))
            chown(path, 65_534, 65_534)
        case .foreignLink:
            symlink(victim, path)
            lchown(path, 65_534, 65_534)
        }
    }
}

/// Files and directories of ours in places where other users may have been first.
@Suite(.serialized, .timeLimit(.minutes(5))) struct ForeignFileTests {
    private let source = "01010101-0101-0101-0101-010101010101"

    private func write(_ path: String, _ text: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    }

    @Test(arguments: Obstacle.possible) func aScriptRunsOnWithoutItsLogFile(_ obstacle: Obstacle) async throws {
        try await ScriptFixture.with { fixture in
            mkdir("\(fixture.home)/logs", 0o777)
            let (victim, path) = ("\(fixture.home)/victim", "\(fixture.home)/logs/coder-script-\(source).log")
            try write(victim, "mine")
            obstacle.put(at: path, victim: victim)
            try fixture.manifest(scripts: [.make("echo works")])
            #expect(try await fixture.scripts.runStartScripts() == .succeeded)
            #expect(try await fixture.delivered().lines == ["works"])
            #expect(fixture.log.lines.count { $0.contains("no log file") && $0.contains(path) } == 1)
            #expect(readTextFile(victim) == "mine")
            #expect(access("\(victim)-missing", F_OK) != 0)
            if obstacle == .foreignFile { #expect(readTextFile(path) == "") }
        }
    }

    /// The old log is moved over an older one of ours and over nothing else.
    @Test(arguments: Obstacle.possible) func aFullLogTakesNothingElsesPlace(_ obstacle: Obstacle) throws {
        let directory = try TemporaryDirectory()
        let (victim, path) = ("\(directory.path)/victim", "\(directory.path)/log")
        try write(victim, "mine")
        try write(path, "0123456789")
        obstacle.put(at: "\(path).1", victim: victim)
        var before = stat()
        lstat("\(path).1", &before)
        let error = #expect(throws: CoreError.self) { _ = try ScriptLogFile(path: path, limit: 10) }
        #expect(error?.message.contains("\(path).1") == true)
        var after = stat()
        lstat("\(path).1", &after)
        #expect(after.st_ino == before.st_ino)
        #expect(readTextFile(path) == "0123456789")
        #expect(readTextFile(victim) == "mine")
    }

    @Test(.enabled(if: geteuid() == 0)) func anotherUsersFullLogIsNotMoved() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/log"
        try write(path, "0123456789")
        chown(path, 65_534, 65_534)
        #expect(throws: CoreError(.pathOccupied, "")) { _ = try ScriptLogFile(path: path, limit: 10) }
        #expect(readTextFile(path) == "0123456789")
        #expect(access("\(path).1", F_OK) != 0)
    }

    /// As in a /tmp that all users share: what another one has put there is left alone.
    @Test(.enabled(if: geteuid() == 0)) func aSecretKeepsTheModeOfOurOwnFileAlone() throws {
        let directory = try TemporaryDirectory()
        var secret = Coder_Agent_V2_WorkspaceSecret()
        secret.filePath = "~/secret"
        secret.value = Data("hush".utf8)
        for (owner, mode) in [(geteuid(), mode_t(0o644)), (65_534, 0o600)] {
            try write("\(directory.path)/secret", "old")
            chmod("\(directory.path)/secret", 0o644)
            chown("\(directory.path)/secret", owner, owner)
            #expect(SecretFiles(home: directory.path).write([WorkspaceSecretValue(secret)]) == [])
            var info = stat()
            #expect(lstat("\(directory.path)/secret", &info) == 0)
            #expect(info.st_mode & 0o777 == mode && info.st_uid == geteuid())
            #expect(readTextFile("\(directory.path)/secret") == "hush")
        }
    }

    /// How a directory of the scripts can be another user's to change.
    enum Opening: CaseIterable, Sendable {
        case isLink, isForeign, isWritable, scriptsIsWritable, stateIsWritable, stateIsLink
    }

    private func open(_ opening: Opening, _ directory: String) {
        let (state, scripts) = ("\(directory)/state", "\(directory)/state/scripts")
        mkdir("\(directory)/planted", 0o777)
        mkdir(opening == .stateIsLink ? "\(directory)/elsewhere" : state, 0o700)
        if opening == .stateIsLink { symlink("\(directory)/elsewhere", state) }
        mkdir(scripts, 0o700)
        switch opening {
        case .isLink: symlink("\(directory)/planted", "\(scripts)/bin")
        case .isForeign:
            mkdir("\(scripts)/bin", 0o755)
            chown("\(scripts)/bin", 65_534, 65_534)
        case .isWritable:
            mkdir("\(scripts)/bin", 0o700)
            chmod("\(scripts)/bin", 0o777)
        case .scriptsIsWritable: chmod(scripts, 0o777)
        case .stateIsWritable: chmod(state, 0o1777)
        case .stateIsLink: break
        }
    }

    @Test(arguments: Opening.allCases) func directoriesThatOthersCanChangeAreNotUsed(_ opening: Opening) throws {
        if opening == .isForeign, geteuid() != 0 { return }
        let directory = try TemporaryDirectory()
        let state = "\(directory.path)/state/scripts"
        let bin = ScriptRunner.binDirectory(state: state)
        #expect(throws: Never.self) { try ScriptRunner.requireOwn(bin, state: state) }
        open(opening, directory.path)
        #expect(throws: CoreError(.pathOccupied, "")) { try ScriptRunner.requireOwn(bin, state: state) }
    }

    /// A script that relies on its directories is better not started.
    @Test func aScriptIsNotRunInThem() async throws {
        try await ScriptFixture.with { fixture in
            let state = "\(fixture.home)/state"
            mkdir(state, 0o700)
            mkdir("\(fixture.home)/planted", 0o777)
            symlink("\(fixture.home)/planted", "\(state)/data")
            try fixture.manifest(scripts: [.make("touch ~/ran")])
            #expect(try await fixture.scripts.runStartScripts() == .failed)
            #expect(access("\(fixture.home)/ran", F_OK) != 0)
            #expect(try await fixture.delivered().lines.contains { $0.contains("\(state)/data is not a directory") })
            #expect(directoryEntries("\(fixture.home)/planted").isEmpty)
        }
    }
}
