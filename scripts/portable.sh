#!/bin/sh
# Builds the portable bundle (docs/portable.md) from a program that is built already: scripts/portable.sh PROGRAM DIRECTORY.
# Makes DIRECTORY/workspace-agent-VERSION-linux-ARCH.tar.gz, .run, and .sha256 of both. The same program and packages give
# the same bytes anywhere and at any time.
set -eu
program=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
umask 022
export LC_ALL=C
# ldconfig is there for root alone.
PATH=$PATH:/usr/sbin:/sbin
version=$("$program" version | cut -d' ' -f2)
machine=$(uname -m)
case $machine in
x86_64) arch=amd64 loader=ld-linux-x86-64.so.2 ;;
aarch64) arch=arm64 loader=ld-linux-aarch64.so.1 ;;
*)
    echo "$0: no bundle is made for $machine" >&2
    exit 1
    ;;
esac
# Of all files; the day of the last change of the source, unless something else is asked for.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH="$epoch"
work=$(mktemp -d "$out/portable.XXXXXX")
trap 'rm -rf "$work"' EXIT
bundle=$work/workspace-agent
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/share/licenses"

# What is loaded at run time, besides what the program is linked with. Not libvncclient: its licence is the GPL.
loaded="libsodium.so.23 libsqlite3.so.0 libgit2.so.1.5 libssh2.so.1 libpng16.so.16 libxkbcommon.so.0 libxcb.so.1"
path_of() { ldconfig -p | awk -v name="$1" '$1 == name && /x86-64|AArch64/ { print $NF; exit }'; }
add() {
    real=$(readlink -f "$1")
    name=$(basename "$1")
    [ -e "$bundle/lib/$name" ] && return
    cp "$real" "$bundle/lib/$name"
    chmod 0644 "$bundle/lib/$name"
    echo "$name $real" >>"$work/files"
}
missing=
for name in $loaded; do
    file=$(path_of "$name")
    if [ -z "$file" ]; then
        missing="$missing $name"
        continue
    fi
    echo "$file"
done >"$work/loaded"
for name in $loaded; do [ -n "$(path_of "$name")" ] || missing="$missing $name"; done
if [ -n "$missing" ]; then
    echo "$0: these libraries are not installed:$missing" >&2
    exit 1
fi
ldd "$program" $(cat "$work/loaded") | awk '/=> \// { print $3 } /^[ \t]*\// && !/:$/ { print $1 }' | sort -u >"$work/needed"
while read -r file; do add "$file"; done <"$work/loaded"
while read -r file; do add "$file"; done <"$work/needed"
# Looked up by glibc itself when a thread is cancelled, and for names of hosts.
for name in libgcc_s.so.1 libnss_dns.so.2 libnss_files.so.2 libresolv.so.2; do
    file=$(path_of "$name")
    [ -z "$file" ] || add "$file"
done
[ -e "$bundle/lib/$loader" ] || add "$(path_of "$loader")"
chmod 0755 "$bundle/lib/$loader"
cp "$program" "$bundle/lib/workspace-agent"
chmod 0755 "$bundle/lib/workspace-agent"
cp /etc/ssl/certs/ca-certificates.crt "$bundle/lib/ca-certificates.crt"

# The launchers, which need nothing of the image.
flags="-static -Os -s -Wall -Wextra -Werror -ffile-prefix-map=$root=. -Wl,--build-id=none -DLOADER=\"$loader\""
musl-gcc $flags -o "$bundle/bin/workspace-agent" "$root/packaging/portable/launcher.c"
mkdir "$work/include"
ln -s /usr/include/zlib.h /usr/include/zconf.h /usr/include/sha2.h "$work/include/"
for directory in /usr/lib/*-linux-gnu; do
    [ -e "$directory/libz.a" ] && [ -e "$directory/libmd.a" ] && archives=$directory
done
musl-gcc $flags -DSINGLE_FILE -isystem "$work/include" -o "$work/stub" "$root/packaging/portable/launcher.c" \
    "$root/packaging/portable/unpack.c" "$archives/libz.a" "$archives/libmd.a"

# Licences: of each Debian package that a file came from, and of what is linked into the program.
cp "$root/LICENSE" "$bundle/share/licenses/workspace-agent"
chmod 0644 "$bundle/share/licenses/workspace-agent"
"$root/scripts/third_party.py" "$work/files" "$bundle/share"
"$root/scripts/manpage.py" "$program" >"$bundle/share/workspace-agent.1" 2>/dev/null || rm -f "$bundle/share/workspace-agent.1"
for shell in bash zsh fish; do "$program" completion "$shell" >"$bundle/share/completion.$shell"; done

name=workspace-agent-$version-linux-$arch
find "$bundle" -exec touch -h -d "@$epoch" {} +
(cd "$work" && find workspace-agent -print0 | sort -z |
    tar --format=ustar --null --no-recursion -T - --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -cf archive.tar)
gzip "-${PORTABLE_LEVEL:-9}" -n -c "$work/archive.tar" >"$work/archive.tar.gz"
"$root/scripts/single_file.py" "$work/stub" "$work/archive.tar.gz" "$version" "$work/$name.run"
cp "$work/archive.tar.gz" "$work/$name.tar.gz"
chmod 0755 "$work/$name.run"
for file in "$name.tar.gz" "$name.run"; do
    (cd "$work" && sha256sum "$file" >"$file.sha256")
    mv "$work/$file" "$work/$file.sha256" "$out/"
    echo "$out/$file"
done
