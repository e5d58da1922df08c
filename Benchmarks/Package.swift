// swift-tools-version: 6.2

import PackageDescription

// A package of its own, so that nothing it needs reaches users.
let package = Package(
    name: "Benchmarks",
    targets: [
        .executableTarget(
            name: "ProcessBench",
            swiftSettings: [.swiftLanguageMode(.v6), .enableUpcomingFeature("ExistentialAny")]
        )
    ]
)
