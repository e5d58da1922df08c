#!/usr/bin/env python3
"""Makes Sources/COpenAPI/openapi.json, which the daemon serves, of docs/openapi.yaml. --check: fails when it is not current."""
import json
import pathlib
import sys

import yaml

root = pathlib.Path(__file__).resolve().parent.parent
source, target = root / "docs/openapi.yaml", root / "Sources/COpenAPI/openapi.json"
# It is part of the binary.
limit = 120_000

text = json.dumps(yaml.safe_load(source.read_text()), separators=(",", ":"), ensure_ascii=False) + "\n"
if len(text.encode()) > limit:
    sys.exit(f"{source.relative_to(root)}: {len(text.encode())} bytes as JSON; at most {limit} go into the binary")
if "--check" not in sys.argv[1:]:
    target.write_text(text)
elif not target.exists() or target.read_text() != text:
    sys.exit(f"{target.relative_to(root)} is not what {source.relative_to(root)} says: run make openapi")
