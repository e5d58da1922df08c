import Testing

@testable import ControlPlane

@Suite struct BackoffTests {
    @Test func doublesFrom100MillisecondsTo10Seconds() {
        var backoff = Backoff()
        let waits = (0..<10).map { _ in backoff.next(fraction: 1) }
        #expect(
            waits
                == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000].map { Duration.milliseconds($0) })
    }

    @Test(arguments: [(0.0, 0), (0.25, 25), (1.0, 100), (-3.0, 0), (7.0, 100), (.nan, 0)] as [(Double, Int)])
    func jitterIsFullAndWithinTheWindow(_ fraction: Double, _ milliseconds: Int) {
        var backoff = Backoff()
        #expect(backoff.next(fraction: fraction) == .milliseconds(milliseconds))
    }

    @Test func aConnectionThatLivedResetsIt() {
        var backoff = Backoff()
        for _ in 0..<20 { _ = backoff.next(fraction: 1) }
        #expect(backoff.next(lived: .milliseconds(29_999), fraction: 1) == .seconds(10))
        #expect(backoff.next(lived: .seconds(30), fraction: 1) == .milliseconds(100))
        #expect(backoff.next(fraction: 1) == .milliseconds(200))
    }

    @Test func aPermanentRefusalWaitsTheWholeCeiling() {
        var backoff = Backoff()
        #expect(backoff.next(permanent: true, fraction: 0) == .seconds(10))
        #expect(backoff.next(permanent: true, fraction: 0.5) == .seconds(10))
        #expect(backoff.next(fraction: 1) == .seconds(10))
    }
}
