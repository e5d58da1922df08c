// What each CSI sequence does: by its final character.

const secondNumber = (params, fallback = 1) => (params[1] && params[1][0]) || fallback;

const terminalSequences = {
    "@": (terminal, params, grid) => grid.line.insert(grid.column, cellsLeft(params, grid), terminal.blank),
    A: (terminal, params, grid) => grid.moveBy(-firstNumber(params), 0),
    B: (terminal, params, grid) => grid.moveBy(firstNumber(params), 0),
    C: (terminal, params, grid) => grid.moveTo(grid.row, grid.column + firstNumber(params)),
    D: (terminal, params, grid) => grid.moveTo(grid.row, grid.column - firstNumber(params)),
    E: (terminal, params, grid) => { grid.moveBy(firstNumber(params), 0); grid.column = 0; },
    F: (terminal, params, grid) => { grid.moveBy(-firstNumber(params), 0); grid.column = 0; },
    G: (terminal, params, grid) => grid.moveTo(grid.row, firstNumber(params) - 1),
    H: (terminal, params) => terminal.moveTo(firstNumber(params), secondNumber(params)),
    I: (terminal, params) => terminal.tab(firstNumber(params)),
    J: (terminal, params, grid) => eraseDisplay(terminal, firstNumber(params, 0), grid),
    K: (terminal, params, grid) => grid.eraseLine(firstNumber(params, 0), terminal.blank),
    L: (terminal, params, grid) => grid.insertLines(firstNumber(params), terminal.blank),
    M: (terminal, params, grid) => grid.deleteLines(firstNumber(params), terminal.blank),
    P: (terminal, params, grid) => grid.line.remove(grid.column, cellsLeft(params, grid), terminal.blank),
    S: (terminal, params, grid) => grid.scrollUp(firstNumber(params), terminal.blank),
    T: (terminal, params, grid) => grid.scrollDown(firstNumber(params), terminal.blank),
    X: (terminal, params, grid) =>
        grid.line.erase(grid.column, grid.column + cellsLeft(params, grid), terminal.blank),
    Z: (terminal, params) => terminal.tab(-firstNumber(params)),
    "`": (terminal, params, grid) => grid.moveTo(grid.row, firstNumber(params) - 1),
    a: (terminal, params, grid) => grid.moveTo(grid.row, grid.column + firstNumber(params)),
    b: (terminal, params, grid) => {
        const count = Math.min(firstNumber(params), grid.rows * grid.columns);
        if (terminal.last) terminal.print(terminal.last.repeat(count));
    },
    c: (terminal, params) => { if (firstNumber(params, 0) === 0) terminal.reply("\x1b[?62;22c"); },
    d: (terminal, params, grid) => terminal.moveTo(firstNumber(params), grid.column + 1),
    e: (terminal, params, grid) => grid.moveBy(firstNumber(params), 0),
    f: (terminal, params) => terminal.moveTo(firstNumber(params), secondNumber(params)),
    g: (terminal, params, grid) => {
        if (firstNumber(params, 0) === 0) terminal.tabs.delete(grid.column);
        if (firstNumber(params, 0) === 3) terminal.tabs.clear();
    },
    h: (terminal, params) => setPlainModes(terminal, params, true),
    l: (terminal, params) => setPlainModes(terminal, params, false),
    m: (terminal, params) => { terminal.style = applySGR(terminal.style, params); },
    n: (terminal, params, grid) => {
        if (firstNumber(params) === 5) terminal.reply("\x1b[0n");
        const row = grid.row - (terminal.modes.origin ? grid.top : 0);
        if (firstNumber(params) === 6) terminal.reply(`\x1b[${row + 1};${grid.column + 1}R`);
    },
    r: (terminal, params, grid) => {
        grid.setRegion(firstNumber(params) - 1, secondNumber(params, grid.rows) - 1);
        terminal.moveTo(1, 1);
    },
    s: (terminal) => terminal.saveCursor(),
    u: (terminal) => terminal.restoreCursor(),
};

function cellsLeft(params, grid) { return Math.min(firstNumber(params), grid.columns - grid.column); }

function eraseDisplay(terminal, mode, grid) {
    if (mode === 3) terminal.scrollback.length = 0;
    else grid.eraseDisplay(mode, terminal.blank);
}

function setPlainModes(terminal, params, on) {
    for (const [mode] of params) {
        if (mode === 4) terminal.modes.insert = on;
        if (mode === 20) terminal.modes.newLine = on;
    }
}

// --- Keys ----------------------------------------------------------------------------------------

const keyFinals = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", End: "F", Home: "H" };
const keyNumbers = { Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21,
    F11: 23, F12: 24 };
const keyFunctions = { F1: "P", F2: "Q", F3: "R", F4: "S" };

/** What a key press sends, or null when it is the browser's or an input method's. */
function terminalKey(event, modes) {
    const { key } = event;
    if (event.isComposing || event.metaKey || key === "Dead" || key === "Process") return null;
    // 2 shift, 3 alt, 5 control and their sums, as xterm numbers them.
    const modifiers = 1 + !!event.shiftKey + 2 * !!event.altKey + 4 * !!event.ctrlKey;
    if (keyFinals[key]) {
        if (modifiers > 1) return `\x1b[1;${modifiers}${keyFinals[key]}`;
        return `\x1b${modes.cursorKeys ? "O" : "["}${keyFinals[key]}`;
    }
    if (keyFunctions[key]) return modifiers > 1 ? `\x1b[1;${modifiers}${keyFunctions[key]}` : `\x1bO${keyFunctions[key]}`;
    if (keyNumbers[key]) return `\x1b[${keyNumbers[key]}${modifiers > 1 ? `;${modifiers}` : ""}~`;
    const alt = event.altKey ? "\x1b" : "";
    switch (key) {
    case "Enter": return alt + (modes.newLine ? "\r\n" : "\r");
    case "Backspace": return alt + (event.ctrlKey ? "\b" : "\x7f");
    case "Tab": return event.shiftKey ? "\x1b[Z" : "\t";
    case "Escape": return alt + "\x1b";
    }
    if ([...key].length !== 1) return null;
    if (event.ctrlKey && !event.getModifierState?.("AltGraph")) return controlKey(key, alt);
    return event.getModifierState?.("AltGraph") ? key : alt + key;
}

function controlKey(key, alt) {
    const upper = key.toUpperCase();
    if (upper >= "@" && upper <= "_") return alt + String.fromCharCode(upper.charCodeAt(0) & 31);
    return { " ": alt + "\0", "2": "\0", "3": "\x1b", "4": "\x1c", "5": "\x1d", "6": "\x1e", "7": "\x1f", "/": "\x1f",
        "8": "\x7f", "?": "\x7f" }[key] ?? null;
}

/** Text that is pasted. Programs that ask for it can tell it from keys. */
function pastedText(text, modes) {
    const lines = text.replace(/\r?\n/g, "\r");
    // The end mark within the text would let it act as keys.
    return modes.bracketedPaste ? `\x1b[200~${lines.replaceAll("\x1b", "")}\x1b[201~` : lines;
}
