#!/usr/bin/env bash
# Runs the tests that are built, one target after the other: within a target they run at once, and
# the daemons, processes and deadlines of several targets together are more than two cores bear.
# What failed is said again at the very end, where a log that was cut short still has it: behind the
# ends of the daemons' logs, which are long.
set -u
# More of them at once only wait for the cores, and their deadlines run meanwhile.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH="${SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH:-8}"
cd "$(dirname "$0")/.."
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
failed=""
summary=""
# What hangs is ended, and named: a test that waits for ever would otherwise take the whole run's time with it.
limit=1500
run() { # name, filter
    echo "== $1"
    # By line: what a test said last must not wait in a buffer for one that hangs.
    timeout -k 30 "$limit" stdbuf -oL "${SWIFT:-swift}" test --skip-build --filter "$2" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    [ "$status" -eq 0 ] && return
    [ "$status" -eq 124 ] || [ "$status" -eq 137 ] && unended "$1"
    failed="$failed $1"
    summary="$summary
== $1 ended with $status
$(grep -aE '^↳   ' "$log" | cut -c 1-400 | tail -n 40)
$(grep -aE '^✘|recorded an issue|^↳ [^ ]|Fatal error|error: ' "$log" | cut -c 1-1000 | head -n 40)"
}
unended() { # name
    summary="$summary
== $1 did not end within $limit s. Begun and not ended:
$(sed -nE 's/^◇ Test ("[^"]*"|[^ (]+\(.*\)) started\.$/1 \1/p; s/^[✔✘] Test ("[^"]*"|[^ (]+\(.*\)) (passed|failed) after .*/-1 \1/p' "$log" \
    | awk '{ name = substr($0, length($1) + 2); open[name] += $1 } END { for (name in open) if (open[name] > 0) print name }')"
}
for target in $(ls -d Tests/*Tests | xargs -n 1 basename); do run "$target" "^$target\\."; done
# Has the machine give numbers of ended processes out again, so it runs beside no other test.
WA_PID_REUSE=1 run PidReuse aSessionThatHasTheNumberOfAnEarlierOneIsSpared
# Takes all cores, on which others' deadlines count.
WA_HOSTILE=1 run HostileLoad '^IntegrationTests\.HostileLoadTests'
# The portable form of the program that was built, where nothing of this machine is.
portable() {
    echo "== Portable"
    rm -rf .build/portable-test
    { PORTABLE_LEVEL=1 scripts/portable.sh .build/debug/workspace-agent .build/portable-test \
        && timeout -k 30 "$limit" scripts/portable-test.sh .build/portable-test/workspace-agent-*.run; } 2>&1 | tee "$log"
    [ "${PIPESTATUS[0]}" -eq 0 ] && return
    failed="$failed Portable"
    summary="$summary
== Portable
$(grep -aE -A 10 'FAILED|^failed|portable' "$log" | cut -c 1-400 | head -n 60)"
}
if [ "$(id -u)" = 0 ] && unshare -m --propagation private true 2>/dev/null; then portable; else
    echo "== Portable: left out, since its roots need to be mounted, which is not allowed here"
fi
[ -z "$failed" ] || { echo "$summary" >&2; echo "failed:$failed" >&2; exit 1; }
