#!/usr/bin/env bash
# Makes a Debian package of a built workspace-agent:  BINARY=… scripts/deb.sh DIRECTORY
# The same program, sources and SOURCE_DATE_EPOCH (the last commit's time by default) give the same bytes.
#   MAINTAINER       who answers for the package: Name <address>
#   DEB_COMPRESSION  of dpkg-deb (xz)
set -eu
cd "$(dirname "$0")/.."
binary=${BINARY:?names no built program}
into=${1:?names no directory for the package}
maintainer=${MAINTAINER:-workspace-agent maintainers <maintainers@workspace-agent.invalid>}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH=$epoch LC_ALL=C TZ=UTC
umask 022

version=$("$binary" version | cut -d ' ' -f 2)-1
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
doc=$stage/usr/share/doc/workspace-agent

# The package that has a library of this name.
package_of() {
    dpkg -S "*/$1" 2>/dev/null | cut -d : -f 1 | sort -u | head -n 1
}

# What the program is linked with, each in a version that has what it calls.
linked() {
    mkdir -p "$work/debian"
    printf 'Source: workspace-agent\n\nPackage: workspace-agent\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "$stage/usr/bin/workspace-agent" 2>"$work/notes") \
        | sed -n 's/^shlibs:Depends=//p'
}

# What it is linked with that no package has.
unpackaged() {
    for library in $(objdump -p "$binary" | awk '$1 == "NEEDED" { print $2 }'); do
        [ -n "$(package_of "$library")" ] || echo "$library"
    done
}

# What it loads when a capability is used: the packages of these libraries, and the programs that it runs.
loaded() { # names of libraries
    for library in "$@"; do
        package=$(package_of "$library")
        [ -n "$package" ] || { echo "deb.sh: no package has $library; install it with scripts/deps.sh build" >&2; exit 1; }
        printf '%s, ' "$package"
    done
}

BINARY=$binary PREFIX=/usr DESTDIR=$stage CODER_LINK= scripts/install.sh install
strip --strip-unneeded "$stage/usr/bin/workspace-agent"
install -D -m 0644 packaging/environment "$stage/etc/default/workspace-agent"
install -d "$stage/etc/workspace-agent"
install -D -m 0644 packaging/debian/copyright "$doc/copyright"
install -D -m 0644 packaging/systemd/no-sudo.conf "$doc/examples/no-sudo.conf"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
gzip -9nc >"$doc/changelog.Debian.gz" <<END
workspace-agent ($version) unstable; urgency=medium

  * What has changed is in changelog.gz.

 -- $maintainer  $(date -R -d "@$epoch")
END
# The licences of what is linked into the program ask for it. The packages' copies of BoringSSL have theirs in their sources.
third_party() {
    for file in .build/checkouts/*/LICENSE* .build/checkouts/*/NOTICE* .build/checkouts/*/Sources/*/LICENSE* \
        /usr/share/doc/libre2-dev/copyright; do
        printf '==== %s\n\n' "${file#.build/checkouts/}"
        cat "$file"
    done
    printf '==== BoringSSL\n\n'
    scripts/source_notices.py .build/checkouts/*/Sources/C*BoringSSL
}
third_party >"$doc/third-party"
gzip -9n "$doc/third-party"
install -D -m 0644 packaging/debian/lintian-overrides "$stage/usr/share/lintian/overrides/workspace-agent"

foreign=$(unpackaged)
[ -z "$foreign" ] || echo "deb.sh: linked with libraries of no package, which must be where it runs:" $foreign >&2
# It loads that of the headers that it was built with.
libgit2=libgit2.so.$(sed -n 's/^#define LIBGIT2_SOVERSION  *"\(.*\)"/\1/p' /usr/include/git2/version.h)
recommends=$(loaded "$libgit2" libsqlite3.so.0)
suggests=$(loaded libssh2.so.1 libsodium.so.23 libvncclient.so.1 libpng16.so.16 libxkbcommon.so.0 libxcb.so.1)
install -d "$stage/DEBIAN"
for script in postinst prerm postrm; do install -m 0755 "packaging/debian/$script" "$stage/DEBIAN/$script"; done
echo /etc/default/workspace-agent >"$stage/DEBIAN/conffiles"
cat >"$stage/DEBIAN/control" <<END
Package: workspace-agent
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size --exclude DEBIAN "$stage" | cut -f 1)
Depends: $(linked)
Recommends: ${recommends}ca-certificates, git, openssh-client
Suggests: ${suggests}tigervnc-standalone-server, openbox, ffmpeg, novnc
Section: devel
Priority: optional
Description: daemon inside a developer's workspace
 It lets a control plane, AI coding agents and local scripts work there:
 processes, files, changes in git work trees, a virtual desktop and start-up
 units over HTTP on a unix socket. It speaks the protocol of Coder's workspace
 agent, and runs standalone, too.
END
(cd "$stage" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | sort | xargs -d '\n' md5sum) \
    >"$stage/DEBIAN/md5sums"
find "$stage" -exec touch -h -d "@$epoch" {} +
mkdir -p "$into"
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$stage" \
    "$into/workspace-agent_${version}_$architecture.deb"
