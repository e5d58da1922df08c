import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import Desktop

/// What a connection takes from the process, and what it does without. In processes of their own.
@Suite(.timeLimit(.minutes(15))) struct DriverResourceTests {
    private static func isMapped(_ library: String) -> Bool { ProcFS.text("/proc/self/maps").contains(library) }

    @Test func loadsEachLibraryAtItsFirstUse() async throws {
        await #expect(processExitsWith: .success) {
            let libraries = ["libxkbcommon.so", "libvncclient.so", "libpng16.so"]
            func mapped() -> [Bool] { libraries.map(Self.isMapped) }
            #expect(mapped() == [false, false, false])
            _ = try action(#"{"action":"left_click","coordinate":[1,1]}"#)
            _ = try action(#"{"action":"key","text":"a"}"#)
            #expect(mapped() == [false, false, false])
            _ = try action(#"{"action":"key","text":"Return"}"#)
            #expect(mapped() == [true, false, false])
            let xvnc = try Xvnc("640x480")
            let driver = try await xvnc.driver()
            #expect(mapped() == [true, true, false])
            try await driver.perform(#"{"action":"screenshot"}"#)
            #expect(mapped() == [true, true, true])
            await driver.close()
        }
    }

    /// The library's file is hidden in a mount namespace of the thread's own, which takes root.
    @Test(.enabled(if: getuid() == 0)) func namesThePackageThatIsMissing() async throws {
        await #expect(processExitsWith: .success) {
            typealias Unshare = @convention(c) (CInt) -> CInt
            typealias Mount =
                @convention(c) (
                    UnsafePointer<CChar>?, UnsafePointer<CChar>, UnsafePointer<CChar>?, UInt, UnsafeRawPointer?
                ) -> CInt
            let unshare = unsafeBitCast(try #require(dlsym(nil, "unshare")), to: Unshare.self)
            let mount = unsafeBitCast(try #require(dlsym(nil, "mount")), to: Mount.self)
            // CLONE_NEWNS; MS_REC and MS_PRIVATE; MS_BIND.
            try #require(unshare(0x20000) == 0)
            try #require(mount("none", "/", nil, 0x4000 | 1 << 18, nil) == 0)
            let found = try CommandResult.of(["sh", "-c", "ldconfig -p || /sbin/ldconfig -p"]).output
            let libraries: [(DesktopLibrary, String)] = [
                (.vncClient, "libvncclient.so.1"), (.png, "libpng16.so.16"), (.xkbCommon, "libxkbcommon.so.0"),
            ]
            for (library, name) in libraries {
                let line = try #require(found.split(separator: "\n").first { $0.contains(name + " ") })
                let path = String(try #require(line.components(separatedBy: " => ").last))
                try #require(mount("/dev/null", path, nil, 0x1000, nil) == 0)
                do {
                    try library.load()
                    Issue.record("\(name) was loaded")
                } catch let error as DesktopError {
                    #expect(error.code == .failed)
                    #expect(error.message.contains(library.package), "\(error)")
                }
            }
            #expect(throws: DesktopError(.failed, "")) { try action(#"{"action":"key","text":"Return"}"#) }
        }
    }

    /// libvncclient waits with select(), which is undefined beyond 1023.
    @Test func refusesDescriptorsThatAreTooHigh() async throws {
        await #expect(processExitsWith: .success) {
            let xvnc = try Xvnc("640x480")
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = min(limit.rlim_max, 4_096)
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            var taken: [CInt] = []
            while (taken.last ?? 0) < 1_100 {
                let descriptor = open("/dev/null", O_RDONLY)
                try #require(descriptor >= 0)
                taken.append(descriptor)
            }
            do {
                _ = try await xvnc.driver()
                Issue.record("connected")
            } catch let error as DesktopError {
                #expect(error.code == .failed && error.message.contains("below 1024"))
            }
            for descriptor in taken where descriptor > 1_000 && descriptor < 1_024 { close(descriptor) }
            let driver = try await xvnc.driver()
            try await driver.perform(#"{"action":"mouse_move","coordinate":[3,4]}"#)
            #expect(driver.isAlive)
            await driver.close()
        }
    }
}
