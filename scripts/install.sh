#!/usr/bin/env bash
# Installs a built workspace-agent with its manual page, completions and systemd units, or takes all of that away again.
#   BINARY=… PREFIX=/usr/local DESTDIR= CODER_LINK=yes scripts/install.sh install
#   PREFIX=/usr/local DESTDIR= scripts/install.sh uninstall
# CODER_LINK=yes adds bin/coder, for scripts that call `coder exp sync`. Directories are left where they are.
set -eu
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
# Where each shell looks for what packages bring differs from where it looks for what an administrator installs.
case $prefix in
    /usr) zsh=share/zsh/vendor-completions fish=share/fish/vendor_completions.d ;;
    *) zsh=share/zsh/site-functions fish=share/fish/vendor_completions.d ;;
esac
program=$root/bin/workspace-agent
manual=$root/share/man/man1/workspace-agent.1.gz
bash=$root/share/bash-completion/completions/workspace-agent
zsh=$root/$zsh/_workspace-agent
fish=$root/$fish/workspace-agent.fish
system=$root/lib/systemd/system
user=$root/lib/systemd/user
link=$root/bin/coder

unit() { # name, directory
    install -d "$2"
    sed "s|@BINDIR@|$prefix/bin|" "packaging/systemd/$1" >"$2/$1"
    chmod 0644 "$2/$1"
}

case ${1:-} in
    install)
        binary=${BINARY:?names no built program}
        made=$(mktemp -d)
        trap 'rm -rf "$made"' EXIT
        # All that can fail comes first.
        scripts/manpage.py "$binary" | gzip -9n >"$made/manual"
        # Without the line that would make a script of it: shells read it into themselves.
        for shell in bash zsh fish; do "$binary" completion $shell | sed '1{/^#!/d}' >"$made/$shell"; done
        if [ "${CODER_LINK:-}" = yes ] && { [ -e "$link" ] || [ -L "$link" ]; } \
            && [ "$(readlink "$link")" != workspace-agent ]; then
            echo "install.sh: $link is there and is not ours; remove it, or install without CODER_LINK=yes" >&2
            exit 1
        fi
        install -D -m 0755 "$binary" "$program"
        install -D -m 0644 "$made/manual" "$manual"
        install -D -m 0644 "$made/bash" "$bash"
        install -D -m 0644 "$made/zsh" "$zsh"
        install -D -m 0644 "$made/fish" "$fish"
        unit workspace-agent@.service "$system"
        unit workspace-agent.service "$user"
        unit workspace-agent.socket "$user"
        [ "${CODER_LINK:-}" != yes ] || ln -sfn workspace-agent "$link"
        ;;
    uninstall)
        rm -f "$program" "$manual" "$bash" "$zsh" "$fish" "$system/workspace-agent@.service" \
            "$user/workspace-agent.service" "$user/workspace-agent.socket"
        # Another program's is not ours to remove.
        if [ -L "$link" ] && [ "$(readlink "$link")" = workspace-agent ]; then rm "$link"; fi
        ;;
    *)
        echo "usage: [PREFIX=…] [DESTDIR=…] [BINARY=…] [CODER_LINK=yes] install.sh install|uninstall" >&2
        exit 2
        ;;
esac
