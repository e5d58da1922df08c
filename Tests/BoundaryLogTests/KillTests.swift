import AgentCore
import AgentProto
import AgentTestSupport
import Foundation
import Glibc
import Testing

@testable import BoundaryLog

/// A process with a queue is killed at random moments, while the control plane is away and while it
/// comes and goes. What was on disk arrives, unchanged and in order.
@Suite(.timeLimit(.minutes(5)), .serialized) struct KillTests {
    @Test func killedTwentyTimes() async throws {
        let directory = try TemporaryDirectory()
        var random = SeededGenerator("kill")
        let runs = 20
        for run in 0..<runs {
            // When so many batches are on disk, and so many milliseconds: any moment of what goes on then.
            let goal = Int.random(in: 0...1_500, using: &random)
            let pause = Int.random(in: 0...40, using: &random)
            // Control plane away, there, or dropped all the time.
            let link = run % 3
            let path = directory.path
            await #expect(processExitsWith: .signal(SIGKILL)) {
                [
                    path = path as String, run = run as Int, goal = goal as Int, pause = pause as Int,
                    link = link as Int
                ] in
                try await Self.live(path, run, goal, pause, link)
            }
        }
        // All that is left is delivered at the end.
        let test = try TestQueue(DurableQueue.Configuration(directory: directory.path))
        try await eventually("opened") {
            access(DurableQueue.Configuration(directory: directory.path).path + "-wal", F_OK) == 0
        }
        try await test.stored()
        let receiver = Receiver()
        let forwarder = test.forwarder()
        let run = Task { try await forwarder.run(report: receiver.report, classify: Receiver.classify) }
        test.add(request("end", 0))
        await forwarder.drained()
        run.cancel()
        try await run.value
        await test.queue.close()

        var arrived = (0..<runs).flatMap { Self.received("\(directory.path)/received\($0)") }
        arrived += receiver.state.value.requests
        var (committed, delivered, duplicates) = (0, 0, 0)
        var (sent, got) = (Hash(), Hash())
        for run in 0..<runs {
            let numbers = arrived.filter { $0.sessionID == "run\(run)" }.flatMap(\.logs)
            var next = 0
            for log in numbers {
                let number = Int(log.sequenceNumber)
                if number < next {
                    duplicates += 1
                    continue
                }
                #expect(number == next, "run \(run): \(number) came where \(next) was due")
                next = number + 1
                got.add(
                    encoded(Self.sample(run, number)) == encoded(Self.alone(log, run))
                        ? encoded(Self.alone(log, run)) : [0])
            }
            let durable = Self.durable(directory.path, run)
            #expect(next >= durable, "run \(run): \(durable) were on disk, \(next) arrived")
            for number in 0..<next { sent.add(encoded(Self.sample(run, number))) }
            committed += durable
            delivered += next
        }
        #expect(sent.value == got.value)
        #expect(committed > 0, "there was something to lose")
        print(
            "killed \(runs) times: at least \(committed) on disk, \(delivered) delivered, \(duplicates) duplicates, hash \(got.value)"
        )
    }

    struct Hash {
        // FNV-1a.
        var value: UInt64 = 0xcbf2_9ce4_8422_2325
        mutating func add(_ bytes: [UInt8]) { for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01b3 } }
    }

    static func sample(_ run: Int, _ number: Int) -> Request {
        request("run\(run)", number, padding: (number * 31 + run) % 900)
    }

    private static func alone(_ log: Coder_Agent_V2_BoundaryLog, _ run: Int) -> Request {
        var request = Request()
        request.sessionID = "run\(run)"
        request.logs = [log]
        return request
    }

    /// One run of the child.
    static func live(_ path: String, _ run: Int, _ goal: Int, _ pause: Int, _ link: Int) async throws {
        let test = try TestQueue(DurableQueue.Configuration(directory: path))
        // A file for each run: its last record may be cut off.
        let received = open("\(path)/received\(run)", O_WRONLY | O_CREAT | O_APPEND, 0o600)
        let durable = open("\(path)/durable\(run)", O_WRONLY | O_CREAT, 0o600)
        let onDisk = Mutex2(0)
        _ = startThread("killer") {
            for _ in 0..<5_000 where onDisk.value < goal { poll(nil, 0, 1) }
            poll(nil, 0, CInt(pause))
            kill(getpid(), SIGKILL)
        }
        let queue = test.queue
        _ = startThread("writer") {
            var number = 0
            while true {
                for _ in 0..<20 {
                    if test.add(sample(run, number)) { number += 1 }
                }
                // What is not staged any more is on disk.
                var safe = Int64(number - queue.status.stagedBatches)
                pwrite(durable, &safe, 8, 0)
                onDisk.value = Int(safe)
                poll(nil, 0, 1)
            }
        }
        let forwarder = test.forwarder()
        let calls = Mutex2(0)
        while link > 0 {
            try? await forwarder.run(
                report: { request in
                    let call = calls.update {
                        $0 += 1; return $0
                    }
                    let payload = encoded(request)
                    let count = UInt32(payload.count)
                    let record = withUnsafeBytes(of: count) { Array($0) } + payload
                    _ = write(received, record, record.count)
                    if link == 2, call % 20 == 0 { throw Receiver.Failure(what: "link") }
                }, classify: Receiver.classify)
        }
        await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    }

    static func durable(_ path: String, _ run: Int) -> Int {
        let data = (try? Data(contentsOf: URL(fileURLWithPath: "\(path)/durable\(run)"))) ?? Data()
        return data.count == 8 ? data.withUnsafeBytes { Int($0.loadUnaligned(as: Int64.self)) } : 0
    }

    static func received(_ path: String) -> [Request] {
        let data = [UInt8]((try? Data(contentsOf: URL(fileURLWithPath: path))) ?? Data())
        var (found, at): ([Request], Int) = ([], 0)
        while at + 4 <= data.count {
            let count = data[at..<at + 4].enumerated().reduce(0) { $0 | Int($1.element) << ($1.offset * 8) }
            guard at + 4 + count <= data.count else { break }
            if let request = try? Request(serializedBytes: Array(data[at + 4..<at + 4 + count])) {
                found.append(request)
            }
            at += 4 + count
        }
        return found
    }
}
