import Testing

@testable import BoundaryLog
