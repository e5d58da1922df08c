import AgentCore
import AgentProto
import DRPC

/// The rpcs of the agent socket. The texts of their errors are a contract: existing clients print them and scripts match
/// them.
public struct AgentSocketService: Sendable {
    private let units: UnitStore
    private let forwarder: any AppStatusForwarder
    private let gitLogins: (any GitLoginForwarder)?

    /// A service without a control plane to forward the status of apps to.
    public init(units: UnitStore) { self.init(units: units, forwarder: OfflineForwarder()) }

    /// - Parameter gitLogins: nil makes `GitLogin` an unknown rpc.
    package init(
        units: UnitStore, forwarder: any AppStatusForwarder, gitLogins: (any GitLoginForwarder)? = nil
    ) {
        self.units = units
        self.forwarder = forwarder
        self.gitLogins = gitLogins
    }

    /// The service's rpcs.
    public func router() -> Router {
        var router = Router()
        router.immediate(AgentSocketAPI.ping) { _, _ in .init() }
        router.unary(AgentSocketAPI.syncStart) { request, _ in try await kept { try start(request.unit) } }
        router.unary(AgentSocketAPI.syncWant) { request, _ in
            try await kept { try want(request.unit, request.dependsOn) }
        }
        router.unary(AgentSocketAPI.syncComplete) { request, _ in try await kept { try complete(request.unit) } }
        router.immediate(AgentSocketAPI.syncReady) { request, _ in
            try requireUnit(request.unit)
            return .with { $0.ready = units.isReady(request.unit) }
        }
        router.immediate(AgentSocketAPI.syncStatus) { request, _ in
            try requireUnit(request.unit)
            return Self.response(units.report(request.unit))
        }
        router.immediate(AgentSocketAPI.syncList) { _, _ in
            .with { response in
                response.units = units.list().map { report in
                    .with {
                        $0.unit = report.unit
                        $0.status = report.status
                        $0.isReady = report.isReady
                    }
                }
            }
        }
        router.unary(AgentSocketAPI.updateAppStatus) { request, _ in
            try await forwarder.updateAppStatus(request)
        }
        if let gitLogins {
            router.unary(AgentSocketAPI.gitLogin) { request, _ in try await gitLogins.gitLogin(request) }
        }
        router.serverStreaming(AgentSocketAPI.syncWait) { request, responses, _ in
            try await wait(request.unit, responses)
        }
        router.serverStreaming(AgentSocketAPI.syncEvents) { request, responses, _ in
            try await sendEvents(historyOnly: request.historyOnly, responses)
        }
        return router
    }

    /// Answers when the change would outlive the daemon. A refused one may have registered a unit.
    private func kept<Response>(_ change: () throws -> Response) async throws -> Response {
        let result = Result { try change() }
        await units.kept()
        return try result.get()
    }

    private func start(_ unit: String) throws -> Coder_Agentsocket_V1_SyncStartResponse {
        do {
            try units.register(unit)
        } catch {
            throw Self.failure("SyncStart: registering unit \(Self.quoted(unit)): \(error)")
        }
        do {
            try units.start(unit)
        } catch  where error == .notReady {
            throw Self.failure("cannot start unit \(Self.quoted(unit)): \(error)")
        } catch {
            throw Self.failure(
                "cannot start unit \(Self.quoted(unit)): checking status for unit \(Self.quoted(unit)): \(error)")
        }
        return .init()
    }

    private func want(_ unit: String, _ dependency: String) throws -> Coder_Agentsocket_V1_SyncWantResponse {
        do {
            try units.register(unit)
        } catch {
            throw Self.failure("cannot add dependency: registering unit \(Self.quoted(unit)): \(error)")
        }
        guard !dependency.isEmpty else {
            throw Self.failure(
                "cannot add dependency: dependency name cannot be empty: \(UnitError.nameRequired)")
        }
        do {
            try units.want(unit, dependency)
        } catch {
            throw Self.failure(
                "cannot add dependency: adding edge for unit \(Self.quoted(unit)): failed to add dependency\n"
                    + "adding edge (\(Self.cut(unit)) -> \(Self.cut(dependency))): \(error)")
        }
        return .init()
    }

    private func complete(_ unit: String) throws -> Coder_Agentsocket_V1_SyncCompleteResponse {
        guard !unit.isEmpty else {
            throw Self.failure("cannot complete unit \"\": updating status for unit \"\": \(UnitError.nameRequired)")
        }
        do {
            try units.complete(unit)
        } catch  where error == .notFound {
            throw Self.failure(
                "cannot complete unit \(Self.quoted(unit)): unit \(Self.quoted(unit)) must be registered first: \(error)"
            )
        } catch {
            throw Self.failure(
                "cannot complete unit \(Self.quoted(unit)): checking status for unit \(Self.quoted(unit)): \(error)")
        }
        return .init()
    }

    private func requireUnit(_ unit: String) throws {
        guard unit.isEmpty else { return }
        throw Self.failure("cannot check readiness: unit ID cannot be empty: \(UnitError.nameRequired)")
    }

    private func wait(
        _ unit: String, _ responses: ResponseWriter<Coder_Agentsocket_V1_SyncStatusResponse>
    ) async throws {
        try requireUnit(unit)
        while true {
            let (report, revision) = units.versioned(unit)
            try await responses.send(Self.response(report))
            if report.isReady { return }
            try await units.changed(unit, since: revision)
        }
    }

    private func sendEvents(
        historyOnly: Bool, _ responses: ResponseWriter<Coder_Agentsocket_V1_UnitEvent>
    ) async throws {
        // Without an end, events that keep coming would make the history endless.
        let end = historyOnly ? units.nextEvent : Int.max
        var number = 0
        while number < end {
            switch units.events(from: number) {
            case .lost(let count):
                throw Self.failure("SyncEvents: \(count) events were forgotten before they were read")
            case .events(let events, let next):
                for event in events {
                    try await responses.send(
                        .with {
                            $0.unit = event.unit
                            $0.status = event.status
                            $0.at = .with {
                                $0.seconds = event.at.seconds
                                $0.nanos = event.at.nanoseconds
                            }
                        })
                }
                number = next
                if events.isEmpty { try await units.happened(number) }
            }
        }
    }

    static func response(_ report: UnitReport) -> Coder_Agentsocket_V1_SyncStatusResponse {
        .with { response in
            response.status = report.status
            response.isReady = report.isReady
            response.dependencies = report.dependencies.map { dependency in
                .with {
                    $0.unit = report.unit
                    $0.dependsOn = dependency.dependsOn
                    $0.requiredStatus = dependency.requiredStatus
                    $0.currentStatus = dependency.currentStatus
                    $0.isSatisfied = dependency.isSatisfied
                }
            }
        }
    }

    private static func quoted(_ name: String) -> String { goQuoted(cut(name)) }

    /// As much of a name as fits into an error. A client may send megabytes, and quoting them all would block the event
    /// loop.
    private static func cut(_ name: String) -> String {
        guard name.utf8.count > DRPCLimits.errorTextBytes else { return name }
        return String(decoding: name.utf8.prefix(DRPCLimits.errorTextBytes), as: UTF8.self)
    }

    private static func failure(_ text: String) -> DRPCError { DRPCError(.remote(0), text) }
}
