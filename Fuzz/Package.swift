// swift-tools-version: 6.2

import PackageDescription

// libFuzzer targets. See README.md for how to run them.
let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6), .enableUpcomingFeature("ExistentialAny"),
    .unsafeFlags(["-sanitize=fuzzer,address", "-parse-as-library"]),
]
let linker: [LinkerSetting] = [.unsafeFlags(["-sanitize=fuzzer,address", "-use-ld=lld"])]

func fuzzer(_ name: String, of library: String = "DRPC") -> Target {
    .executableTarget(
        name: name,
        dependencies: [
            .product(name: library, package: "workspace-agent"), .product(name: "NIOCore", package: "swift-nio"),
        ],
        swiftSettings: swift, linkerSettings: linker)
}

let package = Package(
    name: "Fuzz",
    dependencies: [
        .package(name: "workspace-agent", path: ".."),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.2"),
    ],
    targets: [fuzzer("FrameFuzz"), fuzzer("ServerFuzz"), fuzzer("YamuxFuzz", of: "Yamux")]
)
