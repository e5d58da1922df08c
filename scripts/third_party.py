#!/usr/bin/env python3
"""Writes THIRD-PARTY and the licences of a bundle: third_party.py FILES SHARE.

FILES has a line `name path` for each library; its licence is that of the Debian package that the path came from. The
packages that are linked into the program come from .build/checkouts, with their own licence files.
"""
import glob
import os
import re
import shutil
import subprocess
import sys

files, share = sys.argv[1:]
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
licenses = os.path.join(share, "licenses")


def package(path):
    """The Debian package of a file, and its version; with merged /usr the database may have either path."""
    for candidate in (path, path.removeprefix("/usr"), "/usr" + path):
        found = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
        if found.returncode == 0:
            name = found.stdout.split(":")[0]
            version = subprocess.run(
                ["dpkg-query", "-W", "-f", "${Version}\\n", name], capture_output=True, text=True).stdout.split("\n")[0]
            return name, version
    sys.exit(f"{path} belongs to no package, so its licence is not known")


# The licence of the Swift runtime and Foundation, from the toolchain that the program was built with.
swift = os.path.realpath(shutil.which(os.environ.get("SWIFT", "swift")) or "")
swift_license = os.path.join(os.path.dirname(os.path.dirname(swift)), "share/swift/LICENSE.txt")
if not os.path.exists(swift_license):
    sys.exit("swift is not on PATH, so the licence of its runtime is not known")
shutil.copyfile(swift_license, os.path.join(licenses, "swift"))

packages = {}
with open(files, encoding="utf-8") as lines:
    for line in lines:
        name, path = line.split(" ", 1)
        # A program that is not linked statically has Swift's own beside it.
        if "/lib/swift/linux/" not in path:
            packages.setdefault(package(path.strip()), []).append(name)
# Linked into the launchers.
for path, what in (("/usr/lib/x86_64-linux-gnu/libz.a", "the .run file's launcher (zlib)"),
                   ("/usr/lib/x86_64-linux-gnu/libmd.a", "the .run file's launcher (libmd)"),
                   ("/etc/ssl/certs", "ca-certificates.crt")):
    if what == "ca-certificates.crt":
        packages.setdefault(package("/usr/sbin/update-ca-certificates"), []).append(what)
    else:
        path = path if os.path.exists(path) else path.replace("x86_64", "aarch64")
        packages.setdefault(package(path), []).append(what)
packages.setdefault(package("/usr/bin/musl-gcc"), []).append("the launchers (musl)")

out = ["The files of this bundle, and whose they are. The licences are in licenses/, as each package has them.",
       "workspace-agent itself is under the Apache licence 2.0 (licenses/workspace-agent).", "",
       "Libraries of Debian, each loaded as a file of its own in lib/ unless said otherwise:", ""]
for (name, version), names in sorted(packages.items()):
    target = os.path.join(licenses, name)
    source = f"/usr/share/doc/{name}/copyright"
    if not os.path.exists(source):
        sys.exit(f"{source} is missing, so the licence of {name} is not known")
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)
    out.append(f"  {name} {version}: {', '.join(sorted(names))}")
common = sorted({match for entry in os.scandir(licenses)
                 for match in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])",
                                         open(entry.path, encoding="utf-8", errors="replace").read())})
for name in common:
    source = os.path.join("/usr/share/common-licenses", name)
    if os.path.exists(source):
        shutil.copyfile(source, os.path.join(licenses, f"common-{name}"))
        os.chmod(os.path.join(licenses, f"common-{name}"), 0o644)

out += ["", "Linked into the program lib/workspace-agent:", ""]
checkouts = os.path.join(root, ".build", "checkouts")
for name in sorted(os.listdir(checkouts)):
    found = []
    for directory, inner, names in sorted(os.walk(os.path.join(checkouts, name))):
        inner.sort()
        for file in sorted(names):
            if re.fullmatch(r"(LICEN[CS]E|NOTICE|COPYING)([-._].*)?", file, re.IGNORECASE):
                found.append(os.path.join(directory, file))
    if not found:
        sys.exit(f"{name} has no licence file")
    with open(os.path.join(licenses, name), "w", encoding="utf-8") as file:
        for path in found:
            file.write(f"==== {os.path.relpath(path, os.path.join(checkouts, name))}\n\n")
            file.write(open(path, encoding="utf-8", errors="replace").read() + "\n")
    out.append(f"  {name}")
# Without a licence file: their sources say it.
with open(os.path.join(licenses, "boringssl"), "w", encoding="utf-8") as file:
    subprocess.run(
        [os.path.join(root, "scripts/source_notices.py")] + sorted(glob.glob(f"{checkouts}/*/Sources/C*BoringSSL")),
        stdout=file, check=True)
shutil.copyfile("/usr/share/doc/libre2-dev/copyright", os.path.join(licenses, "re2"))
out += ["  BoringSSL, inside swift-nio-ssl and swift-crypto", "  RE2 (Debian's libre2-dev)"]
out += ["  the Swift runtime and Foundation (licenses/swift)", ""]
out += ["libvncclient is not part of the bundle: its licence is the GPL, version 2 or later. It is loaded from the image",
        "where it is installed; an image that is passed on with both is under the GPL, version 3, as a whole.", ""]
with open(os.path.join(share, "THIRD-PARTY"), "w", encoding="utf-8") as file:
    file.write("\n".join(out))
