// Reads what git's diff prints, and shows it.

const shownDiffLines = 400;

/** The files of a diff: `{name, lines, added, removed}`. What comes before the first file is a note. */
function parseDiff(text) {
    const files = [], notes = [];
    let file = null, hunk = false;
    for (const line of text.split("\n")) {
        if (line.startsWith("diff --git ")) {
            file = { name: diffName(line), lines: [], added: 0, removed: 0 };
            hunk = false;
            files.push(file);
            continue;
        }
        if (!file) { if (line !== "") notes.push(line); continue; }
        if (line.startsWith("@@")) hunk = true;
        if (!hunk) { headerLine(file, line); continue; }
        if (line.startsWith("+")) file.added++;
        if (line.startsWith("-")) file.removed++;
        file.lines.push(line);
    }
    // The last line of a diff ends it.
    if (file && file.lines.at(-1) === "") file.lines.pop();
    return { files, notes };
}

/** `diff --git a/x b/x`, with names quoted where they are unusual. */
function diffName(line) {
    const rest = line.slice("diff --git ".length);
    const quoted = / "?b\/((?:[^"\\]|\\.)*)"$/.exec(rest);
    if (quoted) return quoted[1];
    // Both names are the same without renames, so the line is cut in its middle.
    const half = rest.slice(Math.ceil(rest.length / 2));
    return half.replace(/^b\//, "");
}

function headerLine(file, line) {
    if (line.startsWith("new file")) file.kind = "new";
    else if (line.startsWith("deleted file")) file.kind = "deleted";
    else if (line.startsWith("+++ b/")) file.name = line.slice(6).replace(/\t$/, "");
    else if (line.startsWith("Binary files")) file.lines.push(line);
    else if (line.startsWith("File ") || line.startsWith("old mode") || line.startsWith("new mode")) file.lines.push(line);
}

/** A file's changes, made only when it is opened. */
function diffFile(file, key, opened) {
    const body = h("div", { class: "diff-body" });
    const kind = file.kind && h("span", { class: "soft" }, file.kind);
    const details = h("details", { class: "diff-file", open: opened.has(key) ? !opened.get(key).closed : file.lines.length < 200 },
        h("summary", {}, h("code", {}, file.name), kind, h("span", { class: "spacer" }),
            h("span", { class: "good" }, `+${file.added}`), h("span", { class: "bad" }, `−${file.removed}`)), body);
    const fill = () => { if (details.open && !body.firstChild) appendDiffLines(body, file.lines, 0); };
    details.addEventListener("toggle", () => { opened.set(key, { closed: !details.open }); fill(); });
    fill();
    return details;
}

function appendDiffLines(body, lines, from) {
    const numbers = numbered(lines);
    const to = Math.min(lines.length, from + shownDiffLines);
    const rows = [];
    for (let i = from; i < to; i++) {
        const [oldNumber, newNumber] = numbers[i];
        rows.push(h("div", { class: `diff-line ${diffKind(lines[i])}` }, h("span", { class: "number", "aria-hidden": "true" }, oldNumber),
            h("span", { class: "number", "aria-hidden": "true" }, newNumber), h("span", { class: "code" }, lines[i].slice(0, 2000) || " ")));
    }
    body.append(...rows);
    if (to === lines.length) return;
    const more = button(`Show ${Math.min(shownDiffLines, lines.length - to)} of ${lines.length - to} more lines`, () => {
        more.remove();
        appendDiffLines(body, lines, to);
    }, { class: "more" });
    body.append(more);
}

function diffKind(line) { return { "+": "added", "-": "removed", "@": "hunk", "\\": "soft" }[line[0]] || ""; }

/** The line numbers of either side. */
function numbered(lines) {
    let before = 0, after = 0;
    return lines.map((line) => {
        const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
        if (hunk) { [before, after] = [Number(hunk[1]), Number(hunk[2])]; return ["", ""]; }
        if (line.startsWith("+")) return ["", after++];
        if (line.startsWith("-")) return [before++, ""];
        return line.startsWith(" ") ? [before++, after++] : ["", ""];
    });
}
