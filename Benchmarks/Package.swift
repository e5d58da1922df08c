// swift-tools-version: 6.2

import PackageDescription

let strict: [SwiftSetting] = [.swiftLanguageMode(.v6), .enableUpcomingFeature("ExistentialAny")]

// A package of its own, so that nothing it needs reaches users.
let package = Package(
    name: "Benchmarks",
    dependencies: [
        .package(name: "workspace-agent", path: ".."),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl.git", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
    ],
    targets: [
        // Clocks, percentiles, rows, and the release binary as a child.
        .target(name: "BenchSupport", swiftSettings: strict),
        // Drive the release binary and need nothing else.
        .executableTarget(name: "ProcessBench", dependencies: ["BenchSupport"], swiftSettings: strict),
        .executableTarget(name: "FilesBench", dependencies: ["BenchSupport"], swiftSettings: strict),
        .executableTarget(name: "GitBench", swiftSettings: strict),
        .executableTarget(name: "DesktopBench", dependencies: ["BenchSupport"], swiftSettings: strict),
        .executableTarget(
            name: "SocketBench",
            dependencies: [
                .product(name: "AgentCore", package: "workspace-agent"),
                .product(name: "AgentSocket", package: "workspace-agent"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "BoundaryBench",
            dependencies: [
                .product(name: "AgentCore", package: "workspace-agent"),
                .product(name: "BoundaryLog", package: "workspace-agent"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "YamuxBench",
            dependencies: [
                .product(name: "DRPC", package: "workspace-agent"),
                .product(name: "Yamux", package: "workspace-agent"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
        .executableTarget(
            name: "LinkBench",
            dependencies: [
                "BenchSupport",
                .product(name: "AgentCore", package: "workspace-agent"),
                .product(name: "DRPC", package: "workspace-agent"),
                .product(name: "WebSockets", package: "workspace-agent"),
                .product(name: "Yamux", package: "workspace-agent"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            swiftSettings: strict
        ),
    ]
)
