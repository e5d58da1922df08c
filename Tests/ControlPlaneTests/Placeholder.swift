import Testing

@testable import ControlPlane
