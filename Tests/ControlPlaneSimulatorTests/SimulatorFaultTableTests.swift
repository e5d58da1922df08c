import Testing

@testable import ControlPlaneSimulator

@Suite("Simulator: fault table")
struct FaultTableTests {
    @Test("faults come in the order of planning, each as often as planned")
    func order() {
        var table = FaultTable()
        table.plan(.hang, rpc: "A", times: 2)
        table.plan(.unimplemented, rpc: "A", times: 1)
        #expect([table.takeCall("A"), table.takeCall("A"), table.takeCall("A")] == [.hang, .hang, .unimplemented])
        #expect(table.takeCall("A") == nil)
        #expect(table.takeCall("B") == nil)
    }

    @Test("a fault for ever stays until another is planned or it is cleared")
    func forever() {
        var table = FaultTable()
        table.plan(.hang, rpc: "A", times: nil)
        for _ in 0..<5 { #expect(table.takeCall("A") == .hang) }
        table.plan(.unimplemented, rpc: "A", times: nil)
        for _ in 0..<5 { #expect(table.takeCall("A") == .unimplemented) }
        table.clear(rpc: "A")
        #expect(table.takeCall("A") == nil)
        table.plan(.hang, times: nil)
        #expect(table.takeDial() == .hang)
        table.clearDials()
        #expect(table.takeDial() == nil)
    }

    @Test("none, and more than fit, plan nothing")
    func bounds() {
        var table = FaultTable()
        table.plan(.hang, rpc: "A", times: 0)
        #expect(table.takeCall("A") == nil)
        for _ in 0..<SimulatorLimits.faultsPerRPC { table.plan(.hang, rpc: "A", times: 1) }
        table.plan(.unimplemented, rpc: "A", times: 1)
        for _ in 0..<SimulatorLimits.faultsPerRPC { #expect(table.takeCall("A") == .hang) }
        #expect(table.takeCall("A") == nil)
    }
}
