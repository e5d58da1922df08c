// swift-tools-version: 6.2

import Foundation
import PackageDescription

// RE2 goes into the program, so that it runs where the library isn't installed; one that is made with Abseil needs
// forty more, and is linked at run time.
let re2 = FileManager.default.fileExists(atPath: "/usr/include/absl") ? "re2" : ":libre2.a"

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
]

/// A target of ours in Sources.
func module(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

/// The tests of a target; `vectors`: they read recorded bytes from their folder Vectors.
func tests(_ name: String, _ dependencies: [Target.Dependency] = [], vectors: Bool = false) -> Target {
    .testTarget(
        name: name + "Tests",
        dependencies: [.target(name: name)] + dependencies,
        exclude: vectors ? ["Vectors"] : [],
        swiftSettings: strict
    )
}

/// What several test targets share, in Tests.
func testSupport(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, path: "Tests/" + name, swiftSettings: strict)
}

/// A shim over a library's headers alone: the library itself is loaded at run time, when it is first needed.
func loadedWhenNeeded(_ name: String) -> Target {
    .target(name: name, linkerSettings: [.linkedLibrary("dl")])
}

/// A product that is named as our one target in it: for the benchmarks and the fuzzers, which are packages of their own.
func shared(_ name: String) -> Product {
    .library(name: name, targets: [name])
}

extension Target.Dependency {
    static let argumentParser = product(name: "ArgumentParser", package: "swift-argument-parser")
    static let asyncHTTPClient = product(name: "AsyncHTTPClient", package: "async-http-client")
    static let coreMetrics = product(name: "CoreMetrics", package: "swift-metrics")
    static let deque = product(name: "DequeModule", package: "swift-collections")
    static let httpTypes = product(name: "HTTPTypes", package: "swift-http-types")
    static let hummingbird = product(name: "Hummingbird", package: "hummingbird")
    static let hummingbirdCore = product(name: "HummingbirdCore", package: "hummingbird")
    static let logging = product(name: "Logging", package: "swift-log")
    static let metrics = product(name: "Metrics", package: "swift-metrics")
    static let nioCore = product(name: "NIOCore", package: "swift-nio")
    static let nioEmbedded = product(name: "NIOEmbedded", package: "swift-nio")
    static let nioHTTP1 = product(name: "NIOHTTP1", package: "swift-nio")
    static let nioHTTPTypes = product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras")
    static let nioPosix = product(name: "NIOPosix", package: "swift-nio")
    static let nioSSL = product(name: "NIOSSL", package: "swift-nio-ssl")
    static let nioTLS = product(name: "NIOTLS", package: "swift-nio")
    static let nioWebSocket = product(name: "NIOWebSocket", package: "swift-nio")
    static let protobuf = product(name: "SwiftProtobuf", package: "swift-protobuf")
    static let serviceLifecycle = product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
}

let package = Package(
    name: "workspace-agent",
    products: [
        .executable(name: "workspace-agent", targets: ["WorkspaceAgent"]),
        shared("AgentCore"),
        shared("AgentSocket"),
        shared("DRPC"),
        shared("Yamux"),
        shared("WebSockets"),
        shared("BoundaryLog"),
        shared("IPAddresses"),
        shared("Sodium"),
        shared("WireGuard"),
        shared("DERP"),
        shared("Disco"),
        shared("NetStack"),
        shared("AgentProto"),
        shared("Tailnet"),
    ],
    dependencies: [
        // `traits: []` keeps full Foundation out of the binary: see docs/decisions.md.
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.1", traits: []),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras.git", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl.git", from: "2.37.6"),
        .package(url: "https://github.com/swift-server/async-http-client.git", from: "1.37.0", traits: []),
        .package(url: "https://github.com/apple/swift-http-types.git", from: "1.8.0", traits: []),
        .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-collections.git", from: "1.6.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.13.0"),
    ],
    targets: [
        // C: what Swift can't call, and what is embedded.
        .target(name: "CPlatform"),
        .target(name: "CRegex", linkerSettings: [.linkedLibrary(re2)]),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        // With the queue of boundary logs.
        loadedWhenNeeded("CSQLite"),
        // By the git worker alone.
        loadedWhenNeeded("CLibgit2"),
        // Where git needs an ssh client and has none.
        loadedWhenNeeded("CSSH2"),
        // For the tailnet node alone.
        loadedWhenNeeded("CSodium"),
        // libvncclient, libpng and libxkbcommon: at the first use of the desktop.
        loadedWhenNeeded("CDesktop"),
        // The page at /ui.
        .target(name: "CPage", exclude: ["page"]),
        // The document that the daemon serves: `make openapi` makes openapi.json.
        .target(name: "COpenAPI", exclude: ["openapi.json"]),

        // Protocols: bytes in, actions out.
        module("IPAddresses"),
        module("Sodium", ["CSodium"]),
        module("WireGuard", ["IPAddresses", "Sodium", .deque]),
        module("DERP", ["IPAddresses", "Sodium", .deque, .nioCore]),
        module("Disco", ["IPAddresses", "Sodium", .deque]),
        module("NetStack", ["IPAddresses", .deque, .nioCore]),
        module("Yamux", [.deque, .nioCore]),
        module("WebSockets", [.deque, .nioCore, .nioHTTP1, .nioWebSocket]),

        // What all share.
        module("AgentCore", ["CPlatform", "CRegex", .coreMetrics, .deque, .logging, .nioCore]),
        module("AgentProto", [.protobuf]),
        module("DRPC", ["AgentCore", .deque, .nioCore, .nioPosix, .protobuf]),
        module(
            "AgentHTTP",
            [
                "AgentCore", "CPlatform", "WebSockets", .deque, .httpTypes, .hummingbird, .hummingbirdCore, .logging,
                .nioCore, .nioHTTP1, .nioHTTPTypes, .nioPosix, .nioWebSocket, .serviceLifecycle,
            ]
        ),
        module("ControlPlaneAPI", ["AgentCore", "AgentProto", "DRPC", .protobuf]),

        // Capabilities: none imports another.
        module(
            "AgentProc",
            ["AgentCore", "AgentHTTP", "CPlatform", .deque, .httpTypes, .hummingbird, .logging, .nioCore]
        ),
        module(
            "Files",
            ["AgentCore", "AgentHTTP", "CPlatform", "CZlib", .httpTypes, .hummingbird, .logging, .nioCore]
        ),
        module(
            "GitWatch",
            [
                "AgentCore", "AgentHTTP", "CLibgit2", "CPlatform", .httpTypes, .hummingbird, .logging, .nioCore,
                .serviceLifecycle,
            ]
        ),
        module("GitCredentials", ["AgentCore", "CPlatform", "CSSH2"]),
        module(
            "Desktop",
            [
                "AgentCore", "AgentHTTP", "CDesktop", "CPlatform", .deque, .httpTypes, .hummingbird, .logging,
                .nioCore, .nioPosix,
            ]
        ),
        module(
            "AgentSocket",
            [
                "AgentCore", "AgentHTTP", "AgentProto", "DRPC", .deque, .hummingbird, .logging, .nioCore, .nioPosix,
                .serviceLifecycle,
            ]
        ),
        module(
            "BoundaryLog",
            [
                "AgentCore", "AgentProto", "ControlPlaneAPI", "CPlatform", "CSQLite", "DRPC", .deque, .logging,
                .nioCore, .nioPosix, .protobuf, .serviceLifecycle,
            ]
        ),
        module(
            "WorkspaceScripts",
            [
                "AgentCore", "AgentHTTP", "AgentProto", "ControlPlaneAPI", "CPlatform", "DRPC", .deque, .hummingbird,
                .logging, .protobuf,
            ]
        ),

        // The links upward and to peers, and the control plane for `dev` and for tests.
        module(
            "ControlPlane",
            [
                "AgentCore", "AgentProto", "ControlPlaneAPI", "DERP", "DRPC", "IPAddresses", "WebSockets", "Yamux",
                .asyncHTTPClient, .deque, .logging, .nioCore, .nioHTTP1, .nioPosix, .nioSSL, .nioTLS, .protobuf,
                .serviceLifecycle,
            ]
        ),
        module(
            "Tailnet",
            [
                "AgentCore", "AgentHTTP", "AgentProto", "ControlPlaneAPI", "CPlatform", "DERP", "Disco", "DRPC",
                "IPAddresses", "NetStack", "Sodium", "WireGuard", .deque, .hummingbird, .logging, .nioCore, .nioPosix,
                .protobuf,
            ]
        ),
        module(
            "ControlPlaneSimulator",
            [
                "AgentCore", "AgentProto", "ControlPlaneAPI", "DERP", "Disco", "DRPC", "IPAddresses", "Sodium",
                "WebSockets", "Yamux", .deque, .nioCore, .nioHTTP1, .nioPosix, .nioSSL, .protobuf,
            ]
        ),

        // The program: the client of the daemon's local sockets, and what is built on it.
        module(
            "LocalAgent", ["AgentCore", "AgentSocket", "CPlatform", "DRPC", "WebSockets", .nioCore, .nioPosix]
        ),
        .executableTarget(
            name: "WorkspaceAgent",
            dependencies: [
                "AgentCore", "AgentHTTP", "AgentProc", "AgentProto", "AgentSocket", "BoundaryLog", "ControlPlane",
                "ControlPlaneAPI", "ControlPlaneSimulator", "COpenAPI", "CPage", "CPlatform", "DERP", "Desktop",
                "DRPC", "Files", "GitCredentials", "GitWatch", "IPAddresses", "LocalAgent", "Sodium", "Tailnet",
                "WorkspaceScripts",
                .argumentParser, .logging, .metrics, .nioCore, .nioPosix, .serviceLifecycle,
            ],
            swiftSettings: strict
        ),

        // Tests; those that name WorkspaceAgent run the built program.
        .target(name: "CTestSupport", path: "Tests/CTestSupport"),
        testSupport("AgentTestSupport", [.logging]),
        testSupport("ControlPlaneTestSupport", ["ControlPlaneAPI", "DRPC", .protobuf]),
        tests("IPAddresses"),
        tests("Sodium", ["AgentTestSupport"], vectors: true),
        tests("WireGuard", ["AgentTestSupport", "IPAddresses", "Sodium"], vectors: true),
        tests("DERP", ["AgentTestSupport", "IPAddresses", "Sodium", .nioCore], vectors: true),
        tests("Disco", ["AgentTestSupport", "IPAddresses", "Sodium"], vectors: true),
        tests("NetStack", ["AgentTestSupport", "IPAddresses", .nioCore], vectors: true),
        tests("Yamux", ["AgentTestSupport", "DRPC", .nioCore, .nioEmbedded, .nioPosix, .protobuf], vectors: true),
        tests("WebSockets", ["AgentTestSupport", .nioCore, .nioEmbedded, .nioHTTP1, .nioWebSocket], vectors: true),
        tests("AgentCore", ["AgentTestSupport", "CPlatform", .nioCore, .nioEmbedded, .nioPosix]),
        tests("AgentProto", ["AgentTestSupport", .protobuf], vectors: true),
        tests("DRPC", ["AgentCore", .nioCore, .nioEmbedded, .nioPosix, .protobuf], vectors: true),
        tests(
            "AgentHTTP",
            ["AgentCore", "AgentTestSupport", "CPlatform", .httpTypes, .hummingbird, .logging, .nioCore, .nioPosix]
        ),
        tests(
            "AgentProc",
            [
                "AgentCore", "AgentHTTP", "AgentTestSupport", "CPlatform", "CTestSupport", .logging, .nioCore,
                .nioPosix,
            ]
        ),
        tests(
            "Files",
            [
                "AgentCore", "AgentHTTP", "AgentTestSupport", "CPlatform", "CTestSupport", "WorkspaceAgent", .logging,
                .nioCore, .nioPosix,
            ],
            vectors: true
        ),
        tests(
            "GitWatch",
            [
                "AgentCore", "AgentProc", "AgentTestSupport", "CLibgit2", "CPlatform", "WorkspaceAgent", .logging,
                .nioCore,
            ]
        ),
        tests("GitCredentials", ["AgentCore", "AgentTestSupport"]),
        tests(
            "Desktop",
            [
                "AgentCore", "AgentHTTP", "AgentProc", "AgentTestSupport", "CDesktop", "CPlatform", "WorkspaceAgent",
                .logging, .nioCore, .nioPosix,
            ],
            vectors: true
        ),
        tests(
            "AgentSocket",
            [
                "AgentCore", "AgentProto", "AgentTestSupport", "CPlatform", "DRPC", "WorkspaceAgent", .logging,
                .nioCore, .nioPosix,
            ]
        ),
        tests(
            "BoundaryLog",
            [
                "AgentCore", "AgentProto", "AgentTestSupport", "ControlPlaneAPI", "ControlPlaneTestSupport",
                "CPlatform", "DRPC", .logging, .nioCore, .nioPosix, .protobuf,
            ],
            vectors: true
        ),
        tests(
            "WorkspaceScripts",
            [
                "AgentCore", "AgentProc", "AgentProto", "AgentTestSupport", "ControlPlane", "ControlPlaneAPI",
                "ControlPlaneSimulator", "ControlPlaneTestSupport", "DRPC", .logging, .nioPosix, .protobuf,
            ]
        ),
        tests(
            "ControlPlane",
            [
                "AgentCore", "AgentProto", "AgentTestSupport", "ControlPlaneAPI", "ControlPlaneTestSupport", "DERP",
                "DRPC", "WebSockets", .logging, .nioCore, .nioHTTP1, .nioPosix, .nioSSL, .protobuf,
            ]
        ),
        tests(
            "Tailnet",
            [
                "AgentCore", "AgentProto", "AgentTestSupport", "DERP", "IPAddresses", "NetStack", "Sodium",
                "WireGuard", .logging, .nioCore, .nioPosix, .protobuf,
            ],
            vectors: true
        ),
        tests(
            "ControlPlaneSimulator",
            [
                "AgentCore", "AgentProto", "AgentTestSupport", "ControlPlaneAPI", "DERP", "Disco", "DRPC",
                "IPAddresses", "Sodium", "WebSockets", .nioCore, .nioPosix, .nioSSL, .protobuf,
            ],
            vectors: true
        ),
        .testTarget(
            name: "IntegrationTests",
            dependencies: [
                "AgentCore", "AgentProc", "AgentProto", "AgentSocket", "AgentTestSupport", "BoundaryLog",
                "ControlPlane", "ControlPlaneAPI", "ControlPlaneSimulator", "DRPC", "GitCredentials", "IPAddresses",
                "LocalAgent", "Tailnet", "WorkspaceAgent", .nioCore, .nioPosix, .protobuf,
            ],
            swiftSettings: strict
        ),
    ],
    cxxLanguageStandard: .cxx17
)
