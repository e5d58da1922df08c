import Synchronization

/// The bounded stdout and stderr of a run of `portabledesktop`.
final class ProgramOutput: Sendable {
    private struct State {
        var output: [UInt8] = []
        var errors: [UInt8] = []
        var isClosed = false
        var isTooLarge = false
    }

    private let state = Mutex(State())
    private let limit: Int
    private let onTooLarge: @Sendable () -> Void

    /// - Parameters:
    ///   - limit: bytes of stdout, at most.
    ///   - onTooLarge: called once when there are more.
    init(limit: Int, onTooLarge: @escaping @Sendable () -> Void) {
        self.limit = limit
        self.onTooLarge = onTooLarge
    }

    func appendOutput(_ bytes: UnsafeRawBufferPointer) {
        let isTooLarge = state.withLock { state in
            // Later output of the desktop is read, so that its writes never block, and discarded.
            guard !state.isClosed, !state.isTooLarge else { return false }
            state.output.append(contentsOf: bytes)
            state.isTooLarge = state.output.count > limit
            return state.isTooLarge
        }
        if isTooLarge { onTooLarge() }
    }

    func appendErrors(_ bytes: UnsafeRawBufferPointer) {
        state.withLock { state in
            guard !state.isClosed else { return }
            state.errors.append(contentsOf: bytes.suffix(SessionLimits.upErrorBytes))
            if state.errors.count > 2 * SessionLimits.upErrorBytes {
                state.errors.removeFirst(state.errors.count - SessionLimits.upErrorBytes)
            }
        }
    }

    /// Discards the output, and all further output.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.output = []
        }
    }

    var output: [UInt8] { state.withLock { $0.output } }

    /// The end of stderr without control characters; nil when it is empty.
    var errors: String? {
        let bytes = state.withLock { $0.errors.suffix(SessionLimits.upErrorBytes) }
        let text = String(decoding: bytes, as: UTF8.self).unicodeScalars
            .map { $0 == "\n" ? "\n" : $0.properties.generalCategory == .control ? " " : String($0) }.joined()
        let trimmed = text.drop { $0.isWhitespace }
        let end = trimmed.lastIndex { !$0.isWhitespace }
        return end.map { String(trimmed[...$0]) }
    }
}
