import AgentTestSupport
import ControlPlane
import Foundation
import Testing

@testable import WorkspaceAgent

/// `stat`, by the built program on this machine; what it reads has its tests beside ``ResourceReader``.
@Suite("stat", .blocking) struct StatTests {
    @Test(arguments: [
        (0.0, "0"), (0.0004, "0"), (0.0005, "0"), (0.0006, "0.001"), (0.53, "0.53"), (0.1239, "0.124"), (0.9996, "1"),
        (1.0, "1"), (3.019, "3.02"), (3.5, "3.5"), (9.994, "9.99"), (9.996, "10"), (16.04, "16"), (16.06, "16.1"),
        (99.96, "100"), (100.4, "100"), (1234.6, "1235"), (-1, "0"),
    ])
    func numbersHaveAsManyDecimalsAsMakeSense(value: Double, text: String) {
        #expect(StatFigure.number(value) == text)
    }

    @Test func theTextOfAFigure() {
        func text(_ used: Double, _ total: Double?, _ unit: StatFigure.Unit, _ prefix: BinaryPrefix? = nil) -> String {
            StatFigure(amount: .init(used: used, total: total), unit: unit).text(prefix)
        }
        let gibi = 0x1p30
        #expect(text(0.53, 8, .cores) == "0.53/8 cores (7%)")
        #expect(text(0.53, nil, .cores) == "0.53 cores")
        #expect(text(3.02 * gibi, 16 * gibi, .bytes, .gibi) == "3.02/16 GiB (19%)")
        #expect(text(3.02 * gibi, 16 * gibi, .bytes, .tebi) == "0.003/0.016 TiB (19%)")
        #expect(text(1536, 4096, .bytes, .kibi) == "1.5/4 KiB (38%)")
        #expect(text(5 * 1024 * 1024, nil, .bytes, .mebi) == "5 MiB")
        // The file systems of the kernel's own have no size.
        #expect(text(0, 0, .bytes, .gibi) == "0/0 GiB")
    }

    @Test func jsonHasPlainNumbers() {
        let bytes = StatFigure(amount: .init(used: 12_345_678_901, total: nil), unit: .bytes)
        #expect(bytes.json.text(indented: false) == #"{"total":null,"unit":"B","used":12345678901}"#)
        let cores = StatFigure(amount: .init(used: 0.25, total: 2), unit: .cores)
        #expect(cores.json.text(indented: false) == #"{"total":2,"unit":"cores","used":0.25}"#)
    }

    private func stat(_ arguments: String..., environment: [String: String] = [:]) throws -> CommandResult {
        try CommandResult.of([DaemonProcess.binary, "stat"] + arguments, environment: environment)
    }

    private func json(_ result: CommandResult) throws -> [String: Any] {
        #expect(result.code == 0, "\(result.errors)")
        let object = try JSONSerialization.jsonObject(with: Data(result.output.utf8))
        return try #require(object as? [String: Any])
    }

    @Test func theMachinesProcessorsAndMemory() throws {
        let line = try stat("cpu", "--host").output
        #expect(line.wholeMatch(of: /[0-9.]+\/[0-9]+ cores \([0-9]+%\)\n/) != nil, "\(line)")
        let cores = try json(try stat("cpu", "--host", "-o", "json"))
        #expect(
            cores["total"] as? Int == Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))) && cores["unit"] as? String == "cores")
        let memory = try json(try stat("mem", "--host", "--prefix", "Ki", "--output", "json"))
        #expect(memory["unit"] as? String == "B")
        let total = try #require(memory["total"] as? Int)
        #expect(total > 1 << 28 && total == Int(sysconf(Int32(_SC_PHYS_PAGES))) * Int(sysconf(Int32(_SC_PAGESIZE))))
        let text = try stat("mem", "--host").output
        #expect(text.wholeMatch(of: /[0-9.]+\/[0-9.]+ GiB \([0-9]+%\)\n/) != nil, "\(text)")
        #expect(try stat("mem", "--host", "--prefix", "Mi").output.contains(" MiB ("))
    }

    /// Where the tests run may be a container or not; each has its own figures.
    @Test func withoutHostTheContainersIfThereIsOne() throws {
        #expect(try stat("cpu").output.contains(" cores"))
        #expect(try stat("mem").output.contains(" GiB"))
    }

    @Test func diskOfAPath() throws {
        var info = statvfs()
        let directory = try TemporaryDirectory()
        #expect(statvfs(directory.path, &info) == 0)
        let total = Int(info.f_blocks) * Int(info.f_frsize)
        #expect(try json(try stat("disk", "--path", directory.path, "-o", "json"))["total"] as? Int == total)
        #expect(try json(try stat("disk", directory.path, "-o", "json"))["total"] as? Int == total)
        let line = try stat("disk", "--prefix", "Ti").output
        #expect(line.wholeMatch(of: /[0-9.]+\/[0-9.]+ TiB \([0-9]+%\)\n/) != nil, "\(line)")
        let missing = try stat("disk", "--path", "/no/such \"path\"")
        #expect(missing.code == 1 && missing.output == "" && missing.errors == "not found: \"/no/such \\\"path\\\"\"\n")
        #expect(try stat("disk", "--prefix", "Pi").code == 2)
    }

    @Test func theTableAndItsJSON() throws {
        let lines = try stat().output.split(separator: "\n")
        #expect(lines.count == 2)
        #expect(
            lines[0].split(separator: #/ {2,}/#).map(String.init)
                == ["HOST CPU", "HOST MEMORY", "HOME DISK", "CONTAINER CPU", "CONTAINER MEMORY"])
        #expect(lines[1].split(separator: #/ {2,}/#).count == 5)
        for result in [
            try stat("-o", "json"), try stat("--output=json"),
            try stat(environment: ["WORKSPACE_AGENT_STAT_TABLE_OUTPUT": "json"]),
        ] {
            #expect(result.code == 0, "\(result.errors)")
            let list = try JSONSerialization.jsonObject(with: Data(result.output.utf8)) as? [[String: Any]]
            let object = try #require(list?.first)
            #expect(list?.count == 1)
            #expect(
                Set(object.keys) == ["host_cpu", "host_memory", "home_disk", "container_cpu", "container_memory"])
            #expect((object["home_disk"] as? [String: Any])?["unit"] as? String == "B")
        }
    }

    /// Those of `stat` itself are not given to its subcommands, nor theirs to it.
    @Test func variablesOfEachCommandAreItsOwn() throws {
        let variables = ["WORKSPACE_AGENT_STAT_OUTPUT": "json", "WORKSPACE_AGENT_STAT_TABLE_OUTPUT": "table"]
        #expect(try stat("cpu", environment: variables).output.hasPrefix("{"))
        #expect(try stat(environment: variables).output.hasPrefix("HOST CPU"))
        #expect(try stat("disk", environment: ["WORKSPACE_AGENT_STAT_PATH": "/no/such"]).code == 1)
        #expect(try stat("disk", "/", environment: ["WORKSPACE_AGENT_STAT_PATH": "/no/such"]).code == 0)
    }
}
