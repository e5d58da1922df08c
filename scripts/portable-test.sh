#!/usr/bin/env bash
# Runs the portable bundle in roots that hold nothing it could use of this machine: scripts/portable-test.sh RUN_FILE [ROOT …].
#
#   busybox     a static busybox and nothing else: no libc, no passwd, no certificates
#   strict      the same as an arbitrary user without an entry, read-only, /tmp noexec, no HOME, clone3 refused
#   init        the same as PID 1 of its namespace, with 256 MiB
#   places      where the single file unpacks to, with other users' files in the way
#   bullseye, bookworm, trixie    Debian 11, 12 and 13, made by debootstrap
#
# Without names: busybox, strict, init and places. In busybox and each Debian the integration tests named in `core` below run with the bundle in
# the place of the program that was built. Needs root.
set -eu
file=$(readlink -f "$1")
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- busybox strict init places
[ "$(id -u)" = 0 ] || { echo "$0: roots are made by root" >&2; exit 1; }
# What is mounted is so for a child alone, and gone with it: what is removed here has no mounts in it, /tmp among them.
if [ -z "${PORTABLE_TEST_WORK:-}" ]; then
    work=$(mktemp -d /var/tmp/portable-test.XXXXXX)
    result=0
    PORTABLE_TEST_WORK=$work unshare -m --propagation private "$0" "$file" "$@" || result=$?
    # What unpacked to /tmp.
    rm -rf /tmp/workspace-agent-12345/bundle /tmp/workspace-agent-23456
    if grep -q " $work/" /proc/self/mountinfo; then
        echo "$0: something is still mounted below $work, which stays" >&2
    else
        rm -rf --one-file-system "$work"
    fi
    exit $result
fi
work=$PORTABLE_TEST_WORK
failed=""
check() { # what, then a command
    what=$1
    shift
    if output=$("$@" 2>&1); then echo "  ok      $what${output:+: $(echo "$output" | tail -n 1 | cut -c 1-120)}"; else
        echo "  FAILED  $what"
        echo "$output" | sed 's/^/          /' | head -n 60 | cut -c 1-300
        failed="$failed $name:$what"
    fi
}

# What every root has: devices, /proc, and this machine's /tmp, in which the tests have their files.
furnish() { # root
    mkdir -p "$1/proc" "$1/dev" "$1/tmp" "$1/etc" "$1/opt" "$1/home/user" "$1$HOME"
    mount -t proc proc "$1/proc"
    mount -t tmpfs -o mode=0755 tmpfs "$1/dev"
    for device in null zero random urandom tty; do
        touch "$1/dev/$device"
        mount --bind "/dev/$device" "$1/dev/$device"
    done
    mkdir "$1/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
    ln -s pts/ptmx "$1/dev/ptmx"
    mount --bind /tmp "$1/tmp"
}

busybox_root() { # root
    mkdir -p "$1/bin"
    cp "$(command -v busybox)" "$1/bin/busybox"
    for applet in sh cat echo sleep true false printf env ls mkdir rm head tail seq tr wc kill stty id touch chmod cp mv dd ps \
        test sed grep sort tee yes date readlink tty; do
        ln -s busybox "$1/bin/$applet"
    done
    # Where env is looked for by its path.
    mkdir -p "$1/usr/bin"
    ln -s ../../bin/busybox "$1/usr/bin/env"
}

# The bundle comes as `docker cp` brings files: in a tar archive, with another owner.
install_file() { # root
    tar -C "$(dirname "$file")" --owner=1000 --group=1000 -c "$(basename "$file")" | tar -C "$1/opt" -x
    mv "$1/opt/$(basename "$file")" "$1/opt/workspace-agent.run"
}

# An image's LD_PRELOAD is for the image's C library: with the bundle's this one cannot be loaded.
foreign_preload() { # root
    echo 'int nothing;' >"$work/preload.c"
    musl-gcc -shared -fPIC -o "$1/opt/preload.so" "$work/preload.c"
    preload=/opt/preload.so
}

# Suites that need no program of the image but a shell and what busybox has.
core="${PORTABLE_CORE:-ProcessStartTests|ProcessListTests|ProcessWaitTests|ProcessSignalTests|FileWriteTests|FileEntryTests|HTTPBasicsTests}"
# Of these, what busybox does otherwise: its shell ignores SIGQUIT and lists its own descriptors itself, its date knows no
# fractions; a user's name, of which there is none; mounts that are made meanwhile; programs of this machine.
left="theChildStartsClean|deathBySignal|infoTellsWhatAPathIs|movesBetweenFileSystems|waitAnswersAtTheExit|memoryIsTheProgramsOwn|aFullDiskKeepsTheOldFile"
tests() { # a program in front of the bundle's
    printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$work/program"
    chmod 0755 "$work/program" "$work"
    if WORKSPACE_AGENT_TEST_PROGRAM="$work/program" SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=8 \
        "${SWIFT:-swift}" test --skip-build --filter "^IntegrationTests\.($core)/" \
        --skip "/($left)" >"$work/tests.log" 2>&1; then
        # A filter that finds nothing is none.
        grep -aE "Test run with [1-9][0-9]* tests" "$work/tests.log"
        return
    fi
    grep -aE '^✘|error: ' "$work/tests.log" | cut -c 1-300 | head -n 20
    return 1
}

# The daemon with a simulated control plane and a second node of its tailnet, all of it in the root.
whole() { # a program in front of the bundle's
    place=$(mktemp -d /tmp/portable-dev.XXXXXX)
    chmod 0777 "$place"
    "$@" dev --http-address 127.0.0.1:0 --http-socket "$place/http.sock" --state-dir "$place/state" \
        --socket-path "$place/agent.sock" >"$work/dev.log" 2>&1 &
    daemon=$!
    ask() { curl -fsS -m 20 --unix-socket "$place/http.sock" "$@"; }
    for _ in $(seq 600); do
        ask http://x/api/v0/overview 2>/dev/null | grep -q '"state":"connected"' && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    result=0
    # A process, a terminal, a file, what ps shows of the daemon, nothing of the bundle in what it starts.
    ask -H 'Content-Type: application/json' -d '{"command":"echo $((6*7)); env; ls -l /proc/self/fd","wait_ms":10000}' \
        http://x/api/v0/processes/start >"$work/answer" || result=1
    grep -q '42' "$work/answer" || result=2
    [ -z "${preload:-}" ] || grep -q "LD_PRELOAD=$preload" "$work/answer" || result=7
    grep -Eq 'LD_LIBRARY|ld-linux|workspace-agent/lib' "$work/answer" && result=3
    ask -H 'Content-Type: application/json' -d '{"command":"tty","pty":{"cols":80,"rows":24},"wait_ms":10000}' \
        http://x/api/v0/processes/start | grep -q /dev/pts || result=4
    ask -d hello "http://x/api/v0/write-file?path=$place/file" >/dev/null && [ "$(cat "$place/file")" = hello ] || result=5
    ask http://x/api/v0/overview | grep -q '"state":"connected"' || result=6
    # unshare(1) ends with its child, and keeps such signals from itself.
    [ "$name" = init ] && daemon_child=$(pgrep -P "$daemon") || daemon_child=$daemon
    kill "$daemon_child"
    wait "$daemon" 2>/dev/null || true
    rm -rf "$place"
    [ $result -eq 0 ] || { echo "step $result"; cat "$work/answer" "$work/dev.log"; }
    return $result
}

# What ps(1) and the kernel call it.
named() { # a program in front of the bundle's
    place=$(mktemp -d /tmp/portable-dev.XXXXXX)
    chmod 0777 "$place"
    "$@" agent --http-socket "$place/http.sock" --state-dir "$place/state" --socket-path "$place/agent.sock" \
        >"$work/dev.log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do [ -S "$place/http.sock" ] && curl -fs --unix-socket "$place/http.sock" http://x/ >/dev/null && break; sleep 0.1; done
    line=$(tr '\0' ' ' <"/proc/$daemon/cmdline")
    name=$(cat "/proc/$daemon/comm")
    kill "$daemon"
    wait "$daemon" 2>/dev/null || true
    rm -rf "$place"
    echo "$name: $line"
    case $line in *workspace-agent*" agent --http-socket "*) ;; *) return 1 ;; esac
    case $line in *ld-linux*) return 1 ;; esac
    [ "$name" = workspace-agent ]
}

# By their paths: the variables of the root are set before they are looked for.
chroot=$(command -v chroot)
# As an ordinary user, outside of any root.
places() {
    area=$work/area
    rm -rf /tmp/workspace-agent-23456
    user="setpriv --reuid=23456 --regid=23456 --clear-groups env -i PATH=/usr/bin:/bin"
    chmod 0755 "$work"
    cp "$file" "$work/run"
    chmod 0755 "$work/run"
    fresh() { rm -rf "$area" && mkdir -m 0755 "$area" && for one in chosen cache home; do mkdir -m 0700 "$area/$one" && chown 23456 "$area/$one"; done; }
    start() { $user WORKSPACE_AGENT_UNPACK_DIR="$area/chosen/here" XDG_CACHE_HOME="$area/cache" HOME="$area/home" "$work/run" version; }
    is_in() { [ -n "$(find "$area/$1" -name complete 2>/dev/null)" ]; }
    # Something is at the first place; the next one is taken, and what was there stays.
    passed_over() { start >/dev/null && is_in cache && ! is_in chosen; }
    fresh
    check "the place that is named" start
    check "has the bundle" is_in chosen
    fresh && mkdir -m 0755 "$area/chosen/here" && chown 0 "$area/chosen/here"
    check "a directory of another user" passed_over
    fresh && mkdir "$area/elsewhere" && chown 23456 "$area/elsewhere" && ln -s "$area/elsewhere" "$area/chosen/here"
    check "a link" passed_over
    fresh && mkfifo "$area/chosen/here"
    check "a FIFO" passed_over
    fresh && mkdir -m 0755 "$area/chosen/here" && chown 23456 "$area/chosen/here"
    check "a directory that is open to others" passed_over
    fresh && chmod 0777 "$area/chosen"
    check "a directory below one that others can change" passed_over
    fresh && mount -t tmpfs -o size=20m,uid=23456,mode=0700 tmpfs "$area/chosen"
    check "a full disk" passed_over
    check "which is left as it was" sh -c "[ -z \"\$(find $area/chosen -type f -size +0)\" ]"
    umount "$area/chosen"
    fresh && mount -t tmpfs -o noexec,uid=23456,mode=0700 tmpfs "$area/chosen"
    check "a place mounted noexec" passed_over
    umount "$area/chosen"
    fresh
    start >/dev/null
    find "$area/chosen" -name complete -delete
    mkdir "$area/chosen/here/unpacking" && chown 23456 "$area/chosen/here/unpacking"
    find "$area/chosen" -name libc.so.6 -delete
    check "an unpack that was interrupted is made again" start
    fresh
    for number in 1 2 3 4 5 6 7 8; do start >"$work/start.$number" 2>&1 & done
    wait
    check "eight starts at once unpack once" sh -c \
        "[ \$(cat $work/start.* | grep -c '^workspace-agent ') = 8 ] && [ \$(find $area/chosen -name complete | wc -l) = 1 ]"
    fresh
    start >/dev/null
    find "$area/chosen" -name 'ld-*' -delete
    check "missing files are unpacked again" start
    fresh && ln -s "$area/cache" "$area/link" && chown -h 54321 "$area/link" && chmod 1777 "$area"
    check "another user's link on the way" sh -c \
        "$user WORKSPACE_AGENT_UNPACK_DIR=$area/link/x HOME=$area/home $work/run version && [ ! -e $area/cache/x ]"
    fresh
    mkdir -m 0755 "$work/grüße"
    printf '#!/bin/sh\nfor word; do printf "<%%s>" "$word"; done\n' >"$work/grüße/ssh"
    chmod 0755 "$work/grüße/ssh"
    mkdir -m 0700 "$area/chosen/ü" && chown 23456 "$area/chosen/ü"
    check "arguments reach ssh as they came, from a directory with an umlaut" sh -c \
        "$user PATH=$work/grüße:/usr/bin:/bin WORKSPACE_AGENT_UNPACK_DIR=$area/chosen/ü HOME=$area/home $work/run gitssh -- -p 22 me@127.0.0.1 'a  b' | grep -F '<me@127.0.0.1><a  b>'"
    printf damaged | dd of="$work/run" bs=1 seek=9000000 conv=notrunc 2>/dev/null
    check "a damaged file is not started" sh -c "! $user HOME=$area/home $work/run version 2>$work/said && grep -q 'fetch the file again' $work/said"
    check "and leaves nothing" sh -c "[ -z \"\$(find $area/home -name libc.so.6)\" ]"
}

empty="env -i HOME=/home/user PATH=/bin:/usr/bin"
for name in "$@"; do
    echo "== $name"
    if [ "$name" = places ]; then
        places
        continue
    fi
    root=$work/$name
    mkdir "$root"
    case $name in
    busybox | strict | init) busybox_root "$root" ;;
    *) debootstrap --variant=minbase "$name" "$root" >"$work/debootstrap.log" 2>&1 || {
        tail -n 5 "$work/debootstrap.log"
        failed="$failed $name:debootstrap"
        continue
    } ;;
    esac
    furnish "$root"
    install_file "$root"
    run=/opt/workspace-agent.run
    case $name in
    strict)
        mkdir "$root/data" "$root/nosys"
        mount -t tmpfs -o mode=1777 tmpfs "$root/data"
        mount -t tmpfs -o noexec,mode=1777 tmpfs "$root/tmp"
        mount -t tmpfs tmpfs "$root/proc/sys"
        mount --rbind "$root" "$root"
        mount -o remount,bind,ro "$root"
        user="scripts/without_clone3.py $chroot --userspec=12345:12345 $root"
        check "no place is said, and why each is none" sh -c \
            "! env -i PATH=/bin HOME=/home/user $user $run version 2>$work/said && grep -q 'noexec' $work/said && grep -q 'WORKSPACE_AGENT_UNPACK_DIR' $work/said"
        check "a place that is named" env -i PATH=/bin WORKSPACE_AGENT_UNPACK_DIR=/data/here $user $run version
        # The tests have their files in /tmp.
        umount "$root/tmp"
        place="env -i PATH=/bin WORKSPACE_AGENT_UNPACK_DIR=/data/here"
        check "control plane, tailnet, processes, terminal, files" whole $place $user $run
        check "its name" named $place $user $run
        ;;
    init)
        in="$(command -v unshare) --pid --fork --mount-proc=$root/proc $chroot $root $run"
        # shellcheck disable=SC2086
        check "control plane, tailnet, processes, terminal, files" whole $empty $(command -v prlimit) --data=268435456 $in
        ;;
    *)
        in="$chroot $root $run"
        check "it starts" $empty $in version
        check "a user without an entry, and without a home" env -i HOME=/nowhere PATH=/bin $chroot --userspec=12345:12345 "$root" $run version
        check "its own libraries" sh -c "$empty $in doctor | grep -E '^ok +bundle +/home/user/'"
        check "certificates" sh -c "$empty $in doctor | grep -E '^ok +ca-store'"
        check "control plane, tailnet, processes, terminal, files" whole $empty $in
        if [ "$name" = busybox ]; then
            foreign_preload "$root"
            check "libraries that the image preloads" whole $empty $chroot "$root" /bin/env LD_PRELOAD=$preload $run
            preload=""
        fi
        check "its name" named $empty $in
        check "integration tests" tests $chroot "$root" /usr/bin/env PATH=/bin:/usr/bin $run
        ;;
    esac
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
