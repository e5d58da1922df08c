// swift-tools-version: 6.2

import PackageDescription

// libFuzzer targets. See README.md for how to run them.
let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6), .enableUpcomingFeature("ExistentialAny"),
    .unsafeFlags(["-sanitize=fuzzer,address", "-parse-as-library"]),
]
let linker: [LinkerSetting] = [.unsafeFlags(["-sanitize=fuzzer,address", "-use-ld=lld"])]

func fuzzer(_ name: String, _ modules: [String], _ more: [Target.Dependency] = []) -> Target {
    .executableTarget(
        name: name,
        dependencies: modules.map { .product(name: $0, package: "workspace-agent") }
            + [.product(name: "NIOCore", package: "swift-nio")] + more,
        swiftSettings: swift, linkerSettings: linker)
}

let package = Package(
    name: "Fuzz",
    dependencies: [
        .package(name: "workspace-agent", path: ".."),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-protobuf.git", from: "1.39.0", traits: []),
    ],
    targets: [
        fuzzer("FrameFuzz", ["DRPC"]),
        fuzzer("ServerFuzz", ["DRPC"]),
        fuzzer("HandlerFuzz", ["DRPC", "AgentSocket"], [.product(name: "NIOEmbedded", package: "swift-nio")]),
        fuzzer("WebSocketFuzz", ["WebSockets"]),
        fuzzer("YamuxFuzz", ["Yamux"]),
        .target(name: "FuzzInput", swiftSettings: [.swiftLanguageMode(.v6)]),
        fuzzer("WireGuardFuzz", ["IPAddresses", "Sodium", "WireGuard"], ["FuzzInput"]),
        fuzzer("DERPFuzz", ["DERP", "Sodium"], ["FuzzInput"]),
        fuzzer("DiscoFuzz", ["Disco", "IPAddresses", "Sodium"], ["FuzzInput"]),
        fuzzer("NetStackFuzz", ["IPAddresses", "NetStack"], ["FuzzInput"]),
        fuzzer(
            "CoordinatorFuzz", ["AgentProto", "DERP", "IPAddresses", "Sodium", "Tailnet"],
            ["FuzzInput", .product(name: "SwiftProtobuf", package: "swift-protobuf")]),
        // Compares with the generated types, which are not public: links to them lie beside it.
        fuzzer("BoundaryFuzz", ["BoundaryLog"], [.product(name: "SwiftProtobuf", package: "swift-protobuf")]),
    ]
)
