import AgentTestSupport
import Glibc
import Testing

@testable import AgentCore

@Suite struct FilesTests {
    @Test func theWantedDirectoryIsUsedOnlyWhenItIsOne() throws {
        let directory = try TemporaryDirectory()
        let (wanted, home) = ("\(directory.path)/wanted", "/home/of/user")
        func used(_ wanted: String?) -> [String?] {
            let (path, missing) = usableDirectory(wanted, home: home)
            return [path, missing]
        }
        #expect(used(nil) == [home, nil])
        #expect(used("") == [home, nil])
        #expect(used(wanted) == [home, wanted])
        close(open(wanted, O_CREAT | O_WRONLY, 0o700))
        #expect(used(wanted) == [home, wanted])
        unlink(wanted)
        mkdir(wanted, 0o755)
        #expect(used(wanted) == [wanted, nil])
        symlink(wanted, "\(directory.path)/link")
        #expect(used("\(directory.path)/link") == ["\(directory.path)/link", nil])
    }
}
