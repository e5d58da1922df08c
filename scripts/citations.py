#!/usr/bin/env python3
"""Prints every citation of a document or heading that does not exist, as "file:line: citation: what is wrong".

Citations are the path of a Markdown file below docs/, with or without `#heading`, anywhere; the name of a Markdown file
in a comment; and a link of a Markdown file to a file of the repository.
"""
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

root = Path(__file__).resolve().parent.parent
# Recorded, generated, or not text.
skipped = re.compile(r"/Vectors/(?!files_http)|\.pb\.swift$|/openapi\.json$|\.(png|svg|ico|woff2?)$")
cited = re.compile(r"docs/([\w./-]+\.md)(?:#([\w-]+))?")
comment = re.compile(r"(?:^\s*#|//|/\*|^\s*\*)(.*)")
spec = re.compile(r"\(spec\b[:)]")
bare = re.compile(r"(?<![\w./-])[\w-]+\.md\b")
link = re.compile(r"\]\(([^()\s]+)\)")
code = re.compile(r"`[^`]*`")


@cache
def headings(path):
    """The anchors that GitHub makes of a Markdown file's headings; None when there is no such file."""
    if not path.is_file():
        return None
    anchors, fenced = set(), False
    for line in path.read_text().split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        match = None if fenced else re.match(r"#{1,6} +(.*?)[ #]*$", line)
        if match:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            count = 0
            while (name := anchor if count == 0 else f"{anchor}-{count}") in anchors:
                count += 1
            anchors.add(name)
    return anchors


def problem(path, anchor):
    known = headings(path)
    if known is None:
        return "there is no such file"
    if anchor and anchor not in known:
        return "there is no such heading"
    return None


def citations(name, line):
    """Pairs of what is cited and what is wrong with it."""
    for match in cited.finditer(line):
        yield match.group(0), problem(root / "docs" / match.group(1), match.group(2))
    if name.endswith(".md"):
        for target in link.findall(code.sub("", line)):
            path, _, anchor = target.partition("#")
            file = (root / name).parent / path if path else root / name
            if re.match(r"[a-z]+:", target):
                continue
            if file.suffix == ".md":
                yield target, problem(file.resolve(), anchor)
            elif not file.exists():
                yield target, "there is no such file"
    elif match := comment.search(line):
        for file in bare.findall(match.group(1)):
            yield file, None if (root / file).is_file() else "name it by its path: docs/…"
        if spec.search(match.group(1)):
            yield "spec", "name the page and heading: docs/contracts/…"


names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
found = False
for name in names:
    file = root / name
    if not name or skipped.search(name) or not file.is_file():
        continue
    try:
        lines = file.read_text().split("\n")
    except UnicodeDecodeError:
        continue
    for number, line in enumerate(lines, 1):
        for text, wrong in citations(name, line):
            if wrong:
                print(f"{name}:{number}: {text}: {wrong}")
                found = True
sys.exit(found)
