import AgentCore
import Glibc
import NIOSSL

/// What the certificates of the control plane are checked against. There is no way to leave the
/// check out.
enum Trust {
    /// Tells one state of a file from another.
    struct Stamp: Sendable, Equatable {
        private var numbers: [Int]

        /// As long as there is no such file all stamps are equal. Not for an event loop.
        init(_ path: String) {
            var info = stat()
            guard stat(path, &info) == 0 else {
                numbers = []
                return
            }
            numbers = [
                Int(info.st_dev), Int(bitPattern: UInt(info.st_ino)), Int(info.st_size), info.st_mtim.tv_sec,
                info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec,
            ]
        }
    }

    /// Those that NIOSSL looks for by default (LinuxCABundle.swift).
    private static let libraryFiles = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]

    /// The machine's roots, or the bundle's where it has none, and those of the file. Reads files: not for an event loop.
    static func configuration(caFile: String?) throws(ControlPlaneError) -> TLSConfiguration {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = .tlsv12
        // Where the library knows the file itself, it reads the directory of certificates beside it as well.
        if let store = CertificateStore.find(), !libraryFiles.contains(store) {
            configuration.trustRoots = .file(store)
        }
        guard let caFile else { return configuration }
        do {
            let bytes = try OwnFile.readNamed(caFile, limit: DialLimits.caFileBytes).bytes
            guard let certificates = try? NIOSSLCertificate.fromPEMBytes(bytes), !certificates.isEmpty else {
                throw ControlPlaneError(
                    .configuration,
                    "--agent-ca-file: \(caFile) has no PEM certificates (\"-----BEGIN CERTIFICATE-----\") or a broken one"
                )
            }
            configuration.additionalTrustRoots = [.certificates(certificates)]
        } catch let error as ControlPlaneError {
            throw error
        } catch {
            throw ControlPlaneError(.configuration, "--agent-ca-file: \(error)")
        }
        return configuration
    }

    /// Names a failure of the TLS below a connection; nil for any other error.
    static func failure(_ error: any Error, to server: ServerAddress) -> ControlPlaneError? {
        switch error {
        // The connection broke; TLS has no part in it.
        case NIOSSLError.uncleanShutdown: return nil
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError: break
        default: return nil
        }
        let text = "\(error)"
        // Where it says what is wrong, the library's names for it are of no further use.
        let known =
            if text.contains("CERTIFICATE_VERIFY_FAILED") || text.contains("unableToValidateCertificate") {
                "its certificate is not trusted (--agent-ca-file adds a CA), or has expired"
            } else if text.contains("failedToValidateHostname") {
                "its certificate is for another host name"
            } else {
                String?.none
            }
        if let known { return ControlPlaneError(.tls, "\(server): \(known)") }
        return ControlPlaneError(.tls, "\(server): TLS could not be agreed on", cause: error)
    }
}
