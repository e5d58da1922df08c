import BoundaryLog
internal import SwiftProtobuf

/// The frame codec and the scanner. Reading in pieces must give what reading at once gives; the
/// scanner must take and refuse what SwiftProtobuf's decoder does, and find the same.
func fuzz(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let input = Array(UnsafeRawBufferPointer(start: data, count: count))
    let whole = read(input, step: max(1, count))
    guard read(input, step: Int(input.first ?? 0) % 13 + 1) == whole else { fatalError("pieces gave something else") }
    for frame in whole.frames { compare(frame.tag, frame.payload) }
    // Not only what a length of the frame allows.
    compare(.request, input)
    compare(.envelope, input)
    return 0
}

private struct Frame: Equatable {
    var tag: FrameCodec.Tag
    var payload: [UInt8]
}

private struct Reading: Equatable {
    var frames: [Frame] = []
    var violation: FrameCodec.Violation?
    var pending = 0
}

private func read(_ input: [UInt8], step: Int) -> Reading {
    var codec = FrameCodec()
    var reading = Reading()
    for start in stride(from: 0, to: input.count, by: step) {
        let piece = Array(input[start..<min(start + step, input.count)])
        do {
            try piece.withUnsafeBytes { bytes in
                try codec.feed(bytes) { reading.frames.append(Frame(tag: $0, payload: Array($1))) }
            }
        } catch {
            reading.violation = error as? FrameCodec.Violation
            break
        }
        guard codec.pending <= FrameCodec.headerBytes + BoundaryLimits.frameBytes else {
            fatalError("more than a frame")
        }
    }
    reading.pending = codec.pending
    return reading
}

private func compare(_ tag: FrameCodec.Tag, _ bytes: [UInt8]) {
    let content = bytes.withUnsafeBytes { try? BatchScanner.scan(tag, $0) }
    var request: Coder_Agent_V2_ReportBoundaryLogsRequest?
    switch tag {
    case .request:
        request = try? Coder_Agent_V2_ReportBoundaryLogsRequest(serializedBytes: bytes)
        guard (request == nil) == (content == nil) else { fatalError("one of them takes it") }
    case .envelope:
        let message = try? Coder_Boundarylogproxy_Codec_V1_BoundaryMessage(serializedBytes: bytes)
        guard (message == nil) == (content == nil) else { fatalError("one of them takes it") }
        switch message?.msg {
        case .logs(let logs)?: request = logs
        case .status(let status)?:
            let expected = FrameContent.status(
                channelFull: status.droppedChannelFull, batchFull: status.droppedBatchFull)
            guard content == expected else { fatalError("another status") }
        case nil: guard message == nil || content == .empty else { fatalError("not empty") }
        }
    }
    guard let request else { return }
    guard case .batch(let parts, let summary)? = content else { fatalError("no batch") }
    var run = SequenceRun()
    for log in request.logs { run.note(log.sequenceNumber) }
    guard summary.logs == request.logs.count, summary.sequence == run,
        bytes[summary.session].elementsEqual(request.sessionID.utf8)
    else { fatalError("another summary") }
    let joined = parts.flatMap { bytes[$0] }
    guard (try? Coder_Agent_V2_ReportBoundaryLogsRequest(serializedBytes: joined)) == request else {
        fatalError("what is forwarded is something else")
    }
}
