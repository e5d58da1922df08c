// swift-tools-version: 6.2

import Foundation
import PackageDescription

let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
]

// RE2 goes into the program, so that it runs where the library isn't installed; one that is made with Abseil needs
// forty more, and is linked at run time.
let re2 = FileManager.default.fileExists(atPath: "/usr/include/absl") ? "re2" : ":libre2.a"

let package = Package(
    name: "workspace-agent",
    products: [
        .executable(name: "workspace-agent", targets: ["WorkspaceAgent"]),
        // For the benchmarks and the fuzzers, which are packages of their own.
        .library(name: "AgentCore", targets: ["AgentCore"]),
        .library(name: "AgentSocket", targets: ["AgentSocket"]),
        .library(name: "DRPC", targets: ["DRPC"]),
        .library(name: "Yamux", targets: ["Yamux"]),
        .library(name: "WebSockets", targets: ["WebSockets"]),
        .library(name: "BoundaryLog", targets: ["BoundaryLog"]),
        .library(name: "IPAddresses", targets: ["IPAddresses"]),
        .library(name: "Sodium", targets: ["Sodium"]),
        .library(name: "WireGuard", targets: ["WireGuard"]),
        .library(name: "DERP", targets: ["DERP"]),
        .library(name: "Disco", targets: ["Disco"]),
        .library(name: "NetStack", targets: ["NetStack"]),
        .library(name: "AgentProto", targets: ["AgentProto"]),
        .library(name: "Tailnet", targets: ["Tailnet"]),
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
        .target(name: "CPlatform"),
        // The page at /ui, embedded by the compiler.
        .target(name: "CPage", exclude: ["page"]),
        .target(name: "CRegex", linkerSettings: [.linkedLibrary(re2)]),
        .target(
            name: "AgentCore",
            dependencies: [
                "CPlatform",
                "CRegex",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AgentHTTP",
            dependencies: [
                "AgentCore",
                "CPlatform",
                "WebSockets",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AgentProc",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "CPlatform",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AgentProto",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            swiftSettings: strict
        ),
        .target(
            name: "DRPC",
            dependencies: [
                "AgentCore",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AgentSocket",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "AgentProto",
                "DRPC",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "Yamux",
            dependencies: [
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "WebSockets",
            dependencies: [
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "ControlPlaneAPI",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "DRPC",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "WorkspaceScripts",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                .product(name: "Hummingbird", package: "hummingbird"),
                "AgentProto",
                "ControlPlaneAPI",
                "DRPC",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "ControlPlane",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "ControlPlaneAPI",
                "DERP",
                "DRPC",
                "IPAddresses",
                "WebSockets",
                "Yamux",
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "ControlPlaneSimulator",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "ControlPlaneAPI",
                "DERP",
                "DRPC",
                "Disco",
                "IPAddresses",
                "Sodium",
                "WebSockets",
                "Yamux",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        // Headers of libsqlite3-dev; the library itself is loaded at run time, with the queue of boundary logs.
        .target(name: "CSQLite", linkerSettings: [.linkedLibrary("dl")]),
        .target(
            name: "BoundaryLog",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "CPlatform",
                "CSQLite",
                "ControlPlaneAPI",
                "DRPC",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        // Headers of libgit2-dev; the library itself is loaded at run time, by the git worker alone.
        .target(name: "CLibgit2", linkerSettings: [.linkedLibrary("dl")]),
        .target(
            name: "GitWatch",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "CLibgit2",
                "CPlatform",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            swiftSettings: strict
        ),
        // Headers of libssh2-1-dev; the library itself is loaded at run time, where git needs an ssh client and has none.
        .target(name: "CSSH2", linkerSettings: [.linkedLibrary("dl")]),
        .target(name: "GitCredentials", dependencies: ["AgentCore", "CPlatform", "CSSH2"], swiftSettings: strict),
        .target(name: "IPAddresses", swiftSettings: strict),
        // Headers of libsodium-dev; the library itself is loaded at run time, for the tailnet node alone.
        .target(name: "CSodium", linkerSettings: [.linkedLibrary("dl")]),
        .target(name: "Sodium", dependencies: ["CSodium"], swiftSettings: strict),
        .target(
            name: "WireGuard",
            dependencies: ["IPAddresses", "Sodium", .product(name: "DequeModule", package: "swift-collections")],
            swiftSettings: strict
        ),
        .target(
            name: "DERP",
            dependencies: [
                "IPAddresses",
                "Sodium",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "Disco",
            dependencies: [
                "IPAddresses",
                "Sodium",
                .product(name: "DequeModule", package: "swift-collections"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "NetStack",
            dependencies: [
                "IPAddresses",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "Tailnet",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "AgentProto",
                "CPlatform",
                "ControlPlaneAPI",
                "DERP",
                "DRPC",
                "Disco",
                "IPAddresses",
                "NetStack",
                "Sodium",
                "WireGuard",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        .target(
            name: "Files",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "CPlatform",
                "CZlib",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        // Headers of libvncclient, libpng and libxkbcommon; loaded at the first use of the desktop.
        .target(name: "CDesktop", linkerSettings: [.linkedLibrary("dl")]),
        .target(
            name: "Desktop",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "CDesktop",
                "CPlatform",
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        // The document that the daemon serves: `make openapi` makes openapi.json.
        .target(name: "COpenAPI", exclude: ["openapi.json"]),
        .executableTarget(
            name: "WorkspaceAgent",
            dependencies: [
                "COpenAPI",
                "AgentCore",
                "AgentHTTP",
                "AgentProc",
                "AgentProto",
                "AgentSocket",
                "BoundaryLog",
                "Desktop",
                "Files",
                "GitCredentials",
                "GitWatch",
                "CPage",
                "CPlatform",
                "ControlPlane",
                "ControlPlaneAPI",
                "ControlPlaneSimulator",
                "DERP",
                "DRPC",
                "IPAddresses",
                "Sodium",
                "Tailnet",
                "WorkspaceScripts",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .target(
            name: "AgentTestSupport",
            dependencies: [.product(name: "Logging", package: "swift-log")],
            path: "Tests/AgentTestSupport",
            swiftSettings: strict
        ),
        .target(
            name: "ControlPlaneTestSupport",
            dependencies: [
                "ControlPlaneAPI", "DRPC", .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            path: "Tests/ControlPlaneTestSupport",
            swiftSettings: strict
        ),
        .target(name: "CTestSupport", path: "Tests/CTestSupport"),
        .testTarget(
            name: "AgentCoreTests",
            dependencies: [
                "AgentCore", "AgentTestSupport", "CPlatform",
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AgentHTTPTests",
            dependencies: [
                "AgentCore", "AgentHTTP", "AgentTestSupport",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AgentProcTests",
            dependencies: [
                "AgentCore", "AgentHTTP", "AgentProc", "AgentTestSupport", "CPlatform", "CTestSupport",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "IntegrationTests",
            dependencies: [
                "AgentCore", "AgentProc", "AgentProto", "AgentSocket", "AgentTestSupport", "BoundaryLog",
                "ControlPlaneAPI", "ControlPlaneSimulator", "DRPC", "IPAddresses", "Tailnet", "WorkspaceAgent",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .testTarget(name: "IPAddressesTests", dependencies: ["IPAddresses"], swiftSettings: strict),
        .testTarget(
            name: "SodiumTests",
            dependencies: ["Sodium", "AgentTestSupport"],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "WireGuardTests",
            dependencies: ["AgentTestSupport", "IPAddresses", "Sodium", "WireGuard"],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "DERPTests",
            dependencies: [
                "AgentTestSupport",
                "DERP",
                "IPAddresses",
                "Sodium",
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "DiscoTests",
            dependencies: ["AgentTestSupport", "Disco", "IPAddresses", "Sodium"],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "TailnetTests",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "AgentTestSupport",
                "DERP",
                "IPAddresses",
                "NetStack",
                "Sodium",
                "Tailnet",
                "WireGuard",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "NetStackTests",
            dependencies: [
                "AgentTestSupport",
                "IPAddresses",
                "NetStack",
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "YamuxTests",
            dependencies: [
                "AgentTestSupport",
                "DRPC",
                "Yamux",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "WebSocketsTests",
            dependencies: [
                "AgentTestSupport",
                "WebSockets",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "ControlPlaneTests",
            dependencies: [
                "ControlPlaneTestSupport",
                "AgentCore",
                "AgentProto",
                "AgentTestSupport",
                "ControlPlane",
                "ControlPlaneAPI",
                "DERP",
                "DRPC",
                "WebSockets",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "ControlPlaneSimulatorTests",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "AgentTestSupport",
                "ControlPlaneAPI",
                "ControlPlaneSimulator",
                "DERP",
                "DRPC",
                "Disco",
                "IPAddresses",
                "Sodium",
                "WebSockets",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "WorkspaceScriptsTests",
            dependencies: [
                "ControlPlaneTestSupport",
                "AgentCore",
                "AgentProc",
                "AgentProto",
                "AgentTestSupport",
                // For lives with real sockets and real scripts.
                "ControlPlane",
                "ControlPlaneAPI",
                "ControlPlaneSimulator",
                "DRPC",
                "WorkspaceScripts",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "BoundaryLogTests",
            dependencies: [
                "ControlPlaneTestSupport",
                "AgentCore",
                "AgentProto",
                "AgentTestSupport",
                "BoundaryLog",
                "CPlatform",
                "ControlPlaneAPI",
                "DRPC",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "DRPCTests",
            dependencies: [
                "AgentCore",
                "DRPC",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "GitWatchTests",
            dependencies: [
                "AgentCore",
                "AgentProc",
                "AgentTestSupport",
                "CPlatform",
                "GitWatch",
                // Built for the worker.
                "WorkspaceAgent",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
        .testTarget(
            name: "GitCredentialsTests",
            dependencies: ["AgentCore", "AgentTestSupport", "GitCredentials"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "FilesTests",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "AgentTestSupport",
                "CPlatform",
                "CTestSupport",
                "Files",
                // Built for the tests that run the daemon.
                "WorkspaceAgent",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "DesktopTests",
            dependencies: [
                "AgentCore",
                "AgentHTTP",
                "AgentProc",
                "AgentTestSupport",
                "CDesktop",
                "CPlatform",
                "Desktop",
                // Built for the tests that run the daemon.
                "WorkspaceAgent",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AgentProtoTests",
            dependencies: ["AgentProto", .product(name: "SwiftProtobuf", package: "swift-protobuf")],
            exclude: ["Vectors"],
            swiftSettings: strict
        ),
        .testTarget(
            name: "AgentSocketTests",
            dependencies: [
                "AgentCore",
                "AgentProto",
                "AgentSocket",
                "AgentTestSupport",
                "DRPC",
                // Built for the tests that run the commands.
                "WorkspaceAgent",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: strict
        ),
    ],
    cxxLanguageStandard: .cxx17
)
