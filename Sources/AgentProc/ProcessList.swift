import AgentHTTP
import FoundationEssentials
import Hummingbird
import NIOCore

/// The answer to a list: made in pieces as the client reads, so that one that doesn't costs a piece, and other requests get
/// their turn between two.
struct ProcessList: Sendable {
    private var rest: ArraySlice<UUID>
    private let manager: ProcessManager
    private var isFirst = true

    /// - Parameter ids: of the processes, in order. One that is forgotten before its turn is left out.
    init(_ ids: [UUID], _ manager: ProcessManager) { (rest, self.manager) = (ids[...], manager) }

    var response: Response {
        var list = self
        var first = ByteBuffer(string: #"{"processes":["#)
        list.write(into: &first)
        let isWhole = list.rest.isEmpty
        if isWhole {
            first.writeString("]}")
            return .json(bytes: first)
        }
        let (begun, begin) = (list, first)
        let body = ResponseBody { writer in
            var list = begun
            try await writer.write(begin)
            while !list.rest.isEmpty {
                await Task.yield()
                var piece = ByteBuffer()
                list.write(into: &piece)
                if list.rest.isEmpty { piece.writeString("]}") }
                try await writer.write(piece)
            }
            try await writer.finish(nil)
        }
        return Response(
            status: .ok, headers: [.contentType: "application/json; charset=utf-8"], body: body)
    }

    /// Writes the next processes, up to a piece.
    private mutating func write(into buffer: inout ByteBuffer) {
        while buffer.readableBytes < ProcLimits.listPieceBytes, let id = rest.popFirst() {
            guard let process = manager.process(id) else { continue }
            if !isFirst { buffer.writeString(",") }
            isFirst = false
            buffer.writeString(WireJSON.text(ProcessInfo(process)))
        }
    }
}
