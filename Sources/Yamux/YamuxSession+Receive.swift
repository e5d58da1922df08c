import NIOCore

/// Events of the other side. Late frames of streams that have ended are skipped, and so is everything after the
/// session's end.
extension YamuxSession {
    /// Takes the next element of the byte stream.
    public mutating func receive(_ element: YamuxDecoder.Element) {
        guard ended == nil else { return }
        switch element {
        case .header(let header): receive(header)
        case .payload(let data): receive(data)
        }
    }

    private mutating func receive(_ header: YamuxHeader) {
        incoming = nil
        switch header.kind {
        case .data, .windowUpdate:
            if header.flags.contains(.syn), !admit(header) { return }
            guard let index = streams.index(forKey: header.stream) else { return }
            if header.flags.contains(.rst) { return forget(header.stream, .reset(header.stream)) }
            // An ACK needs no action: we may send before it, and a refusal is a RST.
            if header.flags.contains(.fin), streams.values[index].inputEnded {
                return end(.violation("stream \(header.stream) got a second FIN"))
            }
            if header.kind == .data { receiveData(header, index) } else { receiveWindow(header, index) }
        case .ping:
            if header.flags.contains(.syn) {
                act(.send(YamuxHeader(.ping, .ack, stream: 0, length: header.length)))
            } else if header.flags.contains(.ack) {
                receivePong(header.length)
            }
        case .goAway:
            guard header.length == YamuxHeader.goAwayNormal else {
                return end(YamuxError(.goAway(header.length), "the other side ended the session: \(header.reason)"))
            }
            if !receivedGoAway {
                receivedGoAway = true
                act(.goingAway)
            }
        }
    }

    /// False when the session is over.
    private mutating func admit(_ header: YamuxHeader) -> Bool {
        let id = header.stream
        guard id != 0 else {
            end(.violation("stream 0 cannot be opened"))
            return false
        }
        guard streams[id] == nil, seen.insert(id) else {
            end(.violation("stream \(id) was opened twice"))
            return false
        }
        if header.flags.contains(.rst) { return true }
        guard mayAdmit() else {
            act(.send(YamuxHeader(.windowUpdate, .rst, stream: id)))
            return true
        }
        streams[id] = Stream(isAccepted: false)
        unaccepted += 1
        act(.opened(id))
        return true
    }

    private mutating func receiveWindow(_ header: YamuxHeader, _ index: Dictionary<UInt32, Stream>.Index) {
        let window = streams.values[index].sendWindow
        let (sum, overflow) = window.addingReportingOverflow(header.length)
        if overflow { return end(.violation("the window of stream \(header.stream) grew past 32 bits")) }
        streams.values[index].sendWindow = sum
        if window == 0, sum > 0 {
            markReady(header.stream, index)
            act(.windowOpened(header.stream))
        }
        if header.flags.contains(.fin) { endInput(header.stream) }
    }

    private mutating func receiveData(_ header: YamuxHeader, _ index: Dictionary<UInt32, Stream>.Index) {
        let window = streams.values[index].receiveWindow
        guard header.length <= window else {
            return end(
                .violation("stream \(header.stream) got \(header.length) bytes where its window allows \(window)"))
        }
        if header.length > 0, streams.values[index].inputEnded {
            act(.send(YamuxHeader(.windowUpdate, .rst, stream: header.stream)))
            return forget(header.stream, .reset(header.stream))
        }
        streams.values[index].receiveWindow = window - header.length
        let fin = header.flags.contains(.fin)
        if header.length > 0 {
            incoming = Incoming(stream: header.stream, left: header.length, fin: fin)
        } else if fin {
            endInput(header.stream)
        }
    }

    private mutating func receive(_ data: ByteBuffer) {
        // Without a frame the payload belongs to a stream that has ended.
        guard var frame = incoming, let index = streams.index(forKey: frame.stream) else { return }
        let count = min(UInt32(clamping: data.readableBytes), frame.left)
        frame.left -= count
        incoming = frame.left > 0 ? frame : nil
        if streams.values[index].lingersUntil == nil {
            streams.values[index].unconsumed += count
            act(.deliver(frame.stream, data))
        } else {
            streams.values[index].discarded += count
            if streams.values[index].discarded >= YamuxLimits.discardedBytes { return reset(frame.stream) }
        }
        if frame.left == 0, frame.fin { endInput(frame.stream) }
    }

    private mutating func endInput(_ id: UInt32) {
        guard let index = streams.index(forKey: id) else { return }
        streams.values[index].inputEnded = true
        if streams.values[index].lingersUntil == nil { act(.inputEnded(id)) }
        if streams.values[index].output == .ended { forget(id) }
    }
}

extension YamuxHeader {
    /// The meaning of a GoAway's code.
    fileprivate var reason: String {
        switch length {
        case 1: "we broke the protocol (GoAway 1)"
        case 2: "it has an internal error (GoAway 2)"
        default: "GoAway \(length)"
        }
    }
}
