import AgentCore
import AgentTestSupport
import Glibc
import Testing

@testable import AgentProc

@Suite struct OwnSessionTests {
    private typealias Identity = SessionProcesses.Identity

    private func process(_ pid: pid_t, born: UInt64, zombie: Bool = false) -> Identity {
        Identity(pid: pid, parent: 1, session: 100, startTime: born, isZombie: zombie)
    }

    private func own(_ session: OwnSession, _ seen: [Identity], since begin: UInt64, below: Bool = false) -> [pid_t] {
        session.own(seen, since: begin) { _ in below }.map(\.pid)
    }

    @Test func whileTheLeaderIsNotReapedAllAreItsOwn() {
        let session = OwnSession(100)
        #expect(own(session, [process(100, born: 5), process(200, born: 9)], since: 7) == [100, 200])
        #expect(session.certainUntil == .max)
    }

    @Test func afterwardsWhatWasBornBefore() {
        for (born, below, isOwn) in [
            (UInt64(49), false, true), (50, false, false), (50, true, true), (51, true, false),
        ] {
            let session = OwnSession(100)
            session.leaderEnds(at: 50)
            #expect(own(session, [process(200, born: born)], since: 90, below: below) == (isOwn ? [200] : []))
            #expect(session.certainUntil == (isOwn ? 90 : 50))
        }
    }

    @Test func oneThatIsSeenVouchesForTheOthers() {
        let session = OwnSession(100)
        session.leaderEnds(at: 50)
        let later = process(201, born: 60)
        #expect(own(session, [later], since: 70) == [])
        // A zombie holds the number, too.
        #expect(own(session, [process(200, born: 40, zombie: true), later], since: 80) == [200, 201])
        #expect(own(session, [later], since: 90) == [201])
    }

    @Test func aNewFounderAndItsChildrenAreStrangers() {
        let session = OwnSession(100)
        session.leaderEnds(at: 50)
        for born in [UInt64(50), 51, 90] {
            #expect(own(session, [process(100, born: born), process(300, born: 95)], since: 99, below: true) == [])
        }
    }

    /// Against a kernel that reports everything: births and deaths in the session of one number, which is given
    /// out again once nothing is in it.
    @Test func neverAStrangerAndAlwaysItsOwn() {
        var random = SeededGenerator("OwnSessionTests.neverAStranger")
        for _ in 0..<500 {
            let session = OwnSession(100)
            var now: UInt64 = 1
            var next: pid_t = 101
            var leads = true
            var living = [(process: process(100, born: now), isOwn: true)]
            for _ in 0..<80 {
                now += UInt64.random(in: 1...3, using: &random)
                let index = living.isEmpty ? nil : Int.random(in: 0..<living.count, using: &random)
                switch (Int.random(in: 0..<6, using: &random), index) {
                case (0...1, let parent?):
                    living.append((process(next, born: now), living[parent].isOwn))
                    next += 1
                case (2...3, let index?):
                    let ended = living[index].process
                    if leads, ended.pid == 100 {
                        leads = false
                        session.leaderEnds(at: now)
                    } else if !leads {
                        // The reaper of orphans sees it before it goes.
                        _ = session.own([ended], since: now) { _ in false }
                    }
                    living.remove(at: index)
                case (_, nil): living.append((process(100, born: now), false))
                default:
                    let expected = living.filter(\.isOwn).map(\.process)
                    #expect(session.own(living.map(\.process), since: now) { _ in false } == expected)
                }
            }
        }
    }
}

@Suite struct EndedSessionsTests {
    @Test func theOneThatNothingWasSeenOfForLongestGoes() {
        let ended = EndedSessions()
        // Numbers that no process here has.
        for index in 0..<ProcLimits.endedSessions {
            let session = OwnSession(10_000_000 + pid_t(index))
            session.leaderEnds(at: index == 7 ? 1 : UInt64(100 + index))
            ended.add(session)
        }
        #expect(ended.all.count == ProcLimits.endedSessions)
        ended.add(OwnSession(9_000_000))
        #expect(ended.all.count == ProcLimits.endedSessions)
        #expect(!ended.all.contains { $0.number == 10_000_007 })
        ended.numberWasGivenOut(9_000_000)
        #expect(ended.all.count == ProcLimits.endedSessions - 1)
    }

    @Test func emptyOnesAreSweptWhenThereAreMany() async throws {
        try await withSleepingChild { child in
            let ended = EndedSessions()
            ended.add(child.session)
            for index in 1..<(ProcLimits.endedSessionsSwept - 1) { ended.add(OwnSession(10_000_000 + pid_t(index))) }
            ended.sweep()
            #expect(ended.all.count == ProcLimits.endedSessionsSwept - 1)
            ended.add(OwnSession(9_000_000))
            ended.sweep()
            #expect(ended.all.map(\.number) == [child.pid])
            // Not at each start from now on.
            ended.add(OwnSession(9_000_000))
            ended.sweep()
            #expect(ended.all.count == 2)
        }
    }
}
