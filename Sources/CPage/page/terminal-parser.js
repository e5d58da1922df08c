// Splits what a program writes to its terminal into text, controls and escape sequences (ECMA-48, as xterm has it).

/**
 * Calls `handler.print(text)`, `.control(code)`, `.escape(intermediates, final)`,
 * `.csi(prefix, params, intermediates, final)` and `.osc(text)`. A sequence may come in pieces.
 */
class TerminalParser {
    constructor(handler) {
        this.handler = handler;
        this.decoder = new TextDecoder("utf-8");
        this.state = "ground";
        this.buffer = "";
    }

    /** Bytes; a character may be cut between two calls. */
    feed(bytes) { this.text(this.decoder.decode(bytes, { stream: true })); }

    text(text) {
        let from = 0;
        for (let i = 0; i < text.length; i++) {
            const code = text.charCodeAt(i);
            if (this.state === "ground") {
                if (code >= 0x20 && code !== 0x7f) continue;
                if (i > from) this.handler.print(text.slice(from, i));
                this.controlOrEscape(code);
            } else {
                this.step(text[i], code);
            }
            from = i + 1;
        }
        if (from < text.length && this.state === "ground") this.handler.print(text.slice(from));
    }

    controlOrEscape(code) {
        if (code === 0x1b) this.enter("escape");
        else this.handler.control(code);
    }

    enter(state) {
        this.state = state;
        this.buffer = "";
    }

    step(char, code) {
        if (this.state === "string") return this.stepString(char, code);
        // CAN and SUB end a sequence, ESC begins another; other controls within one count at once.
        if (code === 0x18 || code === 0x1a) return this.enter("ground");
        if (code < 0x20) return this.controlOrEscape(code);
        if (code === 0x7f) return;
        if (this.state === "escape") return this.stepEscape(char, code);
        if (code >= 0x40 && code <= 0x7e) {
            this.state = "ground";
            return this.endCSI(char);
        }
        // A sequence is short; one that is not is skipped to its end.
        if (this.buffer.length < 256) this.buffer += char;
    }

    stepEscape(char, code) {
        if (code < 0x30) {
            if (this.buffer.length < 8) this.buffer += char;
            return;
        }
        if (this.buffer === "" && char === "[") return this.enter("csi");
        if (this.buffer === "" && "]PX^_".includes(char)) {
            this.enter("string");
            this.kind = char;
            return;
        }
        this.state = "ground";
        this.handler.escape(this.buffer, char);
    }

    /** Until BEL or ESC \. Of a string that is too long the beginning is kept. */
    stepString(char, code) {
        if (code === 0x07 || code === 0x18 || code === 0x1a) return this.endString();
        if (code === 0x1b) {
            this.endString();
            // The backslash of ESC \ is a sequence that means nothing else.
            return this.enter("escape");
        }
        if (this.buffer.length < 4096) this.buffer += char;
    }

    endString() {
        this.state = "ground";
        if (this.kind === "]") this.handler.osc(this.buffer);
    }

    endCSI(final) {
        const match = /^([<=>?]?)([0-9;:]*)([ -/]*)$/.exec(this.buffer);
        if (!match) return;
        const params = match[2] === "" ? [] : match[2].split(";").slice(0, 32)
            .map((part) => part.split(":").map((number) => Math.min(Number(number) || 0, 65535)));
        this.handler.csi(match[1], params, match[3], final);
    }
}

// Wide characters: East Asian wide and full-width ones, and those shown as emoji (Unicode 15).
const wideRanges = [
    [0x1100, 0x115f], [0x231a, 0x231b], [0x2329, 0x232a], [0x23e9, 0x23ec], [0x23f0, 0x23f0], [0x23f3, 0x23f3],
    [0x25fd, 0x25fe], [0x2614, 0x2615], [0x2648, 0x2653], [0x267f, 0x267f], [0x2693, 0x2693], [0x26a1, 0x26a1],
    [0x26aa, 0x26ab], [0x26bd, 0x26be], [0x26c4, 0x26c5], [0x26ce, 0x26ce], [0x26d4, 0x26d4], [0x26ea, 0x26ea],
    [0x26f2, 0x26f3], [0x26f5, 0x26f5], [0x26fa, 0x26fa], [0x26fd, 0x26fd], [0x2705, 0x2705], [0x270a, 0x270b],
    [0x2728, 0x2728], [0x274c, 0x274c], [0x274e, 0x274e], [0x2753, 0x2755], [0x2757, 0x2757], [0x2795, 0x2797],
    [0x27b0, 0x27b0], [0x27bf, 0x27bf], [0x2b1b, 0x2b1c], [0x2b50, 0x2b50], [0x2b55, 0x2b55], [0x2e80, 0x303e],
    [0x3041, 0x33ff], [0x3400, 0x4dbf], [0x4e00, 0x9fff], [0xa000, 0xa4cf], [0xa960, 0xa97f], [0xac00, 0xd7a3],
    [0xf900, 0xfaff], [0xfe10, 0xfe19], [0xfe30, 0xfe6f], [0xff00, 0xff60], [0xffe0, 0xffe6], [0x16fe0, 0x18cff],
    [0x1aff0, 0x1b2ff], [0x1f004, 0x1f004], [0x1f0cf, 0x1f0cf], [0x1f18e, 0x1f18e], [0x1f191, 0x1f19a],
    [0x1f200, 0x1f320], [0x1f32d, 0x1f335], [0x1f337, 0x1f37c], [0x1f37e, 0x1f393], [0x1f3a0, 0x1f3ca],
    [0x1f3cf, 0x1f3d3], [0x1f3e0, 0x1f3f0], [0x1f3f4, 0x1f3f4], [0x1f3f8, 0x1f43e], [0x1f440, 0x1f440],
    [0x1f442, 0x1f4fc], [0x1f4ff, 0x1f53d], [0x1f54b, 0x1f54e], [0x1f550, 0x1f567], [0x1f57a, 0x1f57a],
    [0x1f595, 0x1f596], [0x1f5a4, 0x1f5a4], [0x1f5fb, 0x1f64f], [0x1f680, 0x1f6c5], [0x1f6cc, 0x1f6cc],
    [0x1f6d0, 0x1f6d2], [0x1f6d5, 0x1f6d7], [0x1f6dc, 0x1f6df], [0x1f6eb, 0x1f6ec], [0x1f6f4, 0x1f6fc],
    [0x1f7e0, 0x1f7eb], [0x1f7f0, 0x1f7f0], [0x1f90c, 0x1f93a], [0x1f93c, 0x1f945], [0x1f947, 0x1f9ff],
    [0x1fa70, 0x1faff], [0x20000, 0x3fffd],
];
const zeroWidth = /^[\p{Mn}\p{Me}\p{Cf}]$/u;

/** How many cells a character takes: 0 (it belongs to the one before it), 1 or 2. */
function cellWidth(char) {
    const code = char.codePointAt(0);
    if (code < 0x300) return 1;
    if (code < 0x1100) return zeroWidth.test(char) ? 0 : 1;
    let low = 0, high = wideRanges.length - 1;
    while (low <= high) {
        const middle = (low + high) >> 1;
        if (code < wideRanges[middle][0]) high = middle - 1;
        else if (code > wideRanges[middle][1]) low = middle + 1;
        else return 2;
    }
    return zeroWidth.test(char) ? 0 : 1;
}

// DEC's line drawing characters, for programs that select them instead of writing UTF-8.
const lineDrawing = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
function drawn(text) {
    return text.replace(/[`-~]/g, (char) => lineDrawing[char.charCodeAt(0) - 0x60]);
}
