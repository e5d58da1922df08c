// The terminal: what its sequences do to the cells. Nothing here touches the page.

const firstNumber = (params, fallback = 1) => (params[0] && params[0][0]) || fallback;

/** `reply(text)` sends an answer to the program; the answers of a replay were given long ago. */
class Terminal {
    constructor(rows, columns, { reply = () => {}, onTitle = () => {}, onBell = () => {}, colours = () => ({}) } = {}) {
        Object.assign(this, { reply, onTitle, onBell, colours });
        this.scrollback = [];
        /** Lines that ever left at the top, kept or not. */
        this.scrolled = 0;
        this.parser = new TerminalParser(this);
        this.reset(rows, columns);
    }

    static get keptLines() { return 2000; }

    reset(rows = this.grid.rows, columns = this.grid.columns) {
        this.mainGrid = new TerminalGrid(rows, columns, (line) => this.keep(line));
        this.alternateGrid = new TerminalGrid(rows, columns);
        this.grid = this.mainGrid;
        this.tabs = new Set();
        for (let column = 8; column < 1000; column += 8) this.tabs.add(column);
        this.softReset();
        this.modes.bracketedPaste = false;
    }

    softReset() {
        this.style = plainStyle;
        this.modes = { ...this.modes, cursorKeys: false, keypad: false, origin: false, wrap: true, cursor: true,
            insert: false, newLine: false };
        this.charsets = ["B", "B"];
        this.charset = 0;
        this.saved = null;
        this.last = "";
        this.grid.top = 0;
        this.grid.bottom = this.grid.rows - 1;
    }

    keep(line) {
        this.scrollback.push(line);
        this.scrolled++;
        if (this.scrollback.length > Terminal.keptLines * 1.5) this.scrollback.splice(0, Terminal.keptLines / 2);
    }

    feed(bytes) { this.parser.feed(bytes); }

    resize(rows, columns) {
        this.mainGrid.resize(rows, columns);
        this.alternateGrid.resize(rows, columns);
    }

    /** The screen as text, for tests and for who cannot see it. */
    get text() { return this.grid.lines.map((line) => line.text).join("\n").trimEnd(); }

    /** The colour that is erased with: the background alone. */
    get blank() { return this.style.bg === null ? plainStyle : Object.freeze({ fg: null, bg: this.style.bg, flags: 0 }); }

    print(text) {
        const shown = this.charsets[this.charset] === "0" ? drawn(text) : text;
        for (const char of shown) {
            const width = cellWidth(char);
            if (width === 0) { this.grid.combine(char); continue; }
            this.grid.put(char, width, this.style, this.modes);
            this.last = char;
        }
    }

    control(code) {
        const grid = this.grid;
        switch (code) {
        case 7: this.onBell(); break;
        case 8: grid.moveTo(grid.row, grid.column - 1); break;
        case 9: this.tab(1); break;
        case 10: case 11: case 12:
            grid.lineFeed(this.blank);
            if (this.modes.newLine) grid.column = 0;
            break;
        case 13: grid.moveTo(grid.row, 0); break;
        case 14: this.charset = 1; break;
        case 15: this.charset = 0; break;
        }
    }

    tab(count) {
        const grid = this.grid, step = Math.sign(count);
        let column = grid.column;
        for (let left = Math.min(Math.abs(count), grid.columns); left > 0; left--) {
            do column += step; while (column > 0 && column < grid.columns - 1 && !this.tabs.has(column));
        }
        grid.moveTo(grid.row, column);
    }

    escape(intermediates, final) {
        if (intermediates === "(" || intermediates === ")") {
            this.charsets[intermediates === "(" ? 0 : 1] = final;
            return;
        }
        if (intermediates === "#" && final === "8") return this.fillWithE();
        if (intermediates !== "") return;
        switch (final) {
        case "7": this.saveCursor(); break;
        case "8": this.restoreCursor(); break;
        case "=": this.modes.keypad = true; break;
        case ">": this.modes.keypad = false; break;
        case "c": this.reset(); break;
        case "D": this.grid.lineFeed(this.blank); break;
        case "E": this.grid.lineFeed(this.blank); this.grid.column = 0; break;
        case "H": this.tabs.add(this.grid.column); break;
        case "M": this.grid.reverseLineFeed(this.blank); break;
        }
    }

    fillWithE() {
        for (const line of this.grid.lines) {
            for (let column = 0; column < this.grid.columns; column++) line.set(column, "E", plainStyle);
        }
        this.grid.moveTo(0, 0);
    }

    saveCursor() {
        const { row, column, wrapNext } = this.grid;
        this.saved = { row, column, wrapNext, style: this.style, charsets: [...this.charsets], charset: this.charset,
            origin: this.modes.origin };
    }

    restoreCursor() {
        const saved = this.saved || { row: 0, column: 0, style: plainStyle, charsets: ["B", "B"], charset: 0 };
        this.grid.moveTo(saved.row, saved.column);
        this.grid.wrapNext = !!saved.wrapNext;
        this.style = saved.style;
        this.charsets = [...saved.charsets];
        this.charset = saved.charset;
        this.modes.origin = !!saved.origin;
    }

    /** Titles, and questions for colours. */
    osc(text) {
        const [, code, value] = /^(\d+);?(.*)$/s.exec(text) || [];
        if (code === "0" || code === "2") this.onTitle(value.slice(0, 200));
        if ((code === "10" || code === "11") && value === "?") {
            const colour = this.colours()[code === "10" ? "ink" : "paper"];
            if (colour) this.reply(`\x1b]${code};${colour}\x1b\\`);
        }
    }

    csi(prefix, params, intermediates, final) {
        if (prefix === "?" && (final === "h" || final === "l")) {
            for (const [mode] of params) this.setMode(mode, final === "h");
        } else if (prefix === ">" && final === "c") {
            this.reply("\x1b[>41;354;0c");
        } else if (prefix === "?" && final === "J") {
            this.grid.eraseDisplay(firstNumber(params, 0), this.blank);
        } else if (prefix === "?" && final === "K") {
            this.grid.eraseLine(firstNumber(params, 0), this.blank);
        } else if (intermediates === "!" && final === "p") {
            this.softReset();
        } else if (prefix === "" && intermediates === "") {
            terminalSequences[final]?.(this, params, this.grid);
        }
    }

    setMode(mode, on) {
        const names = { 1: "cursorKeys", 6: "origin", 7: "wrap", 25: "cursor", 66: "keypad", 2004: "bracketedPaste" };
        if (names[mode]) this.modes[names[mode]] = on;
        if (mode === 6) this.grid.moveTo(on ? this.grid.top : 0, 0);
        if (mode === 1048) { if (on) this.saveCursor(); else this.restoreCursor(); }
        if (mode === 47 || mode === 1047) this.useAlternate(on, mode === 1047 && on);
        if (mode === 1049) {
            if (on && this.grid === this.mainGrid) this.saveCursor();
            this.useAlternate(on, on);
            if (!on) this.restoreCursor();
        }
    }

    useAlternate(on, clear) {
        const { row, column } = this.grid;
        this.grid = on ? this.alternateGrid : this.mainGrid;
        this.grid.moveTo(row, column);
        this.grid.top = 0;
        this.grid.bottom = this.grid.rows - 1;
        if (clear) this.grid.eraseDisplay(2, plainStyle);
    }

    /** A position from a sequence, which counts from 1, and from the region's top in origin mode. */
    moveTo(row, column) {
        const grid = this.grid;
        if (this.modes.origin) grid.moveTo(Math.min(grid.top + row - 1, grid.bottom), column - 1);
        else grid.moveTo(row - 1, column - 1);
    }
}
