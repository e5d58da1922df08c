import AgentCore
import AsyncHTTPClient
import NIOCore
import NIOPosix

/// What a connection failed of, in words for a person instead of the libraries' names.
struct ConnectionProblem: Error, CustomStringConvertible {
    let error: any Error

    init(_ error: any Error) { self.error = error }

    var description: String {
        switch error {
        case let error as NIOConnectionError:
            // Of several addresses the last one's reason; without one the name has none.
            let reason = error.connectionErrors.last?.error ?? error.dnsAError ?? error.dnsAAAAError
            return reason.map { Self($0).description } ?? "no connection to \(error.host)"
        case let error as SocketAddressError.UnknownHost: return "the host name \(error.host) is not known"
        case let error as IOError: return errnoText(error.errnoCode)
        case ChannelError.connectTimeout: return "no answer in time"
        case let error as HTTPClientError: return error.shortDescription
        default: return "\(error)"
        }
    }
}
