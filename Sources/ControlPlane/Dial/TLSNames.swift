import DERP
import IPAddresses
import NIOCore
import NIOSSL
import NIOTLS

/// The names of a server in TLS.
struct TLSNames: Sendable, Equatable {
    /// For the handshake (SNI); nil for an IP address, which it cannot hold.
    var sent: String?
    /// What the certificate must be for, where NIOSSL cannot check it: NIOSSL knows the name that is sent, and without one
    /// the address that it is connected to, which may be a proxy's. nil where NIOSSL checks.
    var checked: String?

    /// Of a server that is known by one name, which NIOSSL checks.
    init(host: String) { sent = IPAddress(host) == nil ? host : nil }

    /// Of a relay, whose map can give the certificate another name than the host has.
    init(_ relay: RelayURL) {
        let name = relay.serverName.isEmpty ? relay.host : relay.serverName
        let certificate = relay.certificateName.isEmpty ? name : relay.certificateName
        self.init(host: name)
        checked = sent == certificate ? nil : certificate
    }
}

/// Stands behind TLS and then leaves the pipeline. Until the handshake is done and the certificate's name is checked,
/// the handlers behind it believe that the channel is not active yet.
final class TLSGate: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let tls: NIOSSLClientHandler
    private let name: String?

    /// - Parameter name: what the certificate must be for; nil when `tls` checks that.
    init(_ tls: NIOSSLClientHandler, name: String?) {
        self.tls = tls
        self.name = name
    }

    func channelActive(context: ChannelHandlerContext) {}

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        context.fireUserInboundEventTriggered(event)
        guard case .handshakeCompleted? = event as? TLSUserEvent else { return }
        if let name, tls.peerCertificate?.isFor(name) != true {
            context.fireErrorCaught(NIOSSLExtraError.failedToValidateHostname)
            return context.close(promise: nil)
        }
        context.fireChannelActive()
        context.pipeline.syncOperations.removeHandler(self, promise: nil)
    }
}

extension NIOSSLCertificate {
    /// Whether this certificate is for a host name or an IP address, by its alternative names (RFC 9525).
    func isFor(_ name: String) -> Bool {
        let address = IPAddress(name)
        return _subjectAlternativeNames().contains { other in
            switch other.nameType {
            case .ipAddress: address != nil && IPAddress(other.contents) == address
            case .dnsName: address == nil && Self.covers(String(decoding: other.contents, as: UTF8.self), name)
            default: false
            }
        }
    }

    /// Whether a DNS name of a certificate covers a host name. A `*` stands for one label, the whole first one.
    static func covers(_ pattern: String, _ name: String) -> Bool {
        func labels(_ text: String) -> [Substring]? {
            guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
            var labels = text.lowercased().split(separator: ".", omittingEmptySubsequences: false)
            if labels.last == "" { labels.removeLast() }
            return labels.isEmpty || labels.contains("") ? nil : labels
        }
        guard let pattern = labels(pattern), let name = labels(name), pattern.count == name.count else { return false }
        let isWild = pattern.first == "*" && pattern.count > 1
        return isWild ? pattern.dropFirst() == name.dropFirst() : pattern == name
    }
}
