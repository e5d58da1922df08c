import AgentCore
import AgentTestSupport
import CPlatform
import Glibc
import NIOCore
import Testing

@testable import AgentProc

@Suite struct ProcessInputTests {
    private let reactor: Reactor
    private let reader: OwnedBox
    private let input: ProcessInput

    /// Closes a descriptor with the suite.
    final class OwnedBox: Sendable {
        let descriptor: CInt
        init(_ descriptor: CInt) { self.descriptor = descriptor }
        deinit { close(descriptor) }
    }

    init() throws {
        // As in the daemon.
        wa_ignore_sigpipe()
        reactor = try Reactor()
        try #require(reactor.start())
        let ends = try makeInputPipe()
        _ = wa_set_nonblocking(ends.read)
        reader = OwnedBox(ends.read)
        input = ProcessInput(ends.write, isTerminal: false, reactor)
    }

    /// What is in the pipe now; nil at its end.
    private func read() -> [UInt8]? {
        var area = [UInt8](repeating: 0, count: 1 << 20)
        let count = wa_read(reader.descriptor, &area, area.count)
        return count == 0 ? nil : Array(area.prefix(max(count, 0)))
    }

    private func collect(_ count: Int) async throws -> [UInt8] {
        var all: [UInt8] = []
        try await eventually("\(count) bytes are read") {
            all += read() ?? []
            return all.count >= count
        }
        return all
    }

    @Test func writesWaitUntilTheReaderReads() async throws {
        let bytes = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0) }
        let input = input
        let first = Task { await input.write(ByteBuffer(bytes: bytes)) }
        try await eventually("the pipe is full") { wa_readable_bytes(reader.descriptor) >= 65_536 }
        let second = Task { await input.write(ByteBuffer(string: "after")) }
        #expect(try await collect(bytes.count + 5) == bytes + Array("after".utf8))
        #expect(await first.value)
        #expect(await second.value)
        input.end()
        #expect(!input.isOpen)
        // A child that another test is starting may hold the pipe for a moment.
        try await eventually("the pipe is closed") { read() == nil }
        #expect(await !input.write(ByteBuffer(string: "more")))
        await reactor.stop()
    }

    @Test func theEndComesBehindWhatWaits() async throws {
        let input = input
        let write = Task { await input.write(ByteBuffer(repeating: 7, count: 300_000)) }
        try await eventually("the pipe is full") { wa_readable_bytes(reader.descriptor) >= 65_536 }
        input.end()
        #expect(input.isOpen)
        #expect(try await collect(300_000).count == 300_000)
        #expect(await write.value)
        try await eventually("the pipe is closed") { read() == nil }
        await reactor.stop()
    }

    @Test func aCancelledWriteMakesRoomForTheNext() async throws {
        let input = input
        let stuck = Task { await input.write(ByteBuffer(repeating: 1, count: 200_000)) }
        try await eventually("the pipe is full") { wa_readable_bytes(reader.descriptor) >= 65_536 }
        let next = Task { await input.write(ByteBuffer(string: "next")) }
        stuck.cancel()
        #expect(await !stuck.value)
        var all: [UInt8] = []
        try await eventually("the next is read") {
            all += read() ?? []
            return all.suffix(4).elementsEqual("next".utf8)
        }
        #expect(all.count < 200_000)
        #expect(await next.value)
        await reactor.stop()
    }

    @Test func aReaderThatHasGoneEndsIt() async throws {
        let ends = try makeInputPipe()
        let input = ProcessInput(ends.write, isTerminal: false, reactor)
        let stuck = Task { await input.write(ByteBuffer(repeating: 1, count: 200_000)) }
        try await eventually("the pipe is full") { wa_readable_bytes(ends.read) >= 65_536 }
        close(ends.read)
        #expect(await !stuck.value)
        #expect(!input.isOpen)
        await reactor.stop()
    }

    @Test func shutReleasesThoseWhoWait() async throws {
        let input = input
        let stuck = Task { await input.write(ByteBuffer(repeating: 1, count: 200_000)) }
        try await eventually("the pipe is full") { wa_readable_bytes(reader.descriptor) >= 65_536 }
        input.shut()
        #expect(await !stuck.value)
        input.shut()
        await reactor.stop()
    }
}

@Suite struct EndOfFileKeyTests {
    @Test func halfALineNeedsItTwice() {
        let key = EndOfFileKey(key: 4, lineEnds: [10, 13, 4, 3])
        for last: UInt8? in [nil, 10, 13, 4, 3] { #expect(key.presses(after: last) == [4], "\(last ?? 0)") }
        for last: UInt8 in [0, 32, 97, 127, 255] { #expect(key.presses(after: last) == [4, 4], "\(last)") }
        // In raw mode it is a key like others.
        #expect(EndOfFileKey(key: 4).presses(after: 97) == [4])
    }

    @Test func theTerminalSaysWhichKey() throws {
        let ends = try makeTerminal(rows: 24, columns: 80)
        defer {
            close(ends.ours)
            close(ends.theirs)
        }
        let usual = EndOfFileKey(ends.ours)
        #expect(usual.key == 4)
        #expect(usual.lineEnds == [10, 13, 4, 3, 28, 26, 21])
        var settings = termios()
        try #require(tcgetattr(ends.theirs, &settings) == 0)
        withUnsafeMutableBytes(of: &settings.c_cc) { $0[Int(VEOF)] = 24 }
        settings.c_iflag &= ~tcflag_t(ICRNL)
        settings.c_lflag &= ~tcflag_t(ISIG)
        try #require(tcsetattr(ends.theirs, TCSANOW, &settings) == 0)
        #expect(EndOfFileKey(ends.ours) == EndOfFileKey(key: 24, lineEnds: [10, 24, 21]))
        cfmakeraw(&settings)
        try #require(tcsetattr(ends.theirs, TCSANOW, &settings) == 0)
        #expect(EndOfFileKey(ends.ours).lineEnds == nil)
        // What has no terminal.
        #expect(EndOfFileKey(-1) == EndOfFileKey())
    }
}
