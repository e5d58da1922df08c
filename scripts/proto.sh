#!/bin/sh
# Generates Sources/AgentProto from proto/. With --check it changes nothing and fails when the
# committed code differs from what the contracts give.
#
# Needs protoc and its well-known types (Debian: protobuf-compiler libprotobuf-dev). The Swift
# plugin is built from the swift-protobuf checkout of this package, so that generator and runtime
# have one version.
set -eu

cd "$(dirname "$0")/.."
root=$PWD

command -v protoc >/dev/null || {
    echo "proto.sh: protoc is missing; install protobuf-compiler and libprotobuf-dev" >&2
    exit 1
}

plugin=${PROTOC_GEN_SWIFT:-}
if [ -z "$plugin" ]; then
    [ -d .build/checkouts/swift-protobuf ] || swift package resolve
    swift build --package-path .build/checkouts/swift-protobuf --scratch-path .build/protoc-gen-swift \
        --product protoc-gen-swift -c release >&2
    plugin=.build/protoc-gen-swift/release/protoc-gen-swift
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
(
    cd proto
    # shellcheck disable=SC2046
    protoc --plugin=protoc-gen-swift="$(cd "$root" && realpath "$plugin")" --proto_path=. \
        --swift_opt=Visibility=Package --swift_opt=FileNaming=DropPath \
        --swift_opt=UseAccessLevelOnImports=true \
        --swift_out="$out" $(find . -name '*.proto' | LC_ALL=C sort)
)

if [ "${1:-}" = --check ]; then
    status=0
    for file in "$out"/*.pb.swift; do
        cmp -s "$file" "Sources/AgentProto/$(basename "$file")" || {
            echo "proto.sh: Sources/AgentProto/$(basename "$file") is not current; run scripts/proto.sh" >&2
            status=1
        }
    done
    for file in Sources/AgentProto/*.pb.swift; do
        [ -f "$out/$(basename "$file")" ] || {
            echo "proto.sh: $file has no contract in proto/ any more" >&2
            status=1
        }
    done
    exit $status
fi

rm -f Sources/AgentProto/*.pb.swift
cp "$out"/*.pb.swift Sources/AgentProto/
