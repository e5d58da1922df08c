import AgentCore
import AgentTestSupport
import Glibc
import Testing

@testable import ControlPlane

/// What `stat` reads, from files as kernels of several kinds write them.
@Suite struct ContainerTests {
    /// What the body finds out from the files.
    private func reading<T>(_ files: [String: String], _ body: (ResourceReader) throws -> T) throws -> T {
        let directory = try TemporaryDirectory()
        return try withExtendedLifetime(directory) { try body(try reader(directory, files)) }
    }

    private func reader(_ directory: TemporaryDirectory, _ files: [String: String]) throws -> ResourceReader {
        for (path, text) in files {
            let whole = directory.path + path
            try createDirectories(parentDirectory(of: whole), mode: 0o700)
            let file = try #require(fopen(whole, "w"))
            fputs(text, file)
            fclose(file)
        }
        return ResourceReader(root: directory.path)
    }

    private static let meminfo = "MemTotal:       1000000 kB\nMemFree:  1 kB\nMemAvailable:   400000 kB\n"
    /// A host: systemd's groups, and a root that has no type.
    private static let host = [
        "/proc/meminfo": meminfo, "/proc/1/cgroup": "0::/init.scope\n",
        "/proc/self/cgroup": "0::/user.slice/session.scope\n", "/sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
        "/proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\noverlay /var/lib/docker/x/merged overlay rw 0 0\n",
        "/proc/1/environ": "HOME=/\0TERM=linux\0",
    ]

    @Test func aHostIsNotAContainer() throws {
        #expect(try !reading(Self.host) { $0.isInContainer() })
        #expect(try !reading([:]) { $0.isInContainer() })
    }

    @Test(arguments: [
        ["/.dockerenv": ""], ["/run/.containerenv": ""], ["/run/systemd/container": "lxc\n"],
        ["/var/run/secrets/kubernetes.io/serviceaccount/namespace": "x"],
        ["/sys/fs/cgroup/cgroup.type": "domain\n"],
        ["/proc/1/cgroup": "0::/system.slice/docker-0123.scope\n"],
        ["/proc/1/cgroup": "12:memory:/kubepods/burstable/pod1/abc\n"],
        ["/proc/1/environ": "container=podman\0HOME=/\0"],
        ["/proc/self/mounts": "proc /proc proc rw 0 0\noverlay / overlay rw,lowerdir=x 0 0\n"],
    ])
    func aContainerIs(mark: [String: String]) throws {
        let files = Self.host.merging(mark) { _, new in new }
        #expect(try reading(files) { $0.isInContainer() })
    }

    @Test func memory() throws {
        typealias Amount = ResourceReader.Amount
        let namespace = [
            "/proc/meminfo": Self.meminfo, "/proc/self/cgroup": "0::/inner\n",
            "/sys/fs/cgroup/cgroup.type": "domain\n", "/sys/fs/cgroup/memory.current": "300000000\n",
            "/sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 100000000\n",
            "/sys/fs/cgroup/inner/memory.current": "7\n",
        ]
        func of(_ files: [String: String], _ more: [String: String] = [:]) throws -> Amount? {
            try reading(files.merging(more) { _, new in new }) { $0.containerMemory() }
        }
        #expect(try of(namespace) == Amount(used: 200_000_000, total: nil), "the container's, not the inner group's")
        #expect(try of(namespace, ["/sys/fs/cgroup/memory.max": "max\n"])?.total == nil)
        #expect(try of(namespace, ["/sys/fs/cgroup/memory.max": "500000000\n"])?.total == 500_000_000)
        let version1 = [
            "/proc/meminfo": Self.meminfo, "/proc/self/cgroup": "4:memory:/docker/abc\n0::/docker/abc\n",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes": "100000000\n",
            "/sys/fs/cgroup/memory/memory.stat": "total_inactive_file 40000000\n",
        ]
        #expect(try of(version1) == Amount(used: 60_000_000, total: nil), "no limit is no total")
        let limit = ["/sys/fs/cgroup/memory/memory.limit_in_bytes": "600000000\n"]
        #expect(try of(version1, limit) == Amount(used: 60_000_000, total: 600_000_000))
        #expect(try of(["/proc/meminfo": Self.meminfo]) == nil)
        let machine = try reading(["/proc/meminfo": Self.meminfo]) { $0.machineMemory() }
        #expect(machine == Amount(used: 614_400_000, total: 1_024_000_000))
    }

    @Test func coresOfTheMachine() throws {
        func sample(_ line: String) throws -> ResourceReader.ProcessorSample {
            let text = "cpu  \(line)\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5\n"
            return try #require(try reading(["/proc/stat": text]) { $0.machineProcessors(at: .zero) })
        }
        // user nice system idle iowait irq softirq steal guest guest_nice
        let first = try sample("100 0 50 1000 20 0 5 5 90 0")
        let second = try sample("104 0 51 1014 21 0 5 5 94 0")
        #expect(ResourceReader.cores(from: first, to: second) == .init(used: 0.5, total: 2), "5 of 20 ticks, two cores")
        #expect(ResourceReader.cores(from: first, to: first) == .init(used: 0, total: 2), "the clock stood still")
        #expect(ResourceReader.cores(from: second, to: first) == .init(used: 0, total: 2), "it went back")
        #expect(try reading(["/proc/stat": "nonsense\n"]) { $0.machineProcessors(at: .zero) } == nil)
    }

    @Test(
        arguments: [
            (
                [
                    "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cgroup.type": "domain\n",
                    "/sys/fs/cgroup/cpu.max": "150000 100000\n",
                ], "/sys/fs/cgroup/cpu.stat", "usage_usec 1000000\nuser_usec 1\n", "usage_usec 1075000\n", 1.5
            ),
            (
                [
                    "/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cgroup.type": "domain\n",
                    "/sys/fs/cgroup/cpu.max": "max 100000\n",
                ], "/sys/fs/cgroup/cpu.stat", "usage_usec 1000000\n", "usage_usec 1075000\n", nil
            ),
            (
                [
                    "/proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n",
                    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                    "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                ], "/sys/fs/cgroup/cpuacct/cpuacct.usage", "1000000000\n", "1075000000\n", 2
            ),
            (
                [
                    "/proc/self/cgroup": "3:cpu,cpuacct:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                    "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                ], "/sys/fs/cgroup/cpuacct/cpuacct.usage", "1000000000\n", "1075000000\n", nil
            ),
        ] as [([String: String], String, String, String, Double?)])
    func coresOfAContainer(
        files: [String: String], counter: String, before: String, after: String, limit: Double?
    ) throws {
        let directory = try TemporaryDirectory()
        let first = try #require(
            try reader(directory, files.merging([counter: before]) { _, new in new }).containerProcessors(at: .zero))
        let second = try #require(
            try reader(directory, [counter: after]).containerProcessors(at: .milliseconds(100)))
        let cores = ResourceReader.cores(from: first, to: second)
        #expect(abs(cores.used - 0.75) < 1e-9 && cores.total == limit, "\(cores)")
    }

    @Test func thisMachine() throws {
        let reader = ResourceReader()
        let first = try #require(reader.machineProcessors(at: .zero))
        let second = try #require(reader.machineProcessors(at: .seconds(1)))
        let cores = ResourceReader.cores(from: first, to: second)
        #expect(cores.used >= 0 && cores.used <= cores.total ?? 0)
        let memory = try #require(reader.machineMemory())
        #expect(memory.used > 0 && memory.used < memory.total ?? 0)
    }
}
