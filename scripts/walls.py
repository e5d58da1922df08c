#!/usr/bin/env python3
"""Prints the imports that Package.swift or the floors of docs/architecture.md do not allow, one a line:
a target of ours that is imported without being a dependency, a dependency that no file imports, a capability that
another capability imports, and full Foundation. Usage: walls.py FILE.swift..."""

import collections
import json
import subprocess
import sys

from unused_imports import IMPORT

# Each is composed by WorkspaceAgent alone; what two of them share is in AgentCore or AgentHTTP.
CAPABILITIES = {
    "AgentProc", "AgentSocket", "BoundaryLog", "Desktop", "Files", "GitCredentials", "GitWatch", "WorkspaceScripts",
}

text = subprocess.run(["swift", "package", "dump-package"], capture_output=True, text=True, check=True).stdout
targets = {target["name"]: target for target in json.loads(text)["targets"]}
# A dependency is {"byName" | "target" | "product": [name, …]}.
declared = {name: {next(iter(one.values()))[0] for one in target["dependencies"]} for name, target in targets.items()}
ours = set(targets)
imported = collections.defaultdict(set)

for path in sys.argv[1:]:
    folder, name = path.split("/")[:2]
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        match = IMPORT.match(line.rstrip("\n"))
        if not match:
            continue
        module = match.group(1).split(".")[0]
        imported[name].add(module)
        where = f"{path}:{number}:"
        if module in ours and module not in declared.get(name, ()):
            print(where, f"{name} imports {module}, which Package.swift does not name as its dependency")
        if name in CAPABILITIES and module in CAPABILITIES:
            print(where, f"the capability {name} imports the capability {module}")
        # One import of it links all of it: megabytes of binary and memory. Generated code names it behind `#if`.
        if folder == "Sources" and module == "Foundation" and not path.endswith(".pb.swift"):
            print(where, "full Foundation in Sources (use FoundationEssentials)")

for name, modules in declared.items():
    # A test that names the executable runs it.
    unused = modules - imported[name] - {target for target in ours if targets[target]["type"] == "executable"}
    for module in sorted(unused if imported[name] else ()):
        print(f"Package.swift: no file of {name} imports its dependency {module}")
for name in sorted(CAPABILITIES - ours):
    print(f"scripts/walls.py: the capability {name} is not a target")
