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

check "traps on outside input" \
    "$(grep -nE '(fatalError\(|preconditionFailure\(|try!|as! |\.first!|\.last!|\]!)' $sources)"

check "unchecked promises without a reason beside them" \
    "$(grep -nE -B1 '@unchecked Sendable|nonisolated\(unsafe\)' $sources | grep -E '@unchecked|nonisolated\(unsafe' \
        | while IFS= read -r hit; do
            file=${hit%%:*}; rest=${hit#*:}; line=${rest%%:*}
            sed -n "$((line > 3 ? line - 3 : 1)),${line}p" "$file" | grep -q '//' || echo "$hit"
        done)"

walls=$(python3 scripts/walls.py $sources $tests $(git ls-files 'Sources/*.pb.swift')) || failed=1
check "imports that cross a wall (docs/architecture.md)" "$walls"

# Name the actor and the thing: the client, the control plane, the reactor.
check "words that hide who acts or what happens" "$(grep -nwiE \
    'whoever|nobody|by and by|look-?outs?|of no use|wreck(s|ed)?' $sources $(git ls-files 'Sources/*.[ch]'))"

# A comment that names a contract names page and heading (docs/contracts/README.md).
check "citations of documents or headings that do not exist" "$(python3 scripts/citations.py)"

check "tests that wait by the clock" \
    "$(grep -nE 'Task\.sleep|usleep\(|[^a-zA-Z.]sleep\(' $tests | grep -v 'func sleep')"

# Files of over 400 lines and functions of over 60, with the reason for each.
long='
Sources/WorkspaceAgent/Daemon/AgentConfiguration.swift:init    one flag after the other
Sources/WorkspaceAgent/Daemon/Composition.swift:init           the whole daemon, read from top to bottom
Tests/AgentSocketTests/CommandLineTests.swift:aUnitsLife       one unit through all commands
Tests/AgentSocketTests/UnitJournalTests.swift                  one file of units, and all that can happen to it
Tests/BoundaryLogTests/KillTests.swift:killedTwentyTimes       one drill
Tests/ControlPlaneSimulatorTests/SimulatorServerTests.swift    one server, every way to reach it
Tests/ControlPlaneSimulatorTests/SimulatorServiceTests.swift   one service, every rpc
Tests/DesktopTests/ViewerTests.swift:aPersonSeesTypesAndClicks one visit with a browser
Tests/WorkspaceScriptsTests/ManifestReportTests.swift:everythingThatAManifestHolds one manifest with every field
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
unused=$(python3 scripts/unused_imports.py $sources $tests) || failed=1
check "unused imports" "$unused"

# What is made of other files is current.
scripts/openapi.py --check || failed=1
scripts/configuration.py --check "$(swift build --show-bin-path)/workspace-agent" || failed=1
if [ -x scripts/proto.sh ] && command -v protoc >/dev/null; then
    scripts/proto.sh --check || failed=1
fi
[ "$failed" = 0 ] && echo "lint: clean"
exit "$failed"
