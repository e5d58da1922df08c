import Testing

@testable import Yamux
