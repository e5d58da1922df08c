import IPAddresses

/// What a segment of ours says, but for its payload.
struct TCPHeader {
    var sequence: SequenceNumber
    var acknowledgment = SequenceNumber(0)
    var flags: TCPFlags
    /// As it stands in the header, scaled already.
    var window: UInt16 = 0
    var timestamps: TCPSegment.Timestamps?
    /// The options of a SYN.
    var mss: UInt16?
    var sackPermitted = false
    var windowScale: UInt8?
    var sack = SACKBlocks()

    /// Writes header and options behind the IPv6 header, in the order in which clients send them.
    /// - Returns: bytes of header and options.
    private func write(_ key: FlowKey, into memory: UnsafeMutableRawBufferPointer) -> Int {
        let start = IPv6Packet.headerBytes
        memory.store(key.local.port, at: start)
        memory.store(key.remote.port, at: start + 2)
        memory.store(sequence.value, at: start + 4)
        memory.store(acknowledgment.value, at: start + 8)
        memory.store(flags.rawValue, at: start + 13)
        memory.store(window, at: start + 14)
        // Checksum and urgent pointer.
        memory.store(UInt32(0), at: start + 16)
        var offset = start + TCPSegment.headerBytes
        if let mss {
            memory.store(2 << 24 | 4 << 16 | UInt32(mss), at: offset)
            offset += 4
        }
        if let timestamps {
            let permitted: UInt16 = sackPermitted ? 0x0402 : 0x0101
            memory.store(UInt32(permitted) << 16 | 0x080a, at: offset)
            memory.store(timestamps.value, at: offset + 4)
            memory.store(timestamps.echo, at: offset + 8)
            offset += TCPSegment.timestampBytes
        } else if sackPermitted {
            memory.store(0x0101_0402 as UInt32, at: offset)
            offset += 4
        }
        if let windowScale {
            memory.store(0x0103_0300 | UInt32(windowScale), at: offset)
            offset += 4
        }
        if sack.count > 0 {
            memory.store(0x0101_0502 + UInt32(sack.count * 8), at: offset)
            offset += 4
            for index in 0..<sack.count {
                memory.store(sack[index].start.value, at: offset)
                memory.store(sack[index].end.value, at: offset + 4)
                offset += 8
            }
        }
        let count = offset - start
        memory.store(UInt8(truncatingIfNeeded: count << 2), at: start + 12)
        return count
    }

    /// Bytes of the IPv6 header, the TCP header and its options.
    var byteCount: Int {
        IPv6Packet.headerBytes + TCPSegment.headerBytes + (mss == nil ? 0 : 4)
            + (timestamps != nil ? TCPSegment.timestampBytes : sackPermitted ? 4 : 0)
            + (windowScale == nil ? 0 : 4) + (sack.count > 0 ? 4 + 8 * sack.count : 0)
    }

    /// Writes a whole packet around the payload, which lies in the memory behind the ``byteCount`` of the headers.
    /// - Returns: bytes of the packet.
    func finish(_ key: FlowKey, payload: Int, in memory: UnsafeMutableRawBufferPointer) -> Int {
        let count = write(key, into: memory) + payload
        let (source, destination) = (key.local.address, key.remote.address)
        IPv6Packet.writeHeader(into: memory, from: source, to: destination, nextHeader: .tcp, count: count)
        memory.storeChecksum(at: 16, from: source, to: destination, nextHeader: .tcp, count: count)
        return IPv6Packet.headerBytes + count
    }
}
