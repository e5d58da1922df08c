#!/usr/bin/env python3
"""Print the copyright lines and licence texts in the head comments of C and assembler sources, each once.

usage: source_notices.py DIRECTORY...

For third-party sources that come without a licence file, such as BoringSSL in swift-nio-ssl and swift-crypto.
"""
import pathlib
import re
import sys

SUFFIXES = {".c", ".cc", ".h", ".inc", ".S"}
COMMENT = re.compile(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+", re.DOTALL | re.MULTILINE)


def plain(comment):
    lines = [re.sub(r"^[ \t]*(/\*+|\*+/|\*|//)?[ \t]?", "", line) for line in comment.strip().splitlines()]
    return [re.sub(r"[ \t]*\**/?[ \t]*$", "", line) for line in lines]


def main():
    copyrights, texts = set(), set()
    for directory in sys.argv[1:]:
        files = [f for f in sorted(pathlib.Path(directory).rglob("*")) if f.suffix in SUFFIXES]
        if not files:
            sys.exit(f"source_notices.py: no C sources in {directory}")
        for file in files:
            for comment in COMMENT.findall(file.read_text(errors="replace")):
                lines = plain(comment)
                if not any(re.search(r"Copyright\b.*\d{4}|Copyright .*affiliates", line) for line in lines):
                    continue
                copyrights.update(line.strip() for line in lines if re.match(r"\s*(Portions )?Copyright\b", line))
                rest = "\n".join(line for line in lines if not re.match(r"\s*(Portions )?Copyright\b", line))
                texts.add(rest.strip())
    # A text that is a part of another, such as the same licence with another remark below it, is printed once.
    texts = {text for text in texts if text and not any(text != other and text in other for other in texts)}
    print("\n".join(sorted(copyrights)))
    for text in sorted(texts):
        print(f"\n----\n\n{text}")


main()
