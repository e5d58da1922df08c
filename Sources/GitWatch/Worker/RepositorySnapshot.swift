/// What a client is shown of a repository.
package struct RepositorySnapshot: Sendable, Equatable {
    /// "" when HEAD is detached.
    package var branch: String
    /// Without credentials; "" when there is none.
    package var origin: String
    package var diff: [UInt8]
    /// Another one when other directories may have to be watched, although none came or went. Not shown.
    package var layout: UInt32 = 0
}
