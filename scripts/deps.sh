#!/usr/bin/env bash
# Installs the Debian packages that are missing for the named uses: build, install, portable, test, bench, proto.
set -eu

build="libc6-dev g++ make git curl pkg-config zlib1g-dev libsqlite3-dev libgit2-dev libssh2-1-dev libsodium-dev libvncserver-dev libpng-dev libxkbcommon-dev libxcb1-dev libre2-dev"
# The manual page is made with python3, the package with the others.
install="python3 binutils dpkg-dev"
# The launchers, and the bundle's certificates.
portable="$install musl-tools libmd-dev ca-certificates"
test="$portable busybox-static debootstrap patch xz-utils procps iproute2 util-linux mount openssl python3-yaml tigervnc-standalone-server tigervnc-common openbox
    xdotool xclip wmctrl zenity xterm x11-utils x11-xserver-utils imagemagick ffmpeg novnc chromium chromium-driver fonts-dejavu-core
    tmux vim htop zsh fish openssh-client openssh-server strace lighttpd wireguard-go wireguard-tools"
# The floors of benchmarks, and what they measure.
bench="$test socat ripgrep iperf3"
proto="protobuf-compiler libprotobuf-dev"

wanted=""
for use in "$@"; do
    case "$use" in
        build) wanted="$wanted $build" ;;
        portable) wanted="$wanted $portable" ;;
        install) wanted="$wanted $install" ;;
        test) wanted="$wanted $test" ;;
        bench) wanted="$wanted $bench" ;;
        proto) wanted="$wanted $proto" ;;
        *) echo "deps.sh: unknown use $use" >&2; exit 2 ;;
    esac
done

if ! command -v swift >/dev/null; then
    echo "Swift 6.3 is needed: see https://www.swift.org/install/linux/" >&2
    exit 1
fi
if ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system: make sure that these are installed: $wanted" >&2
    exit 0
fi

missing=""
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing:$missing"
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo apt-get install -q -y --no-install-recommends $missing
