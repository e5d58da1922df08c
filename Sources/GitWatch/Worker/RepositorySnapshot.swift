/// What a client is shown of a repository.
package struct RepositorySnapshot: Sendable, Equatable {
    /// "" when HEAD is detached.
    package var branch: String
    /// Without credentials; "" when there is none.
    package var origin: String
    package var diff: [UInt8]
}
