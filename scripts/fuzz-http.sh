#!/usr/bin/env bash
# Sends what schemathesis (https://schemathesis.io, `pip install schemathesis`) makes of docs/openapi.yaml to a daemon of its own,
# and fails at any 500, time-out, or answer that is not as documented. Arguments go to schemathesis, such as
# --max-examples 500 or --include-path /api/v0/grep.
#
# Left out: the desktop but for its status, since each action may start one, WebSockets, whose frames it does not speak,
# and the log's stream, which has no end.
set -eu
cd "$(dirname "$0")/.."
program=$(realpath "${PROGRAM:-.build/debug/workspace-agent}")
command -v schemathesis >/dev/null || { echo "schemathesis is not on PATH: pip install schemathesis" >&2; exit 1; }

home=$(mktemp -d)
# What it makes up are commands and paths: they must be nobody's.
as=()
if [ "$(id -u)" = 0 ]; then
    chown 65534:65534 "$home"
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(
    cd "$home"
    exec env -i PATH="$PATH" HOME="$home" TMPDIR="$home" \
        "${as[@]}" "$program" dev --http-address "127.0.0.1:$port" >"$home/dev.out" 2>&1
) &
daemon=$!
end() {
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    rm -rf "$home" .schemathesis
}
trap end EXIT
for _ in $(seq 100); do
    grep -q READY "$home/dev.out" && break
    sleep 0.1
done
token=$(cat "$home/.local/state/workspace-agent/dev/http.token")

schemathesis --config-file scripts/schemathesis.toml run docs/openapi.yaml \
    --url "http://127.0.0.1:$port" --header "Authorization: Bearer $token" \
    --request-timeout 30 --phases examples,coverage,fuzzing,stateful --continue-on-failure \
    --exclude-path-regex "^/api/v0/desktop/(action|recording|viewer|vnc)|/(attach|watch)$|^/api/v0/logs/stream$|${SKIP:-^$}" "$@"
kill -0 "$daemon" || { echo "the daemon has ended; its last lines:" >&2; tail "$home/dev.out" >&2; exit 1; }
