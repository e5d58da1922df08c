#!/usr/bin/env python3
"""Prints the imports of the named Swift files that nothing in the file needs, one a line. The compiler has no
warning for them.

It compares words, so it can miss an unused import, but what it prints can go: nothing that the module declares at
top level is named in the file, and none of its members, except by a name that the standard library has as well.
Needs python3-minimal, and the packages in .build/checkouts."""

import glob
import os
import re
import subprocess
import sys

IMPORT = re.compile(
    r"^ *(?:(?:@\w+(?:\([^)]*\))?|public|package|internal|fileprivate|private) +)*import +"
    r"(?:(?:typealias|struct|class|enum|protocol|let|var|func) +)?([\w.]+)$"
)
TYPES = ("struct", "class", "enum", "actor", "protocol", "typealias", "associatedtype", "macro")
DECLARATION = re.compile(
    r"^( *)(?:@\w+(?:\([^()]*\))? +)*((?:\w+(?:\(\w+\))? +)*?)"
    rf"({'|'.join(TYPES)}|extension|func|var|let|case) +`?(?!func\b|var\b)(\w+)"
)
INITIALISER = re.compile(r"\binit[?!]?(?:<[^>]*>)?\(\s*(\w+)")
EXPORTED = re.compile(r"\b(public|package|open)\b")

# Modules that come with the compiler, which is asked for their names; with the modules that each exports.
TOOLCHAIN = {
    "Swift": ["Swift", "_Concurrency", "_StringProcessing"],
    "Synchronization": ["Synchronization"],
    "Dispatch": ["Dispatch"],
    "Testing": ["Testing"],
    "FoundationEssentials": ["FoundationEssentials"],
    "Foundation": ["Foundation", "FoundationEssentials", "Dispatch"],
}

# C modules, by what their names look like. Of libc: any bare call in lower case, constants, and the types we use.
LIBC = (
    r"(?<![.\w])(?<!func )(?<!case )(?!(?:init|min|max|abs|zip|type|print|stride)\b)[a-z_][a-z0-9_]*\("
    r"|\b[A-Z][A-Z0-9_]{2,}\b|\b\w+_t\b|\bGlibc\.|\b(?:sockaddr|in_addr|in6_addr)\w*\b"
    r"|\b(?:DIR|FILE|dirent|environ|errno|flock|group|iovec|msghdr|optarg|optind|passwd|pollfd|rlimit|rusage|sigaction|stat"
    r"|statvfs|stderr|stdin|stdout|sysinfo|termios|timespec|timeval|tm|ucred|utsname|winsize)\b"
)
C_MODULES = {
    "Glibc": LIBC,
    "CPlatform": r"\b(?:wa|WA)_\w+",
    "CPage": r"\bwa_page\b",
    "COpenAPI": r"\bwa_openapi_\w+",
    "CRegex": r"\b(?:wa|WA)_regex\w*|\bWA_REGEX\w*",
    "CTestSupport": r"\btest_\w+",
    "CDesktop": r"\b(?:wd|WD)_\w+",
    "CLibgit2": r"\b(?:wg|WG|git|GIT)_\w+",
    "CSSH2": r"\b(?:ssh2|libssh2|LIBSSH2|SSH_DISCONNECT)_\w+",
    "CSodium": r"\bwsd_\w+",
    "CSQLite": r"\b(?:sqlite3|SQLITE_)\w*",
    "CZlib": r"\b(?:wz_\w+|z_stream|deflate\w*|inflate\w*|Z_[A-Z_]+)\b",
}
# These bring libc with them.
BRING_LIBC = {"Foundation", "FoundationEssentials", "Dispatch"}


class Names:
    """What a module declares: what is named bare, members, and the first labels of initialisers."""

    def __init__(self):
        self.bare, self.members, self.labels = set(), set(), set()
        # Of the toolchain's modules, the members that are called.
        self.called = set()

    def add(self, other):
        self.bare |= other.bare
        self.members |= other.members
        self.called |= other.called
        self.labels |= other.labels


def code(path):
    """The lines of a file without comments and without the text of plain strings; in doubt with them."""
    lines = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            line = re.sub(r'"[^"\\\n]*"', '""', line.rstrip("\n"))
            before, comment, after = line.partition("//")
            lines.append(before if comment and (not before.strip() or '"' not in after) else line)
    return lines


def scanned(directory, testable):
    """The names that the sources below a directory declare for other modules, and the modules they export."""
    names, exports = Names(), set()
    for path in glob.glob(directory + "/**/*.swift", recursive=True):
        lines = code(path)
        names.labels |= set(INITIALISER.findall("\n".join(lines))) - {"_"}
        open_type = False  # in a protocol, an enum or an extension members are visible without a modifier
        for line in lines:
            if "@_exported" in line and (match := re.search(r"import (?:\w+ )?(\w+)", line)):
                exports.add(match.group(1))
            elif match := DECLARATION.match(line):
                indent, modifiers, kind, name = match.groups()
                visible = testable or bool(EXPORTED.search(modifiers))
                if kind in TYPES or kind == "extension":
                    open_type = visible and kind in ("protocol", "enum", "extension")
                    if visible and kind != "extension":
                        names.bare.add(name)
                elif kind == "case" and open_type:
                    names.members |= set(re.findall(r"(?:\bcase|,)\s+`?(\w+)", line))
                elif visible and not indent:
                    names.bare.add(name)
                elif (visible or open_type) and len(indent) <= 8:  # deeper are locals
                    names.members.add(name)
    return names, exports


def asked(modules):
    """The names that modules of the toolchain declare."""
    names = Names()
    info = subprocess.run(["swift", "-print-target-info"], capture_output=True, text=True, check=True).stdout
    target = re.search(r'"triple" *: *"([^"]+)"', info).group(1)
    directory = ".build/symbol-graphs"
    os.makedirs(directory, exist_ok=True)
    for module in modules:
        command = ["swift", "symbolgraph-extract", "-module-name", module, "-target", target]
        subprocess.run(command + ["-output-dir", directory], check=True, stdout=subprocess.DEVNULL)
        for path in glob.glob(f"{directory}/{module}.symbols.json") + glob.glob(f"{directory}/{module}@*.symbols.json"):
            with open(path, encoding="utf-8") as file:
                symbols = re.findall(r'"pathComponents":\["(.*?)"\],', file.read())
            for symbol in symbols:
                *around, last = symbol.split('","')
                name = re.match(r"\w*", last).group(0)
                if name == "init":
                    if "@" in path:  # an extension of another module's type
                        names.labels |= set(re.findall(r"(\w+):", last)) - {"_"}
                elif around:
                    (names.called if "(" in last else names.members).add(name)
                if not around or name[:1].isupper():
                    names.bare.add(name)
    return names


known = {}


def declared(module, testable=False, exported=False):
    """The names that an import of the module brings."""
    key = (module, testable)
    if key not in known:
        places = [place for pattern in ("Sources/", "Tests/", ".build/checkouts/*/Sources/")
                  for place in glob.glob(pattern + module)]
        if module in TOOLCHAIN:
            known[key] = asked(TOOLCHAIN[module])
        elif places:
            known[key], exports = scanned(places[0], testable)
            for other in exports - set(C_MODULES):
                known[key].add(declared(other, exported=True))
        elif exported:  # by a package for another platform
            known[key] = Names()
        else:
            sys.exit(f"unused_imports.py: where is the module {module}? Run swift package resolve, or add it here.")
    return known[key]


def check(path, common):
    lines = code(path)
    body = "\n".join(line for line in lines if not IMPORT.match(line))
    words = set(re.findall(r"(?<!\.)\b[A-Za-z_]\w*|\b[A-Z]\w*", body))
    members = set()
    for member, call in re.findall(r"\.\s*`?(\w+)\b`?(\(| \{)?", body):
        if member not in (common.called if call else common.members):
            members.add(member)
    labels = set(re.findall(r"(?:\.init|\b[A-Z]\w*)\(\s*(\w+):", body))
    has_libc = any(re.match(r"import Glibc$", line) for line in lines)
    for number, line in enumerate(lines, 1):
        match = IMPORT.match(line)
        if not match or "@_exported" in line:
            continue
        module, _, name = match.group(1).partition(".")
        if name:
            used = name in words
        elif module in C_MODULES:
            used = re.search(C_MODULES[module], body)
        else:
            names = declared(module, "@testable" in line)
            used = names.bare & words or (names.members | names.called) & members or names.labels & labels
            used = used or module in BRING_LIBC and not has_libc and re.search(LIBC, body)
        if not used:
            print(f"{path}:{number}: {line.strip()}")


if __name__ == "__main__":
    for file in sys.argv[1:]:
        check(file, common=declared("Swift"))
