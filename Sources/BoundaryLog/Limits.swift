/// Every bound of the boundary log proxy, and what happens at it.
package enum Limits {
    /// Payload bytes of one frame. A longer one closes its connection.
    package static let frameBytes = 32_768
}
