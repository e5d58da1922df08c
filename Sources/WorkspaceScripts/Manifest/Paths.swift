import AgentCore

/// Paths as the manifest writes them (docs/contracts/control-plane.md#manifest).
package enum WorkspacePath {
    /// Expands variables and a leading `~`; what is relative then means under `base`.
    /// - Parameters:
    ///   - home: absolute; what `~` means. Another user's (`~name`) isn't looked up and is an ordinary name.
    package static func expand(_ path: String, home: String, environment: [String: String], base: String) -> String {
        expandHome(EnvironmentBuilder.expand(path) { environment[$0] }, home: home, base: base)
    }

    /// As ``expand(_:home:environment:base:)`` without variables: a `$` is an ordinary character.
    package static func expandHome(_ path: String, home: String, base: String) -> String {
        if path == "~" { return home }
        if path.hasPrefix("~/") { return join(home, String(path.dropFirst(2))) }
        if path.hasPrefix("/") { return path }
        return path.isEmpty ? base : join(base, path)
    }

    private static func join(_ directory: String, _ name: String) -> String {
        let name = name.drop { $0 == "/" }
        if name.isEmpty { return directory }
        return directory.hasSuffix("/") ? "\(directory)\(name)" : "\(directory)/\(name)"
    }
}
