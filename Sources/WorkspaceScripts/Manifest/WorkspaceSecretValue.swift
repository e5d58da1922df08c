import AgentCore
import AgentProto
import FoundationEssentials

/// One secret of the manifest. Only its variable and path show in any textual form.
package struct WorkspaceSecretValue: Sendable, Encodable {
    /// The variable that gets it; empty for none.
    package let envName: String
    /// The file that gets it, as the manifest has it; empty for none.
    package let filePath: String
    package let value: Secret<[UInt8]>

    package init(envName: String, filePath: String, value: Secret<[UInt8]>) {
        self.envName = envName
        self.filePath = filePath
        self.value = value
    }

    init(_ message: Coder_Agent_V2_WorkspaceSecret) {
        self.init(envName: message.envName, filePath: message.filePath, value: Secret([UInt8](message.value)))
    }
}

extension [WorkspaceSecretValue] {
    /// Those for the environment. A value that no variable can hold is left out.
    /// - Returns: with them one warning for each that was left out, which names the variable.
    package func variables() -> (variables: [ManifestLayer.SecretVariable], warnings: [String]) {
        var variables: [ManifestLayer.SecretVariable] = []
        var warnings: [String] = []
        for secret in self where !secret.envName.isEmpty {
            let bytes = secret.value.reveal()
            guard EnvironmentBuilder.isValid(name: secret.envName) else {
                warnings.append("\(goQuoted(secret.envName)) is not a name for a variable; rename the secret's")
                continue
            }
            guard !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) else {
                warnings.append(
                    "the secret for the variable \(secret.envName) isn't text; give it a file_path instead")
                continue
            }
            variables.append(.init(name: secret.envName, value: Secret(text)))
        }
        return (variables, warnings)
    }
}
