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

# --strict: without it findings do not fail.
swift format lint --strict -r Package.swift $sources $(git ls-files 'Tests/*.swift' 'Benchmarks/*.swift') || failed=1

# One import of Foundation links all of it: megabytes of binary and memory.
check "full Foundation in Sources (use FoundationEssentials)" \
    "$(grep -nE '^(public |internal |package |@preconcurrency )*import Foundation$' $sources)"

check "traps on outside input" \
    "$(grep -nE '(fatalError\(|preconditionFailure\(|try!|as! |\.first!|\.last!|\]!)' $sources)"

check "unchecked promises without a reason beside them" \
    "$(grep -nE -B1 '@unchecked Sendable|nonisolated\(unsafe\)' $sources | grep -E '@unchecked|nonisolated\(unsafe' \
        | while IFS= read -r hit; do
            file=${hit%%:*}; rest=${hit#*:}; line=${rest%%:*}
            sed -n "$((line > 3 ? line - 3 : 1)),${line}p" "$file" | grep -q '//' || echo "$hit"
        done)"

# Imports go down only, and capabilities never import one another (docs/architecture.md).
capabilities="AgentProc GitWatch Desktop AgentSocket BoundaryLog ControlPlane"
for module in $capabilities; do
    [ -d "Sources/$module" ] || continue
    for other in $capabilities WorkspaceAgent; do
        [ "$module" = "$other" ] && continue
        check "$module must not import $other" "$(grep -rnE "^import $other\$" "Sources/$module")"
    done
done
for module in CPlatform AgentCore AgentProto Yamux WebSockets DRPC AgentHTTP; do
    [ -d "Sources/$module" ] || continue
    for other in $capabilities ControlPlaneSimulator WorkspaceAgent; do
        check "$module must not import $other" "$(grep -rnE "^import $other\$" "Sources/$module")"
    done
done
[ -d Sources/AgentCore ] && check "AgentCore must not import AgentHTTP" \
    "$(grep -rnE '^import (AgentHTTP|DRPC|Yamux|Hummingbird)$' Sources/AgentCore)"

check "tests that wait by the clock" \
    "$(git ls-files 'Tests/*.swift' | xargs grep -nE 'Task\.sleep|usleep\(|[^a-zA-Z.]sleep\(' | grep -v 'func sleep')"

check "files over 500 lines" \
    "$(wc -l $sources $(git ls-files 'Tests/*.swift') | awk '$1 > 500 && $2 != "total"')"

# A clean build shows all warnings; a later one only those of what changed.
log=$(mktemp)
swift build --build-tests >"$log" 2>&1 || { cat "$log"; failed=1; }
check "compiler warnings" "$(grep -E '(Sources|Tests)/.*warning:' "$log" | sort -u)"
rm -f "$log"

if [ -x scripts/proto.sh ] && command -v protoc >/dev/null; then
    scripts/proto.sh --check || failed=1
fi
[ "$failed" = 0 ] && echo "lint: clean"
exit "$failed"
