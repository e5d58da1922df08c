#!/usr/bin/env bash
# Everything that can be wrong without a test failing. Each check prints what it found and fails.
set -u
cd "$(dirname "$0")/.."
failed=0
check() { # title, found
    if [ -n "$2" ]; then
        printf '%s:\n%s\n\n' "$1" "$2"
        failed=1
    fi
}
sources=$(git ls-files 'Sources/*.swift' | grep -v '\.pb\.swift$')
tests=$(git ls-files 'Tests/*.swift')

# --strict: without it findings do not fail.
swift format lint --strict -r Package.swift $sources $tests $(git ls-files 'Benchmarks/*.swift') || failed=1

# Every import in whatever form (`package import M`, `@testable import M`, `import struct M.T`), as "file:line: module".
imports=$(grep -nHE '^ *((@[A-Za-z_]+(\([^)]*\))?|public|package|internal|fileprivate|private) +)*import ' \
    $sources $tests $(git ls-files 'Sources/*.pb.swift') \
    | sed -E 's/^([^:]+:[0-9]+:).*import +((typealias|struct|class|enum|protocol|let|var|func) +)?([A-Za-z0-9_]+).*/\1 \4/')

# One import of Foundation links all of it: megabytes of binary and memory.
check "full Foundation in Sources (use FoundationEssentials)" \
    "$(grep -E '^Sources/.*: Foundation$' <<<"$imports" | grep -v '\.pb\.swift:')"

check "traps on outside input" \
    "$(grep -nE '(fatalError\(|preconditionFailure\(|try!|as! |\.first!|\.last!|\]!)' $sources)"

check "unchecked promises without a reason beside them" \
    "$(grep -nE -B1 '@unchecked Sendable|nonisolated\(unsafe\)' $sources | grep -E '@unchecked|nonisolated\(unsafe' \
        | while IFS= read -r hit; do
            file=${hit%%:*}; rest=${hit#*:}; line=${rest%%:*}
            sed -n "$((line > 3 ? line - 3 : 1)),${line}p" "$file" | grep -q '//' || echo "$hit"
        done)"

# Which of our targets each target may import: down only, and never one capability another (docs/architecture.md).
# A new target needs a row.
walls='
CPage
CPlatform
CRegex
CSQLite
CZlib
CLibgit2
CSSH2
CSodium
IPAddresses
Sodium                 CSodium
WireGuard              IPAddresses Sodium
DERP                   IPAddresses Sodium
Disco                  IPAddresses Sodium
NetStack               IPAddresses
Tailnet                AgentCore AgentHTTP AgentProto CPlatform ControlPlaneAPI DERP DRPC Disco IPAddresses NetStack Sodium WireGuard
CDesktop
COpenAPI
AgentCore              CPlatform CRegex
AgentProto
Yamux                  AgentCore
WebSockets             AgentCore
DRPC                   AgentCore
AgentHTTP              AgentCore CPlatform WebSockets
ControlPlaneAPI        AgentCore AgentProto DRPC
AgentProc              AgentCore AgentHTTP CPlatform
GitCredentials         AgentCore CPlatform CSSH2
GitWatch               AgentCore AgentHTTP CLibgit2 CPlatform
Desktop                AgentCore AgentHTTP CDesktop CPlatform
Files                  AgentCore AgentHTTP CPlatform CZlib
AgentSocket            AgentCore AgentHTTP AgentProto CPlatform ControlPlaneAPI DRPC
BoundaryLog            AgentCore AgentProto CPlatform CSQLite ControlPlaneAPI DRPC
WorkspaceScripts       AgentCore AgentHTTP AgentProto CPlatform ControlPlaneAPI DRPC
ControlPlane           AgentCore AgentProto CPlatform ControlPlaneAPI DERP DRPC IPAddresses WebSockets Yamux
ControlPlaneSimulator  AgentCore AgentProto ControlPlaneAPI DERP DRPC Disco IPAddresses Sodium WebSockets Yamux
WorkspaceAgent         AgentCore AgentHTTP AgentProc AgentProto AgentSocket BoundaryLog COpenAPI CPage CPlatform
WorkspaceAgent         ControlPlane ControlPlaneAPI ControlPlaneSimulator DERP DRPC Desktop Files GitCredentials GitWatch
WorkspaceAgent         IPAddresses Sodium Tailnet WorkspaceScripts
'
targets=$(git ls-files Sources | cut -d / -f 2 | sort -u)
check "targets that have no row in the walls of scripts/lint.sh" \
    "$(comm -23 <(echo "$targets") <(awk '{ print $1 }' <<<"$walls" | sort -u))"
check "imports that cross a wall" "$(awk -v targets="$targets" -v walls="$walls" '
    BEGIN {
        count = split(targets, names); for (i = 1; i <= count; i++) ours[names[i]] = 1
        count = split(walls, rows, "\n")
        for (i = 1; i <= count; i++) {
            fields = split(rows[i], field, " ")
            for (j = 1; j <= fields; j++) allowed[field[1], field[j]] = 1
        }
    }
    { split($1, path, "/") }
    path[1] == "Sources" && ours[$2] && !allowed[path[2], $2] { print $1, path[2], "must not import", $2 }
' <<<"$imports")"

# "target dependency reason" for each dependency of a target; a comment "// Built for …" above it is a reason.
dependencies=$(awk '
    /\.(target|executableTarget|testTarget|systemLibrary)\(/ { target = "" }
    /^ *name: "/ && target == "" { split($0, part, "\""); target = part[2] }
    { rest = $0; comment = rest ~ /^ *\/\// }
    /dependencies: \[/ { inside = target != ""; sub(/.*dependencies: \[/, "", rest) }
    inside && !comment {
        if (rest ~ /\],? *$/) inside = 0
        gsub(/package: "[^"]*"/, "", rest)
        while (match(rest, /"[A-Za-z0-9_]+"/)) {
            print target, substr(rest, RSTART + 1, RLENGTH - 2), reason
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    { reason = $0 ~ /^ *\/\/ Built for/ ? "built" : "" }
' Package.swift)
check "dependencies in Package.swift that no file of the target imports" \
    "$(awk 'NR == FNR { split($1, path, "/"); imported[path[2], $2] = 1; next }
        !imported[$1, $2] && $3 == "" { print $1 ": " $2 }' <(echo "$imports") <(echo "$dependencies"))"

# Name the actor and the thing: the client, the control plane, the reactor.
check "words that hide who acts or what happens" "$(grep -nwiE \
    'whoever|nobody|by and by|look-?outs?|of no use|wreck(s|ed)?' $sources $(git ls-files 'Sources/*.[ch]'))"

check "tests that wait by the clock" \
    "$(grep -nE 'Task\.sleep|usleep\(|[^a-zA-Z.]sleep\(' $tests | grep -v 'func sleep')"

# Files of over 400 lines and functions of over 60, with the reason for each.
long='
Sources/WorkspaceAgent/Daemon/AgentConfiguration.swift:init    one flag after the other
Sources/WorkspaceAgent/Daemon/Daemon.swift:compose             the whole daemon, read from top to bottom
Tests/AgentSocketTests/CommandLineTests.swift:aUnitsLife       one unit through all commands
Tests/BoundaryLogTests/KillTests.swift:killedTwentyTimes       one drill
Tests/ControlPlaneSimulatorTests/SimulatorServerTests.swift    one server, every way to reach it
Tests/ControlPlaneSimulatorTests/SimulatorServiceTests.swift   one service, every rpc
Tests/DesktopTests/ViewerTests.swift:aPersonSeesTypesAndClicks one visit with a browser
Tests/YamuxTests/VectorTests.swift:play                        one recorded exchange, event by event
'
found=$(awk '
    FNR == 1 { start = 0 }
    FNR == 401 { print FILENAME }
    !start && match($0, /^ *([^ \/]+ )*(func [^ (<]+|init)[?(<]/) {
        signature = substr($0, 1, RLENGTH - 1); sub(/.*[ ]/, "", signature)
        match($0, /^ */); indent = RLENGTH; start = $0 ~ /\}$/ ? 0 : FNR
        next
    }
    start && match($0, /^ */) && RLENGTH == indent && $0 ~ /^ *[a-z@}]/ {
        if ($0 ~ /^ *\}/ && FNR - start >= 60) print FILENAME ":" signature
        start = 0
    }
' $sources $tests | sort)
reasoned=$(awk 'NF > 1 { print $1 }' <<<"$long" | sort)
check "files over 400 lines and functions over 60 without a reason in scripts/lint.sh" \
    "$(comm -23 <(echo "$found") <(echo "$reasoned"))"
check "reasons in scripts/lint.sh that are no longer needed" "$(comm -13 <(echo "$found") <(echo "$reasoned"))"

# A clean build shows all warnings; a later one only those of what changed.
log=$(mktemp)
swift build --build-tests >"$log" 2>&1 || { cat "$log"; failed=1; }
check "compiler warnings" "$(grep -E '(Sources|Tests)/.*warning:' "$log" | sort -u)"
rm -f "$log"

# After the build, which fetches the packages whose names it reads.
unused=$(python3 scripts/unused-imports.py $sources $tests) || failed=1
check "unused imports" "$unused"

# What is made of other files is current.
scripts/openapi.py --check || failed=1
scripts/configuration.py --check "$(swift build --show-bin-path)/workspace-agent" || failed=1
if [ -x scripts/proto.sh ] && command -v protoc >/dev/null; then
    scripts/proto.sh --check || failed=1
fi
[ "$failed" = 0 ] && echo "lint: clean"
exit "$failed"
