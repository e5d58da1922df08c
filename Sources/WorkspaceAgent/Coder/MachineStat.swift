import AgentCore
import ArgumentParser
import ControlPlane
import Glibc
import LocalAgent

/// Takes the figures of `stat`.
struct MachineStat {
    private static let sampleMilliseconds: CInt = 100

    private let reader = ResourceReader()
    let isContained: Bool

    init() { isContained = reader.isInContainer() }

    /// The cores in use during the next tenth of a second.
    /// - Parameter container: ignored where this is not a container.
    /// - Throws: ``CommandFailure`` when the kernel does not say.
    func processors(host: Bool, container: Bool) throws -> (host: StatFigure?, container: StatFigure?) {
        let clock = ContinuousClock()
        let start = clock.now
        func sample() -> [ResourceReader.ProcessorSample?] {
            [
                host ? reader.machineProcessors(at: clock.now - start) : nil,
                container && isContained ? reader.containerProcessors(at: clock.now - start) : nil,
            ]
        }
        let first = sample()
        poll(nil, 0, Self.sampleMilliseconds)
        let figures = zip(first, sample()).map { first, second in
            first.flatMap { first in
                second.map { StatFigure(amount: ResourceReader.cores(from: first, to: $0), unit: .cores) }
            }
        }
        if host, figures[0] == nil { throw Self.unknown("the use of processors", "/proc/stat") }
        if container, isContained, figures[1] == nil {
            throw Self.unknown("the container's use of processors", "/sys/fs/cgroup")
        }
        return (figures[0], figures[1])
    }

    func memory(host: Bool) throws -> StatFigure {
        guard let amount = host ? reader.machineMemory() : reader.containerMemory() else {
            throw Self.unknown(
                host ? "the use of memory" : "the container's use of memory", host ? "/proc/meminfo" : "/sys/fs/cgroup")
        }
        return StatFigure(amount: amount, unit: .bytes)
    }

    /// - Throws: `ExitCode` after a line on stderr when there is no such path.
    func disk(_ path: String) throws -> StatFigure {
        guard let usage = reader.volume(path) else {
            let number = errno
            guard number == ENOENT || number == ENOTDIR else {
                throw CommandFailure(message: "cannot look at \(goQuoted(path)): \(errnoText(number))")
            }
            SyncOutput.failure("not found: \(goQuoted(path))")
            throw ExitCode(1)
        }
        return StatFigure(amount: .init(usage), unit: .bytes)
    }

    static func show(_ figure: StatFigure?, _ format: StatFormat, _ prefix: BinaryPrefix?) {
        guard let figure else { return }
        SyncOutput.line(format == .json ? figure.json.text() : figure.text(prefix))
    }

    private static func unknown(_ what: String, _ place: String) -> CommandFailure {
        CommandFailure(message: "\(what) is not known: \(place) does not say it; try --host, or mount it")
    }
}
