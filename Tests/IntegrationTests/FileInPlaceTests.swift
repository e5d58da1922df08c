import AgentTestSupport
import Foundation
import Glibc
import Testing

/// Files that no other file can take the place of, and those that may not be written.
@Suite(.timeLimit(.minutes(10)), .blocking, .enabled(if: Privileges.isRoot, "mounting needs root"))
struct FileInPlaceTests {
    private let scratch: TemporaryDirectory

    init() throws { scratch = try TemporaryDirectory() }

    private var path: String { "\(scratch.path)/f" }

    private func write(_ text: String, _ path: String? = nil, on daemon: DaemonProcess) throws
        -> RawConnection.Response
    {
        try daemon.connect().request("POST", "/api/v0/write-file?path=\(path ?? self.path)", body: text)
    }

    private func edit(_ search: String, _ replace: String, _ path: String? = nil, on daemon: DaemonProcess) throws
        -> RawConnection.Response
    {
        let body: [String: Any] = [
            "files": [["path": path ?? self.path, "edits": [["search": search, "replace": replace]]]]
        ]
        return try daemon.connect().request(
            "POST", "/api/v0/edit-files", headers: ["Content-Type": "application/json"],
            body: String(decoding: try JSONSerialization.data(withJSONObject: body), as: UTF8.self))
    }

    private func content(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }

    private func info(_ path: String) throws -> stat {
        var info = stat()
        try #require(stat(path, &info) == 0)
        return info
    }

    private func mount(_ arguments: String...) throws {
        try #require(try CommandResult.of(["mount"] + arguments).code == 0, "cannot mount \(arguments)")
    }

    private func isInPlace(_ response: RawConnection.Response) -> Bool {
        let file = (response.json["files"] as? [[String: Any]])?.first ?? response.json
        return file["in_place"] as? Bool == true
    }

    /// What was left anywhere by the agent.
    private func leftOver() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: scratch.path).filter { $0.hasPrefix(".") }
            + FileManager.default.contentsOfDirectory(atPath: "/tmp").filter { $0.hasPrefix(".workspace-agent") }
    }

    /// As Kubernetes mounts the files of secrets and config maps.
    @Test func aMountedFileIsOverwritten() async throws {
        let real = "\(scratch.path)/real"
        for file in [real, path] { try "one two three\n".write(toFile: file, atomically: false, encoding: .utf8) }
        chmod(real, 0o640)
        chown(real, 54_321, 54_322)
        try mount("--bind", real, path)
        defer { umount2(path, CInt(MNT_DETACH)) }
        let before = try info(path)
        let daemon = try DaemonProcess()
        let shorter = try write("four\n", on: daemon)
        #expect(shorter.status == 200 && isInPlace(shorter), "\(shorter.text)")
        #expect(content(real) == "four\n", "cut off behind the new end")
        let longer = try write(String(repeating: "five\n", count: 100_000), on: daemon)
        #expect(longer.status == 200 && content(real)?.utf8.count == 500_000)
        #expect(try write("a  b\nc\n", on: daemon).status == 200)
        let edited = try edit("a b\n", "x\n", on: daemon)
        #expect(edited.status == 400, "the text is not there")
        let fuzzy = try edit("a  b \nc\n", "x\nc\n", on: daemon)
        #expect(fuzzy.status == 200 && isInPlace(fuzzy) && content(real) == "x\nc\n", "\(fuzzy.text)")
        let after = try info(path)
        #expect(after.st_ino == before.st_ino && after.st_mode == before.st_mode)
        #expect(after.st_uid == 54_321 && after.st_gid == 54_322)
        let tag = try #require(longer.json["etag"] as? String)
        let stale = try daemon.connect().request(
            "POST", "/api/v0/write-file?path=\(path)", headers: ["If-Match": tag], body: "z")
        #expect(stale.status == 412 && content(real) == "x\nc\n")
        #expect(try leftOver().isEmpty)
        #expect(try await daemon.stop() == 0)
    }

    /// A disk that has no room for the new content still has the old one.
    @Test func aMountedFileOnAFullDiskKeepsItsContent() async throws {
        let small = "\(scratch.path)/small"
        mkdir(small, 0o755)
        try mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", small)
        defer { umount2(small, CInt(MNT_DETACH)) }
        for file in ["\(small)/f", path] { try "old\n".write(toFile: file, atomically: false, encoding: .utf8) }
        try mount("--bind", "\(small)/f", path)
        defer { umount2(path, CInt(MNT_DETACH)) }
        let daemon = try DaemonProcess()
        let response = try write(String(repeating: "x", count: 1 << 20), on: daemon)
        #expect(response.status >= 400 && response.text.contains("no space left"), "\(response.text)")
        #expect(content("\(small)/f") == "old\n")
        #expect(try leftOver().isEmpty)
        #expect(try await daemon.stop() == 0)
    }

    /// - Returns: a daemon of an ordinary user.
    private func userDaemon() throws -> DaemonProcess {
        let directory = try TemporaryDirectory()
        chown(directory.path, 54_321, 54_321)
        chmod(scratch.path, 0o755)
        return try DaemonProcess(
            environment: ["HOME": directory.path],
            wrapper: ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"], directory: directory)
    }

    @Test func aFileInADirectoryThatMayNotBeWrittenIsOverwritten() async throws {
        let daemon = try userDaemon()
        try "pear\n".write(toFile: path, atomically: false, encoding: .utf8)
        chown(path, 54_321, 54_321)
        let before = try info(path).st_ino
        let response = try edit("pear", "plum", on: daemon)
        #expect(response.status == 200 && isInPlace(response), "\(response.text)")
        #expect(try content(path) == "plum\n" && info(path).st_ino == before)
        // A new one cannot be made there.
        #expect(try write("x", "\(scratch.path)/new", on: daemon).status == 403)
        #expect(try leftOver().isEmpty)
        #expect(try await daemon.stop() == 0)
    }

    /// As in /tmp: the file may be written, but no other can take its name.
    @Test func anothersFileInAStickyDirectoryIsOverwritten() async throws {
        let daemon = try userDaemon()
        chmod(scratch.path, 0o1777)
        try "pear\n".write(toFile: path, atomically: false, encoding: .utf8)
        chmod(path, 0o666)
        let before = try info(path).st_ino
        var tags: Set<String> = []
        for text in ["plum\n", "fig1\n", "fig2\n", "fig3\n"] {
            let response = try write(text, on: daemon)
            #expect(response.status == 200 && isInPlace(response), "\(response.text)")
            tags.insert(response.json["etag"] as? String ?? "")
            #expect(try content(path) == text && info(path).st_ino == before)
        }
        #expect(tags.count == 4, "each version has a tag of its own")
        #expect(try leftOver().isEmpty)
        #expect(try await daemon.stop() == 0)
    }

    /// A sparse file needs room within its old size.
    @Test func roomIsReservedForTheHolesToo() async throws {
        let small = "\(scratch.path)/small"
        mkdir(small, 0o755)
        try mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", small)
        defer { umount2(small, CInt(MNT_DETACH)) }
        for file in ["\(small)/f", path] { try "old\n".write(toFile: file, atomically: false, encoding: .utf8) }
        #expect(truncate("\(small)/f", 4 << 20) == 0)
        try mount("--bind", "\(small)/f", path)
        defer { umount2(path, CInt(MNT_DETACH)) }
        let daemon = try DaemonProcess()
        let response = try write(String(repeating: "x", count: 1 << 20), on: daemon)
        #expect(response.status >= 400 && response.text.contains("no space left"), "\(response.text)")
        #expect(content("\(small)/f")?.hasPrefix("old\n") == true)
        #expect(try await daemon.stop() == 0)
    }

    @Test func anOwnerThatCannotBeKeptIsSaid() async throws {
        let daemon = try userDaemon()
        try "pear\n".write(toFile: path, atomically: false, encoding: .utf8)
        chmod(path, 0o666)
        chown(scratch.path, 54_321, 54_321)
        let response = try write("plum\n", on: daemon)
        #expect(response.status == 200 && response.json["owner_changed"] as? Bool == true, "\(response.text)")
        #expect(response.json["in_place"] == nil && response.json["mode_changed"] == nil)
        #expect(try info(path).st_uid == 54_321 && content(path) == "plum\n")
        chown(path, 0, 0)
        chmod(path, 0o4777)
        let second = try write("fig\n", on: daemon)
        #expect(second.json["mode_changed"] as? Bool == true && second.json["owner_changed"] as? Bool == true)
        #expect(try info(path).st_mode & 0o7777 == 0o777, "another user's set-id bit would be another permission")
        #expect(try await daemon.stop() == 0)
    }

    /// As a shell would, though the directory allows to replace it; root by the mode alone.
    @Test(arguments: [true, false]) func aReadOnlyFileIsNotWritten(asRoot: Bool) async throws {
        let daemon = asRoot ? try DaemonProcess() : try userDaemon()
        try "pear\n".write(toFile: path, atomically: false, encoding: .utf8)
        chown(scratch.path, asRoot ? 0 : 54_321, 0)
        chown(path, asRoot ? 0 : 54_321, 0)
        chmod(path, 0o444)
        for response in [try write("x", on: daemon), try edit("pear", "plum", on: daemon)] {
            #expect(response.status == 403 && response.text.contains("permission denied"), "\(response.text)")
        }
        #expect(try edit("pear", "pear", on: daemon).status == 200, "it changes nothing")
        #expect(content(path) == "pear\n")
        chmod(path, 0o600)
        #expect(try write("x", on: daemon).status == 200)
        #expect(try await daemon.stop() == 0)
    }

    @Test func aReadOnlyMountIsSaid() async throws {
        let mounted = "\(scratch.path)/d"
        mkdir(mounted, 0o755)
        try "pear\n".write(toFile: "\(mounted)/f", atomically: false, encoding: .utf8)
        try mount("--bind", mounted, mounted)
        defer { umount2(mounted, CInt(MNT_DETACH)) }
        try mount("-o", "remount,bind,ro", mounted)
        let daemon = try DaemonProcess()
        for name in ["f", "new"] {
            let response = try write("x", "\(mounted)/\(name)", on: daemon)
            #expect(response.status >= 400 && response.text.contains("read-only file system"), "\(response.text)")
        }
        #expect(content("\(mounted)/f") == "pear\n")
        #expect(try await daemon.stop() == 0)
    }
}
