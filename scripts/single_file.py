#!/usr/bin/env python3
"""Appends a bundle's archive to its launcher: single_file.py LAUNCHER ARCHIVE VERSION OUT.

The trailer is that of packaging/portable/unpack.c.
"""
import hashlib
import struct
import sys

launcher, archive, version, out = sys.argv[1:]
with open(launcher, "rb") as file:
    program = file.read()
with open(archive, "rb") as file:
    payload = file.read()
name = version.encode()
if len(name) > 47 or b"/" in name:
    sys.exit(f"the version {version} is too long for a single file, or not a name")
trailer = struct.pack(
    "<QQ32s48s16s", len(program), len(payload), hashlib.sha256(payload).digest(), name, b"wa-single-file1\n")
with open(out, "wb") as file:
    file.write(program + payload + trailer)
