// A terminal on the page: draws the lines that changed once a frame, and sends what is typed.

class TerminalView {
    /** `send(text)` gets what is typed, `onSize(rows, columns)` the size that fits. */
    constructor({ send, onSize, onTitle }) {
        this.send = send;
        this.onSize = onSize;
        this.screen = h("div", { class: "term-screen" });
        this.history = h("div", { class: "term-history" });
        this.probe = h("span", { class: "term-probe", "aria-hidden": "true" }, "0".repeat(50));
        // Input methods and screen keyboards need a field; it lies where the cursor is, unseen.
        this.input = h("textarea", { class: "term-input", rows: 1, autocapitalize: "off", autocomplete: "off",
            spellcheck: "false", "aria-label": "Terminal input. Ctrl and Shift and F6 leave the terminal." });
        this.scroller = h("div", { class: "term-scroll" }, this.history, this.screen);
        this.element = h("div", { class: "term" }, this.probe, this.scroller, this.input);
        this.terminal = new Terminal(24, 80, {
            reply: (text) => { if (!this.replaying) this.send(text); },
            onTitle, onBell: () => this.bell(), colours: () => this.colours(),
        });
        this.drawn = [];
        this.listen();
    }

    listen() {
        this.input.addEventListener("keydown", (event) => this.keyDown(event));
        this.input.addEventListener("input", () => this.takeInput());
        this.input.addEventListener("compositionend", () => this.takeInput());
        this.input.addEventListener("paste", (event) => {
            event.preventDefault();
            this.type(pastedText(event.clipboardData.getData("text/plain"), this.terminal.modes));
        });
        for (const name of ["focus", "blur"]) this.input.addEventListener(name, () => this.draw());
        this.scroller.addEventListener("mouseup", () => { if (getSelection().isCollapsed) this.input.focus(); });
        this.observer = new ResizeObserver(() => this.fit());
        this.observer.observe(this.element);
    }

    close() {
        this.observer.disconnect();
        cancelAnimationFrame(this.frame);
    }

    keyDown(event) {
        // Copying what is selected, pasting, and leaving with the keyboard are the browser's.
        if (event.ctrlKey && event.shiftKey && ["C", "V", "F6"].includes(event.key)) {
            if (event.key === "F6") { event.preventDefault(); byId("main").focus(); }
            return;
        }
        const text = terminalKey(event, this.terminal.modes);
        if (text === null) return;
        event.preventDefault();
        this.type(text);
    }

    takeInput() {
        if (this.input.value === "" || this.composing) return;
        this.type(this.input.value.replace(/\n/g, "\r"));
        this.input.value = "";
    }

    type(text) {
        this.scroller.scrollTop = this.scroller.scrollHeight;
        this.send(text);
    }

    bell() {
        this.element.classList.add("bell");
        setTimeout(() => this.element.classList.remove("bell"), 150);
    }

    /** The colours of the page, for programs that ask whether it is dark. */
    colours() {
        const style = getComputedStyle(this.element);
        const spec = (colour) => {
            const rgb = colour.match(/\d+/g)?.slice(0, 3).map((n) => Number(n).toString(16).padStart(2, "0").repeat(2));
            return rgb?.length === 3 ? `rgb:${rgb.join("/")}` : null;
        };
        return { ink: spec(style.color), paper: spec(style.backgroundColor) };
    }

    /** Measures how many cells fit, and says so when that changed. */
    fit() {
        const cell = this.probe.getBoundingClientRect();
        if (cell.width === 0) return;
        const style = getComputedStyle(this.scroller);
        const width = this.scroller.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        const height = this.scroller.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
        this.cell = { width: cell.width / 50, height: cell.height };
        const rows = Math.max(2, Math.min(500, Math.floor(height / this.cell.height)));
        const columns = Math.max(10, Math.min(500, Math.floor(width / this.cell.width)));
        if (rows === this.terminal.grid.rows && columns === this.terminal.grid.columns) return;
        this.terminal.resize(rows, columns);
        this.draw();
        this.onSize(rows, columns);
    }

    feed(bytes) {
        this.terminal.feed(bytes);
        this.draw();
    }

    draw() {
        this.frame ??= requestAnimationFrame(() => { this.frame = null; this.drawNow(); });
    }

    drawNow() {
        const { grid } = this.terminal;
        keepAtEnd(this.scroller, () => {
            this.drawHistory();
            while (this.screen.childElementCount > grid.rows) { this.screen.lastChild.remove(); this.drawn.pop(); }
            grid.lines.forEach((line, row) => this.drawLine(line, row, grid));
        });
        const { width, height } = this.cell || { width: 8, height: 16 };
        this.input.style.transform = `translate(${grid.column * width}px, ${grid.row * height}px)`;
    }

    drawLine(line, row, grid) {
        const cursor = row === grid.row && this.terminal.modes.cursor ? grid.column : -1;
        const focused = document.activeElement === this.input;
        const old = this.drawn[row];
        if (old && old.line === line && old.version === line.version && old.cursor === cursor &&
            (cursor < 0 || old.focused === focused)) return;
        const element = lineElement(line, cursor, focused);
        if (old) this.screen.children[row].replaceWith(element);
        else this.screen.append(element);
        this.drawn[row] = { line, version: line.version, cursor, focused };
    }

    /** Lines that left at the top; of a flood, only those that will be kept. */
    drawHistory() {
        const { scrollback, scrolled, grid, alternateGrid } = this.terminal;
        this.history.hidden = grid === alternateGrid;
        const fresh = Math.min(scrolled - (this.scrolled || 0), scrollback.length, Terminal.keptLines);
        this.scrolled = scrolled;
        if (scrollback.length === 0) this.history.replaceChildren();
        else if (fresh > 0) this.history.append(...scrollback.slice(-fresh).map((line) => lineElement(line, -1)));
        while (this.history.childElementCount > Terminal.keptLines) this.history.firstChild.remove();
    }
}

/** A line as runs of one style. A character whose glyph may not fit the cells has a box of its own. */
function lineElement(line, cursor, focused) {
    const element = h("div", { class: "term-line" });
    let run = "", runStyle = null;
    const flush = () => {
        if (run !== "") element.append(styledText(run, runStyle));
        run = "";
    };
    let end = line.chars.length;
    while (end > 0 && end - 1 > cursor && line.chars[end - 1] === " " && line.styles[end - 1] === plainStyle) end--;
    for (let column = 0; column < end; column++) {
        const char = line.chars[column], style = line.styles[column];
        if (char === "") continue;
        const wide = line.chars[column + 1] === "";
        const atCursor = column === cursor || (wide && column + 1 === cursor);
        if (atCursor || wide || needsBox(char)) {
            flush();
            element.append(cellElement(char, style, wide, atCursor && (focused ? "cursor" : "cursor idle")));
        } else {
            if (style !== runStyle) flush();
            runStyle = style;
            run += char;
        }
    }
    flush();
    return element;
}

function needsBox(char) {
    const code = char.codePointAt(0);
    return code > 0x2190 && !(code >= 0x2500 && code <= 0x25a0);
}

function cellElement(char, style, wide, cursorClass) {
    const cell = h("span", { class: ["cell", wide && "wide", cursorClass].filter(Boolean).join(" ") }, char);
    styleElement(cell, style);
    return cell;
}
