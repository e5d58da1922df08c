import AgentTestSupport
import Foundation
import Testing

@testable import AgentCore

@Suite struct CertificateStoreTests {
    private func make(_ path: String, _ text: String = "-----BEGIN CERTIFICATE-----") throws {
        try FileManager.default.createDirectory(
            atPath: parentDirectory(of: path), withIntermediateDirectories: true)
        try text.write(toFile: path, atomically: false, encoding: .utf8)
    }

    @Test func theMachinesOwnComesFirst() throws {
        let directory = try TemporaryDirectory()
        let (root, bundle) = ("\(directory.path)/root", "\(directory.path)/bundle")
        #expect(CertificateStore.find(bundle: nil, root: root) == nil)
        #expect(CertificateStore.find(bundle: bundle, root: root) == nil)
        try make("\(bundle)/lib/ca-certificates.crt")
        #expect(CertificateStore.find(bundle: bundle, root: root) == "\(bundle)/lib/ca-certificates.crt")
        #expect(CertificateStore.find(bundle: nil, root: root) == nil)
        for path in CertificateStore.usualFiles.reversed() {
            // An empty file has no authorities.
            try make(root + path, "")
            #expect(CertificateStore.find(bundle: bundle, root: root) != root + path)
            try make(root + path)
            #expect(CertificateStore.find(bundle: bundle, root: root) == root + path)
        }
    }

    @Test func thisProgramIsInNoBundle() {
        #expect(OwnProgram.bundle == nil && OwnProgram.singleFile == nil)
        #expect(OwnProgram.ownExecutable == "/proc/self/exe" && OwnProgram.path.hasPrefix("/"))
    }
}
