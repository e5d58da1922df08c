import CPlatform
import Glibc

/// A close-on-exec pipe whose read end does not block. The caller closes both ends.
public func makePipe() throws(CoreError) -> (read: CInt, write: CInt) {
    let ends = try descriptorPair("cannot create a pipe") { wa_pipe($0) }
    return (read: ends.0, write: ends.1)
}

/// A close-on-exec pipe whose write end does not block. The caller closes both ends.
public func makeInputPipe() throws(CoreError) -> (read: CInt, write: CInt) {
    let ends = try descriptorPair("cannot create a pipe") { wa_input_pipe($0) }
    return (read: ends.0, write: ends.1)
}

/// A new terminal: `ours` does not block; both ends are close-on-exec. The caller closes both.
public func makeTerminal(rows: UInt16, columns: UInt16) throws(CoreError) -> (ours: CInt, theirs: CInt) {
    let ends = try descriptorPair("cannot open a terminal") { wa_open_terminal(rows, columns, $0) }
    return (ours: ends.0, theirs: ends.1)
}

/// A connected pair of close-on-exec stream sockets. The caller closes both.
public func makeSocketPair() throws(CoreError) -> (CInt, CInt) {
    try descriptorPair("cannot create a socket pair") { wa_socketpair($0) }
}

private func descriptorPair(
    _ failure: String, _ make: (UnsafeMutablePointer<CInt>) -> CInt
) throws(CoreError) -> (CInt, CInt) {
    var ends: (CInt, CInt) = (-1, -1)
    let rc = withUnsafeMutablePointer(to: &ends) {
        $0.withMemoryRebound(to: CInt.self, capacity: 2) { make($0) }
    }
    guard rc == 0 else { throw CoreError.system(rc, failure) }
    return ends
}

/// Writes all of the bytes; blocks for as long as the descriptor does.
/// - Returns: 0, or the errno of the write that failed.
package func writeAll(_ bytes: UnsafeRawBufferPointer, to descriptor: CInt) -> CInt {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = wa_write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
        guard count > 0 else { return count == 0 ? EIO : CInt(-count) }
        rest = rest.dropFirst(count)
    }
    return 0
}
