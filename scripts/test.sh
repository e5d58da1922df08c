#!/usr/bin/env bash
# Runs the tests that are built, one target after the other: within a target they run at once, and
# the daemons, processes and deadlines of several targets together are more than two cores bear.
set -u
cd "$(dirname "$0")/.."
failed=""
for target in $(ls -d Tests/*Tests | xargs -n 1 basename); do
    echo "== $target"
    ${SWIFT:-swift} test --skip-build --filter "^$target\\." || failed="$failed $target"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
