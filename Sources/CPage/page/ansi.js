// Colours and styles of terminals (SGR), for the terminal and for output that is shown as text.

// A style is {fg, bg, flags}; a colour is null (the default), 0…255 (the palette), or "#rrggbb".
const bold = 1, dim = 2, italic = 4, underline = 8, inverse = 16, hidden = 32, strike = 64;
const plainStyle = Object.freeze({ fg: null, bg: null, flags: 0 });
const setFlags = { 1: bold, 2: dim, 3: italic, 4: underline, 7: inverse, 8: hidden, 9: strike, 21: underline };
const clearFlags = {
    22: bold | dim, 23: italic, 24: underline, 27: inverse, 28: hidden, 29: strike,
};

/** The style after `ESC [ … m`. A parameter may be a list, from `38:2::r:g:b`. */
function applySGR(style, params) {
    let { fg, bg, flags } = style;
    if (params.length === 0) return plainStyle;
    for (let i = 0; i < params.length; i++) {
        const list = params[i], code = list[0] || 0;
        if (code === 0) { fg = bg = null; flags = 0; }
        else if (code === 4 && list.length > 1) flags = list[1] === 0 ? flags & ~underline : flags | underline;
        else if (setFlags[code]) flags |= setFlags[code];
        else if (clearFlags[code]) flags &= ~clearFlags[code];
        else if (code >= 30 && code <= 37) fg = code - 30;
        else if (code >= 90 && code <= 97) fg = code - 82;
        else if (code >= 40 && code <= 47) bg = code - 40;
        else if (code >= 100 && code <= 107) bg = code - 92;
        else if (code === 39) fg = null;
        else if (code === 49) bg = null;
        else if (code === 38 || code === 48) {
            const [colour, used] = extendedColour(list, params, i);
            i += used;
            if (colour !== undefined && code === 38) fg = colour;
            if (colour !== undefined && code === 48) bg = colour;
        }
    }
    return Object.freeze({ fg, bg, flags });
}

/** The colour of 38 or 48, and how many further parameters it took. */
function extendedColour(list, params, at) {
    const inList = list.length > 1;
    const rest = inList ? list.slice(1) : params.slice(at + 1, at + 5).map((p) => p[0] || 0);
    const byte = (n) => Math.max(0, Math.min(255, n || 0));
    if (rest[0] === 5) return [byte(rest[1]), inList ? 0 : 2];
    if (rest[0] !== 2) return [undefined, 0];
    // With colons there may be a colour space before the three.
    const rgb = inList ? rest.slice(-3) : rest.slice(1, 4);
    return ["#" + rgb.map((n) => byte(n).toString(16).padStart(2, "0")).join(""), inList ? 0 : 4];
}

const paletteColours = Array.from({ length: 256 }, (_, n) => {
    if (n < 16) return `var(--ansi-${n})`;
    if (n >= 232) return `rgb(${[0, 0, 0].map(() => 8 + (n - 232) * 10).join()})`;
    const level = (i) => (i === 0 ? 0 : 55 + i * 40);
    return `rgb(${[Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level).join()})`;
});

function cssColour(colour) { return typeof colour === "number" ? paletteColours[colour] : colour; }

/** Text in a style. Plain text is a text node. */
function styledText(text, style) {
    if (style === plainStyle || (style.fg === null && style.bg === null && style.flags === 0)) {
        return document.createTextNode(text);
    }
    const span = document.createElement("span");
    span.textContent = text;
    styleElement(span, style);
    return span;
}

function styleElement(element, { fg, bg, flags }) {
    // Bold makes the first eight colours bright, as most programs expect.
    let ink = cssColour(flags & bold && typeof fg === "number" && fg < 8 ? fg + 8 : fg);
    let paper = cssColour(bg);
    if (flags & inverse) [ink, paper] = [paper || "var(--term-bg)", ink || "var(--term-fg)"];
    if (ink) element.style.color = ink;
    if (paper) element.style.backgroundColor = paper;
    if (flags & bold) element.style.fontWeight = "600";
    if (flags & dim) element.style.opacity = "0.65";
    if (flags & italic) element.style.fontStyle = "italic";
    if (flags & hidden) element.style.visibility = "hidden";
    const lines = [flags & underline && "underline", flags & strike && "line-through"].filter(Boolean);
    if (lines.length > 0) element.style.textDecoration = lines.join(" ");
}

// An escape sequence: CSI, OSC and other strings, or a short one.
const escapes = /\x1b(?:\[([0-9;:<=>?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])/g;
const controls = /[\x00-\x08\x0b-\x1f\x7f]/g;

/** Splits one line into text nodes and spans; a style goes on to the next line. Whatever is no colour is left out. */
class StyledLines {
    constructor() { this.style = plainStyle; }

    nodes(line) {
        if (!line.includes("\x1b")) return line === "" ? [] : [styledText(line.replace(controls, ""), this.style)];
        const nodes = [];
        let from = 0;
        const text = (to) => {
            const part = line.slice(from, to).replace(controls, "");
            if (part !== "") nodes.push(styledText(part, this.style));
        };
        for (const match of line.matchAll(escapes)) {
            text(match.index);
            from = match.index + match[0].length;
            if (match[2] === "m" && !/[<=>?]/.test(match[1])) this.style = applySGR(this.style, parseSGR(match[1]));
        }
        text(line.length);
        return nodes;
    }
}

function parseSGR(text) {
    return text === "" ? [] : text.split(";").map((part) => part.split(":").map((number) => Number(number) || 0));
}
