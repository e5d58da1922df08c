import AgentCore
import AgentProto
import FoundationEssentials
import Glibc
import SwiftProtobuf

/// The manifest that the simulator serves.
package struct SimulatedManifest: Sendable {
    package var message: Coder_Agent_V2_Manifest

    package init(_ message: Coder_Agent_V2_Manifest) { self.message = message }

    /// Reads protobuf's JSON form; ids may be UUID text as well as base64.
    ///
    /// What a manifest can't do without is filled in: an agent id, a workspace id, and ids and log
    /// sources of scripts, each a new random UUID.
    /// - Throws: ``SimulatorError`` that names the field by its path (`scripts[1].timeout`).
    package init(json: some Sequence<UInt8>) throws(SimulatorError) {
        let value: JSONValue
        do {
            value = try JSONDecoder().decode(JSONValue.self, from: Data(json))
        } catch let error as SimulatorError {
            throw error
        } catch {
            throw SimulatorError(.manifest, "the manifest is not JSON", cause: JSONProblem(error))
        }
        let converted = try JSONShape.manifest.convert(value, at: "")
        guard case .object = converted else { throw SimulatorError(.manifest, "the manifest must be an object") }
        var options = JSONDecodingOptions()
        // All fields were checked; what is left over is inside of opaque ones.
        options.ignoreUnknownFields = true
        do {
            let text = try JSONEncoder().encode(converted)
            message = try Coder_Agent_V2_Manifest(jsonUTF8Data: text, options: options)
        } catch {
            throw SimulatorError(.manifest, "the manifest cannot be read", cause: error)
        }
        fillIn()
        try check()
    }

    /// Reads a file.
    package init(path: String) throws(SimulatorError) {
        let bytes: [UInt8]
        do {
            bytes = try OwnFile.readNamed(path, limit: SimulatorLimits.manifestFileBytes).bytes
        } catch {
            throw SimulatorError(.manifest, "\(error)")
        }
        do {
            try self.init(json: bytes)
        } catch {
            throw SimulatorError(.manifest, "\(path): \(error)")
        }
    }

    private mutating func fillIn() {
        if message.agentID.isEmpty { message.agentID = UUID().data }
        if message.workspaceID.isEmpty { message.workspaceID = UUID().data }
        if message.agentName.isEmpty { message.agentName = "main" }
        for index in message.scripts.indices {
            if message.scripts[index].id.isEmpty { message.scripts[index].id = UUID().data }
            if message.scripts[index].logSourceID.isEmpty { message.scripts[index].logSourceID = UUID().data }
        }
        for index in message.apps.indices where message.apps[index].id.isEmpty {
            message.apps[index].id = UUID().data
        }
    }

    /// What each field alone doesn't show.
    private func check() throws(SimulatorError) {
        func unique(_ names: [String], _ path: (Int) -> String) throws(SimulatorError) {
            var seen: Set<String> = []
            for (index, name) in names.enumerated() {
                guard !name.isEmpty else { throw SimulatorError(.manifest, "\(path(index)): must not be empty") }
                guard seen.insert(name).inserted else {
                    throw SimulatorError(.manifest, "\(path(index)): \"\(name)\" is there twice")
                }
            }
        }
        try unique(message.metadata.map(\.key)) { "metadata[\($0)].key" }
        try unique(message.apps.map(\.slug)) { "apps[\($0)].slug" }
        try unique(message.scripts.map { $0.id.base64EncodedString() }) { "scripts[\($0)].id" }
        for (index, script) in message.scripts.enumerated() where script.script.isEmpty {
            throw SimulatorError(.manifest, "scripts[\(index)].script: must not be empty")
        }
        for (index, secret) in message.secrets.enumerated() where secret.envName.isEmpty && secret.filePath.isEmpty {
            throw SimulatorError(.manifest, "secrets[\(index)]: needs envName or filePath")
        }
    }
}

/// What JSONDecoder says about bad syntax, without its wrapping.
private struct JSONProblem: Error, CustomStringConvertible {
    var description: String

    init(_ error: any Error) {
        guard case .dataCorrupted(let context)? = error as? DecodingError else {
            description = "\(error)"
            return
        }
        let parser = context.underlyingError.map { "\($0)" } ?? ""
        description = parser.isEmpty ? context.debugDescription : parser
    }
}
