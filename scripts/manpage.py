#!/usr/bin/env python3
"""Writes the manual page of a workspace-agent from what the program says of itself.

    scripts/manpage.py BINARY > workspace-agent.1

SOURCE_DATE_EPOCH sets the date of the page.
"""
import json
import os
import subprocess
import sys
import time


def text(value):
    """Plain text as roff shows it: no character is taken for markup."""
    lines = value.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").split("\n")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in lines)


def discussion(value):
    """Paragraphs; indented lines, which are examples, stay as they are."""
    literal, lines = False, []
    for line in value.split("\n"):
        if line.startswith("  ") != literal:
            literal = not literal
            lines.append(".PP\n.RS 4\n.nf" if literal else ".fi\n.RE")
        lines.append(text(line.strip() if literal else line) if line else ".PP")
    return lines + ([".fi\n.RE"] if literal else [])


def shown(command):
    return [item for item in command.get("arguments", []) if item.get("shouldDisplay")]


def synopsis(words, command):
    line = ".B " + text(" ".join(words))
    for item in shown(command):
        if item["kind"] == "positional":
            name = "\\fI" + text(item["valueName"]) + "\\fR" + (" ..." if item.get("isRepeating") else "")
            line += "\n" + ("[" + name + "]" if item.get("isOptional") else name)
    options = any(item["kind"] != "positional" for item in shown(command))
    return line.replace("\n", "\n[\\fIoptions\\fR]\n", 1) if "\n" in line and options else (
        line + "\n[\\fIoptions\\fR]" if options else line)


def argument(item):
    if item["kind"] == "positional":
        names = "\\fI" + text(item["valueName"]) + "\\fR"
    else:
        value = " \\fI" + text(item["valueName"]) + "\\fR" if item["kind"] == "option" else ""
        names = ", ".join(
            "\\fB" + text(("--" if name["kind"] == "long" else "-") + name["name"]) + "\\fR" for name in item["names"])
        names += value
    body = text(item.get("abstract") or "")
    if item.get("defaultValue"):
        body += " Default: " + text(item["defaultValue"]) + "."
    return [".TP", names, body]


def described(words, command):
    lines = [".SS " + text(" ".join(words)), ".PP", synopsis(words, command), ".PP", text(command["abstract"])]
    if command.get("discussion"):
        lines += [".PP"] + discussion(command["discussion"])
    rest = [item for item in shown(command) if item.get("valueName") not in ("help", "version")]
    repeated = [item for item in rest if words[1] != "agent" and item.get("sectionTitle") == "Daemon options"]
    for item in rest:
        if item not in repeated:
            lines += argument(item)
    if repeated:
        lines += [".PP", "It takes the flags of \\fBworkspace\\-agent agent\\fR as well."]
    return lines


def leaves(words, command):
    inner = [c for c in command.get("subcommands", []) if c.get("shouldDisplay") and c["commandName"] != "help"]
    if not inner:
        yield words, command
    for item in inner:
        yield from leaves(words + [item["commandName"]], item)


def page(binary):
    root = json.loads(subprocess.run([binary, "--experimental-dump-help"], check=True, capture_output=True).stdout)
    version = subprocess.run([binary, "version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    command = root["command"]
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    # `exp sync` is the same as `sync`.
    commands = [item for item in leaves(["workspace-agent"], command) if item[0][1] != "exp"]
    lines = [
        f'.TH WORKSPACE\\-AGENT 1 "{date}" "workspace\\-agent {text(version)}" "User Commands"',
        ".nh", ".ad l", ".SH NAME", "workspace\\-agent \\- " + text(command["abstract"][0].lower() + command["abstract"][1:].rstrip(".")),
        ".SH SYNOPSIS",
    ]
    for words, item in commands:
        lines += [synopsis(words, item), ".br"]
    lines += [
        ".SH DESCRIPTION", text(
            "The daemon inside a developer's workspace: processes, files, changes in git work trees, a virtual desktop "
            "and start-up units over HTTP on a unix socket, and a link to a Coder control plane."),
        ".PP", "Most flags have a variable, which is named in brackets; the flag wins.",
        "Every command has \\fB\\-\\-help\\fR. \\fBworkspace\\-agent exp sync\\fR is the same as "
        "\\fBworkspace\\-agent sync\\fR, as is the program under the name \\fBcoder\\fR.",
        ".SH COMMANDS",
    ]
    for words, item in commands:
        lines += described(words, item)
    lines += [
        ".SH FILES",
        ".TP", "\\fI$XDG_RUNTIME_DIR/workspace\\-agent/http.sock\\fR",
        "The HTTP API; \\fI/tmp/workspace\\-agent\\-UID/http.sock\\fR where that variable is not set.",
        ".TP", "\\fI/tmp/coder\\-agent.sock\\fR", "The agent socket, for \\fBsync\\fR.",
        ".TP", "\\fI~/.local/state/workspace\\-agent\\fR", "What outlives the daemon.",
        ".SH EXIT STATUS", "0 done, 1 failed, 2 bad usage, 130 interrupted. "
        "\\fBproc run\\fR exits with the status of its command.",
        ".SH SEE ALSO", "\\fBsystemd.service\\fR(5), \\fBgit\\fR(1), \\fBssh\\fR(1)",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: manpage.py BINARY")
    sys.stdout.write(page(sys.argv[1]))
