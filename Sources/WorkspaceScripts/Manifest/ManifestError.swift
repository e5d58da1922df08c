/// What is wrong with a manifest, or with a script or schedule in it: one sentence for a person.
package struct ManifestError: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
}
