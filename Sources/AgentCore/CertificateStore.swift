import Glibc

/// The certificate authorities that the machine trusts, as one file of PEM.
public enum CertificateStore {
    /// Where distributions have it: Debian, Ubuntu, Arch and Alpine; Fedora and RHEL; openSUSE; OpenELEC; RHEL 7 and later;
    /// Alpine without the package.
    static let usualFiles = [
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
    ]

    /// The machine's own where it has one, else the bundle's; nil where there is neither. Looks at the disk.
    public static func find() -> String? { find(bundle: OwnProgram.bundle) }

    /// - Parameter root: goes before the usual paths.
    static func find(bundle: String?, root: String = "") -> String? {
        let bundled = bundle.map { ["\($0)/lib/ca-certificates.crt"] } ?? []
        return (usualFiles.map { root + $0 } + bundled).first { path in
            var info = stat()
            return stat(path, &info) == 0 && info.st_size > 0 && access(path, R_OK) == 0
        }
    }
}
