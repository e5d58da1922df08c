// The cells of a terminal: lines of characters with their styles, a cursor, and what moves them about.

/** One line. The second cell of a wide character is "". */
class TerminalLine {
    constructor(width, style = plainStyle) {
        this.chars = new Array(width).fill(" ");
        this.styles = new Array(width).fill(style);
        /** Drawn again when it differs from what was drawn. */
        this.version = 0;
    }

    resize(width) {
        while (this.chars.length < width) { this.chars.push(" "); this.styles.push(plainStyle); }
        this.chars.length = this.styles.length = width;
        this.version++;
    }

    set(column, char, style) {
        this.chars[column] = char;
        this.styles[column] = style;
        this.version++;
    }

    /** Blank cells; half a wide character at either edge goes, too. */
    erase(from, to, style) {
        this.split(from);
        this.split(to);
        for (let column = from; column < to; column++) this.set(column, " ", style);
    }

    /** Makes a blank of a wide character that this column is the second cell of. */
    split(column) {
        if (column <= 0 || column >= this.chars.length || this.chars[column] !== "") return;
        this.set(column - 1, " ", this.styles[column - 1]);
        this.set(column, " ", this.styles[column]);
    }

    insert(column, count, style) {
        this.split(column);
        const width = this.chars.length;
        this.chars.splice(column, 0, ...new Array(count).fill(" "));
        this.styles.splice(column, 0, ...new Array(count).fill(style));
        this.chars.length = this.styles.length = width;
        if (cellWidth(this.chars[width - 1] || " ") === 2) this.chars[width - 1] = " ";
        this.version++;
    }

    remove(column, count, style) {
        this.split(column);
        this.split(column + count);
        this.chars.splice(column, count);
        this.styles.splice(column, count);
        while (this.styles.length < this.chars.length + count) this.styles.push(style);
        for (let i = 0; i < count; i++) this.chars.push(" ");
        this.version++;
    }

    get text() { return this.chars.join("").trimEnd(); }
}

/** A screen's lines with its cursor and scroll region; a terminal has a main and an alternate one. */
class TerminalGrid {
    /** `onScroll(line)` gets each line that leaves at the top. */
    constructor(rows, columns, onScroll = () => {}) {
        this.onScroll = onScroll;
        this.rows = rows;
        this.columns = columns;
        this.lines = Array.from({ length: rows }, () => new TerminalLine(columns));
        this.row = this.column = 0;
        /** The cursor is behind the last column: the next character goes to the next line. */
        this.wrapNext = false;
        this.top = 0;
        this.bottom = rows - 1;
    }

    get line() { return this.lines[this.row]; }

    moveTo(row, column) {
        this.row = Math.max(0, Math.min(this.rows - 1, row));
        this.column = Math.max(0, Math.min(this.columns - 1, column));
        this.wrapNext = false;
    }

    /** Moves up (negative) or down, and not out of the scroll region when the cursor is in it. */
    moveBy(rows, columns) {
        const inside = this.row >= this.top && this.row <= this.bottom;
        const low = inside || this.row > this.bottom ? (this.row >= this.top ? this.top : 0) : 0;
        const high = inside || this.row < this.top ? (this.row <= this.bottom ? this.bottom : this.rows - 1) : this.rows - 1;
        this.moveTo(Math.max(low, Math.min(high, this.row + rows)), this.column + columns);
    }

    setRegion(top, bottom) {
        const last = Math.min(bottom, this.rows - 1);
        if (top >= last) return;
        this.top = top;
        this.bottom = last;
    }

    lineFeed(style) {
        this.wrapNext = false;
        if (this.row === this.bottom) this.scrollUp(1, style);
        else if (this.row < this.rows - 1) this.row++;
    }

    reverseLineFeed(style) {
        this.wrapNext = false;
        if (this.row === this.top) this.scrollDown(1, style);
        else if (this.row > 0) this.row--;
    }

    scrollUp(count, style, from = this.top) {
        for (let i = 0; i < Math.min(count, this.bottom - from + 1); i++) {
            const [line] = this.lines.splice(from, 1);
            if (from === 0 && this.top === 0) this.onScroll(line);
            this.lines.splice(this.bottom, 0, new TerminalLine(this.columns, style));
        }
    }

    scrollDown(count, style, from = this.top) {
        for (let i = 0; i < Math.min(count, this.bottom - from + 1); i++) {
            this.lines.splice(this.bottom, 1);
            this.lines.splice(from, 0, new TerminalLine(this.columns, style));
        }
    }

    insertLines(count, style) { this.changeLines(() => this.scrollDown(count, style, this.row)); }

    /** What is deleted is not kept for looking back: the program removed it. */
    deleteLines(count, style) {
        const keep = this.onScroll;
        this.onScroll = () => {};
        this.changeLines(() => this.scrollUp(count, style, this.row));
        this.onScroll = keep;
    }

    changeLines(change) {
        if (this.row < this.top || this.row > this.bottom) return;
        change();
        this.column = 0;
        this.wrapNext = false;
    }

    /** Puts one character at the cursor. `insert` moves the rest of the line. */
    put(char, width, style, { insert, wrap }) {
        if (this.wrapNext && wrap) this.wrapLine(style);
        if (width === 2 && this.column === this.columns - 1) {
            if (!wrap || this.columns < 2) return;
            this.wrapLine(style);
        }
        const line = this.line;
        if (insert) line.insert(this.column, width, style);
        line.split(this.column);
        line.split(this.column + width);
        line.set(this.column, char, style);
        if (width === 2) line.set(this.column + 1, "", style);
        this.column += width;
        if (this.column >= this.columns) {
            this.column = this.columns - 1;
            this.wrapNext = wrap;
        }
    }

    wrapLine(style) {
        this.column = 0;
        this.lineFeed({ ...plainStyle, bg: style.bg });
    }

    /** A combining mark joins the character before the cursor. */
    combine(mark) {
        let column = this.wrapNext ? this.column : this.column - 1;
        if (column > 0 && this.line.chars[column] === "") column--;
        if (column < 0 || this.line.chars[column].length > 16) return;
        this.line.set(column, this.line.chars[column] + mark, this.line.styles[column]);
    }

    /** Erases in the display: 0 from the cursor on, 1 up to it, 2 all of it. */
    eraseDisplay(mode, style) {
        if (mode === 0 || mode === 1) this.eraseLine(mode, style);
        const from = mode === 0 ? this.row + 1 : 0;
        const to = mode === 1 ? this.row : this.rows;
        for (let row = from; row < to; row++) this.lines[row].erase(0, this.columns, style);
    }

    eraseLine(mode, style) {
        const from = mode === 0 ? this.column : 0;
        const to = mode === 1 ? this.column + 1 : this.columns;
        this.line.erase(from, to, style);
        this.wrapNext = false;
    }

    /** Lines go at the top, so that the cursor's stays; blank ones below it go first. */
    resize(rows, columns) {
        while (this.lines.length > rows) {
            if (this.row < this.lines.length - 1 && this.lines.at(-1).text === "") this.lines.pop();
            else if (this.row >= rows) { this.onScroll(this.lines.shift()); this.row--; } else this.lines.pop();
        }
        while (this.lines.length < rows) this.lines.push(new TerminalLine(columns));
        for (const line of this.lines) line.resize(columns);
        this.rows = rows;
        this.columns = columns;
        this.top = 0;
        this.bottom = rows - 1;
        this.moveTo(this.row, this.column);
    }
}
