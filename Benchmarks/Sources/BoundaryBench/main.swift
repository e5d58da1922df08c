// How fast the boundary log proxy takes batches in and what one costs, beside the floor: the same bytes
// through a bare unix socket whose reader throws them away.
//
//     swift run -c release BoundaryBench [directory on the disk to measure]
import AgentCore
import BoundaryLog
import Glibc
import Logging
import NIOPosix

func seconds(_ clock: clockid_t) -> Double {
    var time = timespec()
    clock_gettime(clock, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

func residentMiB() -> Double {
    let fields = readTextFile("/proc/self/statm")?.split(separator: " ") ?? []
    return fields.count > 1 ? (Double(fields[1]) ?? 0) * 4_096 / 1_048_576 : 0
}

func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

/// Protobuf by hand: the generated types are not for other packages.
func field(_ number: UInt8, _ bytes: [UInt8]) -> [UInt8] {
    var length = bytes.count
    var head = [number << 3 | 2]
    while length >= 0x80 {
        head.append(UInt8(length & 0x7F) | 0x80)
        length >>= 7
    }
    return head + [UInt8(length)] + bytes
}

func varint(_ number: UInt8, _ value: Int) -> [UInt8] {
    var value = value
    var bytes = [number << 3]
    while value >= 0x80 {
        bytes.append(UInt8(value & 0x7F) | 0x80)
        value >>= 7
    }
    return bytes + [UInt8(value)]
}

/// A batch of 10 logs as boundary writes them, in an envelope (tag 2).
func frame(_ number: Int) -> [UInt8] {
    var request: [UInt8] = []
    for index in 0..<10 {
        let time = varint(1, 1_700_000_000 + number) + varint(2, 500_000_000)
        let http =
            field(1, Array("GET".utf8)) + field(2, Array("https://api.example.com/v1/items/\(index)".utf8))
            + field(3, Array("domain=example.com".utf8))
        request += field(1, varint(1, 1) + field(2, time) + field(3, http) + varint(4, number * 10 + index))
    }
    request += field(2, Array("0e7c1f0a-3b5d-4c2e-9f1a-6d8b7a5c4e3f".utf8)) + field(3, Array("claude-code".utf8))
    let payload = field(1, request)
    return [2, 0, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)] + payload
}

func connected(_ path: String) -> CInt {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    _ = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    return descriptor
}

/// Writes everything, 16 KiB at a time; returns the CPU seconds of the writer itself.
func writeAll(_ descriptor: CInt, _ bytes: [UInt8]) -> Double {
    let start = seconds(CLOCK_THREAD_CPUTIME_ID)
    bytes.withUnsafeBytes { bytes in
        var at = 0
        while at < bytes.count, let base = bytes.baseAddress {
            let count = write(descriptor, base + at, min(16_384, bytes.count - at))
            if count <= 0 { return }
            at += count
        }
    }
    return seconds(CLOCK_THREAD_CPUTIME_ID) - start
}

let directory = CommandLine.arguments.count > 1 ? CommandLine.arguments[1] : "/tmp/boundary-bench-\(getpid())"
try createDirectories(directory, mode: 0o700)
let path = "\(directory)/bench.sock"
let sample = frame(1_000_000)
let count = min(95_000, BoundaryLimits.queueBytes / sample.count - 100)
var bytes: [UInt8] = []
bytes.reserveCapacity(count * (sample.count + 4))
for number in 0..<count { bytes += frame(number) }

// The floor.
let listener = try UnixListener.bind(path: path)
let reader = NIOThreadPool(numberOfThreads: 1)
reader.start()
let writer = connected(path)
let accepted = accept(listener.descriptor, nil, nil)
let floorStart = seconds(CLOCK_MONOTONIC)
let floorCPUStart = seconds(CLOCK_PROCESS_CPUTIME_ID)
let floorDone = reader.runIfActive(eventLoop: MultiThreadedEventLoopGroup.singleton.any()) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while read(accepted, &buffer, buffer.count) > 0 {}
}
let floorWriter = writeAll(writer, bytes)
close(writer)
try await floorDone.get()
let floorTime = seconds(CLOCK_MONOTONIC) - floorStart
let floorCPU = seconds(CLOCK_PROCESS_CPUTIME_ID) - floorCPUStart - floorWriter
listener.remove()
close(listener.descriptor)

let registry = MetricsRegistry()
let metrics = BoundaryMetrics(registry: registry)
var logger = Logger(label: "bench")
logger.logLevel = .error
let queue = try DurableQueue(
    configuration: .init(directory: directory), clock: AgentClock(ContinuousClock()), metrics: metrics,
    registry: registry, logger: logger)
let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
let proxy = BoundaryProxy(
    configuration: .init(path: path), queue: queue, group: group, metrics: metrics, logger: logger)
try proxy.bind()
// Detached: this thread writes and would keep the main actor to itself.
let running = Task.detached { try await proxy.run() }

print("batches of 10 logs, \(sample.count) bytes each, one writer as fast as it can")
print(
    "floor, bytes thrown away   \(Int(Double(count) / floorTime)) batches/s, \(rounded(floorCPU / Double(count) * 1e6)) µs of CPU each"
)
var droppedBefore = 0
for round in 1...3 {
    let before = residentMiB()
    let start = seconds(CLOCK_MONOTONIC)
    let cpuStart = seconds(CLOCK_PROCESS_CPUTIME_ID)
    let descriptor = connected(path)
    let writerCPU = writeAll(descriptor, bytes)
    close(descriptor)
    while queue.status.batches + queue.status.dropped - droppedBefore < count { poll(nil, 0, 1) }
    let taken = seconds(CLOCK_MONOTONIC) - start
    while queue.status.stagedBatches > 0 { poll(nil, 0, 1) }
    let stored = seconds(CLOCK_MONOTONIC) - start
    let cpu = (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpuStart - writerCPU) / Double(count) * 1e6
    let status = queue.status
    print(
        "round \(round): taken in          \(Int(Double(count) / taken)) batches/s (promised ≥ 75000), \(rounded(taken / floorTime))x the floor's time; on disk \(Int(Double(count) / stored))/s"
    )
    print(
        "         dropped \(status.dropped - droppedBefore) of \(count), CPU \(rounded(cpu)) µs a batch (promised ≤ 20), RSS \(rounded(before)) → \(rounded(residentMiB())) MiB"
    )
    droppedBefore = status.dropped
    queue.acknowledge(through: .max)
    await queue.drained()
}
running.cancel()
try await running.value
await queue.close()
