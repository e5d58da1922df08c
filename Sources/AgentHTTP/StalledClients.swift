import NIOCore

// What a connection does about a client that neither reads nor sends.
extension HTTPConnectionHandler {
    func makeOutputQueue() -> OutputQueues.Queue {
        let queue = service.outputQueues.make()
        if let loop = context?.eventLoop {
            let handler = NIOLoopBound(self, eventLoop: loop)
            queue.onOverflow = { loop.execute { handler.value.abort() } }
        }
        hasOutputQueue = true
        return queue
    }

    /// Closes the connection if its request waits for the client, which has neither sent nor read anything since the last
    /// call.
    func closeIfStalled() {
        let isWaiting = output.isStalled || state.phase == .streaming && streamed?.wantsMore == true
        let now = (arrived, output.bytes)
        defer { progress = isWaiting ? now : nil }
        if isWaiting, let progress, progress == now { abort() }
    }
}
