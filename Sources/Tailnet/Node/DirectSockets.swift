import AgentCore
import DERP
import Disco
import IPAddresses
import Logging
import NIOCore

/// The UDP sockets of direct paths, and what they need of the machine: the addresses of its interfaces and of STUN
/// servers. On its event loop only.
final class DirectSockets {
    struct Handlers {
        /// A datagram came, which may be overwritten.
        var datagram: (UnsafeMutableRawBufferPointer, Endpoint) -> Void
        /// The last one of a burst came, or there is room again.
        var burstEnded: () -> Void
        /// The addresses of our interfaces, with the ports of our sockets; nil for a family that has none.
        var local: ([IPAddress], _ v4: UInt16?, _ v6: UInt16?) -> Void
        var stunServers: ([Endpoint]) -> Void
    }

    /// Between two looks at what may have changed, and after a failure.
    static let refresh = TimeAmount.seconds(60)
    static let retry = TimeAmount.seconds(5)

    private let wantedPort: UInt16
    private let loop: any EventLoop
    private let executor: EventLoopTaskExecutor
    private let machine: Machine
    private let logger: Logger
    private var handlers: Handlers?
    private var sockets: UDPSockets?
    private var isWanted = false
    private var isOpening = false
    private var servers: [STUNServer] = []
    /// The last list that could not be found in full is looked for again.
    private var hasUnresolved = false
    private var lookups: UInt64 = 0
    private var timer: Scheduled<Void>?
    /// Why there is no socket, or why the kernel refused datagrams.
    private(set) var problem: String?

    /// - Parameter port: 0, or one that is in use, lets the kernel choose.
    init(
        port: UInt16 = 0, loop: any EventLoop, executor: EventLoopTaskExecutor, machine: Machine, logger: Logger
    ) {
        wantedPort = port
        (self.loop, self.executor, self.machine, self.logger) = (loop, executor, machine, logger)
    }

    func start(_ handlers: Handlers) { self.handlers = handlers }

    var port: UInt16? { sockets?.port }
    /// nil while there is no socket.
    var hasIPv6: Bool? { sockets?.hasIPv6 }
    var hasRoom: Bool { sockets?.hasRoom ?? true }

    func send(_ datagram: UnsafeRawBufferPointer, to endpoint: Endpoint) { sockets?.send(datagram, to: endpoint) }
    func flush() { sockets?.flush() }

    // MARK: Sockets

    /// Opens the sockets, or closes them.
    func setWanted(_ isWanted: Bool) {
        guard isWanted != self.isWanted else { return }
        self.isWanted = isWanted
        if isWanted {
            open()
        } else {
            sockets?.close()
            sockets = nil
            problem = nil
            handlers?.local([], nil, nil)
            // What waited for room need not wait any more.
            handlers?.burstEnded()
        }
    }

    private func open() {
        guard isWanted, sockets == nil, !isOpening else { return }
        isOpening = true
        let (loop, direct) = (loop, NIOLoopBound(self, eventLoop: loop))
        let (port, logger) = (wantedPort, logger)
        Task(executorPreference: executor) {
            let result: Result<UDPSockets, any Error>
            do {
                do {
                    result = .success(try await UDPSockets.open(port: port, forbidsFragments: true, on: loop))
                } catch  where port != 0 {
                    logger.warning(
                        "direct paths use another UDP port than the one that was asked for",
                        metadata: ["port": "\(port)", "reason": "\(error)"])
                    result = .success(try await UDPSockets.open(port: 0, forbidsFragments: true, on: loop))
                }
            } catch {
                result = .failure(error)
            }
            loop.execute { direct.value.opened(result) }
        }
    }

    private func opened(_ result: Result<UDPSockets, any Error>) {
        isOpening = false
        switch result {
        case .success(let sockets):
            guard isWanted, let handlers else { return sockets.close() }
            self.sockets = sockets
            problem = nil
            sockets.start(
                .init(
                    datagram: handlers.datagram, burstEnded: handlers.burstEnded,
                    refused: { [weak self] reason in
                        // A path that leads nowhere is ordinary; our addresses may be others, though.
                        self?.logger.debug("the kernel refuses a datagram", metadata: ["reason": "\(reason)"])
                        self?.refreshSoon(in: Self.retry)
                    },
                    failed: { [weak self] in self?.failed("the UDP sockets were closed by an error") }))
            lookAround()
            lookUpServers()
        case .failure(let error): failed("\(error)")
        }
    }

    private func failed(_ reason: String) {
        sockets = nil
        guard isWanted else { return }
        if problem != reason { logger.warning("no direct paths", metadata: ["reason": "\(reason)"]) }
        problem = reason
        handlers?.local([], nil, nil)
        _ = loop.assumeIsolated().scheduleTask(in: Self.retry) { [weak self] in self?.open() }
    }

    // MARK: The machine

    /// Looks for what has changed, if it was not done lately.
    func refreshSoon(in time: TimeAmount = DirectSockets.refresh) {
        guard timer == nil, sockets != nil else { return }
        timer = loop.assumeIsolated().scheduleTask(in: time) { [weak self] in
            self?.timer = nil
            self?.lookAround()
            if self?.hasUnresolved == true { self?.lookUpServers() }
        }
    }

    /// Asks for the interfaces' addresses.
    func lookAround() {
        guard sockets != nil else { return }
        let (loop, machine, direct) = (loop, machine, NIOLoopBound(self, eventLoop: loop))
        Task(executorPreference: executor) {
            let addresses = await machine.interfaces()
            loop.execute {
                let direct = direct.value
                guard let sockets = direct.sockets else { return }
                direct.handlers?.local(addresses, sockets.port, sockets.hasIPv6 ? sockets.port : nil)
            }
        }
    }

    /// The STUN servers of another map.
    func setServers(_ servers: [STUNServer]) {
        guard servers != self.servers else { return }
        self.servers = servers
        lookUpServers()
    }

    private func lookUpServers() {
        guard sockets != nil else { return }
        lookups += 1
        let (loop, machine, servers, number) = (loop, machine, servers, lookups)
        let direct = NIOLoopBound(self, eventLoop: loop)
        Task(executorPreference: executor) {
            var (found, isComplete): ([Endpoint], Bool) = ([], true)
            for server in servers.prefix(DiscoLimits.stunServers) {
                if !server.addresses.isEmpty {
                    found += server.addresses.map { Endpoint($0, server.port) }
                } else if let endpoints = try? await machine.resolve(server.hostName, server.port) {
                    found += endpoints
                } else {
                    isComplete = false
                }
            }
            let (endpoints, hasUnresolved) = (found, !isComplete)
            loop.execute {
                let direct = direct.value
                guard direct.lookups == number else { return }
                direct.hasUnresolved = hasUnresolved
                direct.handlers?.stunServers(endpoints)
                if hasUnresolved { direct.refreshSoon() }
            }
        }
    }

    func close() {
        handlers = nil
        timer?.cancel()
        setWanted(false)
    }
}
