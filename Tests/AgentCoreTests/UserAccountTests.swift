import Glibc
import Testing

@testable import AgentCore

@Suite struct UserAccountTests {
    @Test func rootIsInTheDatabase() throws {
        let root = try #require(UserAccount.find(0))
        #expect(root.name == "root" && root.home == "/root" && root.shell.hasPrefix("/"))
        #expect(root.variables == ["USER": "root", "LOGNAME": "root", "HOME": "/root", "SHELL": root.shell])
    }

    @Test func anArbitraryUserIsNot() { #expect(UserAccount.find(4_000_000_001) == nil) }

    /// What name services answer for an id that they do not know, or cannot look up.
    @Test(arguments: [0, ENOENT, ESRCH, EBADF, EPERM, EIO, EMFILE])
    func noEntryIsNoAccountWhateverTheNumber(_ code: CInt) {
        var calls = 0
        let account = UserAccount.find { _, _, _, found in
            calls += 1
            found.pointee = nil
            return code
        }
        #expect(account == nil && calls == 1)
    }

    /// glibc leaves the pointer as it was after an error.
    @Test func anErrorsEntryIsNotRead() {
        let account = UserAccount.find { entry, _, _, found in
            found.pointee = entry
            return EIO
        }
        #expect(account == nil)
    }

    @Test func aLongEntryGetsALargerBufferUpToTheLimit() {
        func find(_ needed: Int) -> (UserAccount?, sizes: [Int]) {
            var sizes: [Int] = []
            let account = UserAccount.find { entry, buffer, size, found in
                sizes.append(size)
                guard size >= needed else { return ERANGE }
                buffer[0] = CChar(UInt8(ascii: "x"))
                buffer[1] = 0
                (entry.pointee.pw_name, entry.pointee.pw_dir, entry.pointee.pw_shell) = (buffer, nil, nil)
                found.pointee = entry
                return 0
            }
            return (account, sizes)
        }
        #expect(find(4_097).0 == UserAccount(name: "x", home: "/", shell: ""))
        #expect(find(4_097).sizes == [4_096, 16_384])
        #expect(find(UserAccount.longestEntry).0 != nil)
        #expect(find(UserAccount.longestEntry + 1).0 == nil)
    }

    @Test func anInterruptedLookUpIsRepeated() {
        var calls = 0
        _ = UserAccount.find { _, _, _, found in
            calls += 1
            found.pointee = nil
            return calls == 1 ? EINTR : 0
        }
        #expect(calls == 2)
    }

    @Test func emptyFieldsAreNoVariables() {
        let account = UserAccount(name: "", home: "/", shell: "")
        #expect(account.variables == ["HOME": "/"])
    }
}
