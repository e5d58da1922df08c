#!/usr/bin/env python3
"""Fills in the tables of docs/configuration.md from the flags of the built program, named by the last argument.
--check: fails when they are not current."""
import json
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
document = root / "docs/configuration.md"
begin, end = "<!-- flags: made by scripts/configuration.py -->\n", "<!-- flags end -->\n"


def cell(text):
    return text.replace("|", "\\|")


def parts(argument):
    """Meaning, environment variable and default: the help text has them as "Meaning; default D. [VARIABLE]"."""
    text = argument.get("abstract", "")
    variable = re.search(r" *\[([A-Z_]+)(, commas)?\]$", text)
    environment = ""
    if variable:
        # The first column says that it is.
        text = text[: variable.start()].replace("; repeatable", "")
        environment = f"`{variable[1]}`" + (" (commas)" if variable[2] else "")
    default = argument.get("defaultValue", "")
    told = re.search(r"[,;:] default:? (?:is )?([^;]*?)(;|\.?$)", text)
    if told:
        default = told[1]
        text = text[: told.start()] + (text[told.end() - 1 :] if told[2] == ";" else ".")
    return text, environment, f"`{default}`" if default and " " not in default else default


def row(argument):
    if argument["kind"] == "positional":
        name = argument["valueName"].upper()
        flag = f"`{name}…`" if argument["isRepeating"] else f"`{name}`"
    else:
        names = sorted(argument["names"], key=lambda name: name["kind"])
        flag = ", ".join(f"`-{n['name']}`" if n["kind"] == "short" else f"`--{n['name']}`" for n in names)
        if argument["isRepeating"]:
            flag += " (repeatable)"
    text, environment, default = parts(argument)
    if argument["kind"] == "flag" and not default:
        default = "off"
    return f"| {cell(flag)} | {environment} | {cell(default)} | {cell(text)} |"


def shown(command):
    hidden = ("help", "version")
    return [
        a for a in command.get("arguments", [])
        if a["shouldDisplay"] and not (a["kind"] == "flag" and a["preferredName"]["name"] in hidden)
    ]


def sections(command, path, daemon):
    path = path + [command["commandName"]]
    name = " ".join(path[1:])
    if name in ("help", "exp"):
        return
    own = shown(command)
    rows = [row(a) for a in own]
    if name == "agent":
        daemon = rows
    # Those that take the daemon's flags too.
    inherits = name != "agent" and daemon and set(daemon) <= set(rows)
    if inherits:
        rows = [r for r in rows if r not in daemon]
    if rows or inherits:
        yield f"### {name}\n\n{command.get('abstract', '')}"
        if inherits:
            yield f" All flags of `agent`{', and:' if rows else '.'}"
        yield "\n"
        if rows:
            yield "\n| flag | environment | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
        yield "\n"
    for sub in command.get("subcommands", []):
        yield from sections(sub, path, daemon)


arguments = [a for a in sys.argv[1:] if a != "--check"]
program = arguments[-1] if arguments else str(root / ".build/debug/workspace-agent")
dump = json.loads(subprocess.run([program, "--experimental-dump-help"], capture_output=True, check=True).stdout)
agent = next(c for c in dump["command"]["subcommands"] if c["commandName"] == "agent")
tables = "".join(sections(dump["command"], [], [row(a) for a in shown(agent)]))
text = document.read_text()
made = text[: text.index(begin) + len(begin)] + "\n" + tables + text[text.index(end) :]
if "--check" not in sys.argv[1:]:
    document.write_text(made)
elif made != text:
    sys.exit(f"{document.relative_to(root)} is not what the program's flags are: run make flags")
