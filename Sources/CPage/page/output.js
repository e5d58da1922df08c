// Output of a process as text. A process may write gigabytes: what is shown is bounded, as is what is drawn in one frame,
// and grouped into blocks that the browser lays out only where they are seen.

const shownBytes = 1 << 20;
const frameBytes = 64 << 10;
const blockBytes = 16 << 10;
// A style costs the browser about as much as that much text.
const nodeCost = 48;
const longLine = 16 << 10;

/** Text that grows at its end and is dropped at its beginning. */
class OutputView {
    /** `drawn` is called when more is shown. */
    constructor(label, drawn = () => {}) {
        this.drawn = drawn;
        // Pieces that came and are not drawn yet: text with its offset, or a note.
        this.waiting = [];
        this.waitingBytes = 0;
        this.blocks = h("div", { class: "blocks" });
        this.element = h("div", { class: "output", tabindex: 0, role: "log", "aria-live": "off", "aria-label": label },
            this.blocks);
        this.lines = new StyledLines();
        this.open = "";
        this.cost = 0;
        this.dropped = 0;
        this.openLine = h("div", { class: "line" });
        this.newBlock(0);
        this.keepFollowing();
    }

    /** Stays at the end until a person scrolls away from it. Heights are known only once the browser has laid blocks
     *  out, so being at the end is remembered, not measured. */
    keepFollowing() {
        this.following = true;
        const look = () => requestAnimationFrame(() => {
            const { scrollHeight, scrollTop, clientHeight } = this.element;
            this.following = scrollHeight - scrollTop - clientHeight < 24;
        });
        for (const name of ["wheel", "touchmove", "keyup", "pointerup"]) this.element.addEventListener(name, look, { passive: true });
        const observer = new ResizeObserver(() => this.toEnd());
        observer.observe(this.blocks);
        observer.observe(this.element);
    }

    toEnd() { if (this.following) this.element.scrollTop = this.element.scrollHeight; }

    /** The offset of the first byte that is shown. */
    get firstOffset() { return this.blocks.firstElementChild.offset; }

    newBlock(offset) {
        this.block = h("div", { class: "block" });
        this.block.offset = offset;
        this.block.cost = 0;
        this.blocks.append(this.block);
    }

    /** Shows more text, whose first byte is at this offset of the output, with the next frame. */
    append(text, offset) { this.wait({ text, offset }); }

    note(text) { this.wait({ text: "", note: text }); }

    wait(piece) {
        this.waiting.push(piece);
        this.waitingBytes += piece.text.length;
        // What would be dropped as soon as it is drawn is not drawn at all, and all before it goes: there are no gaps.
        while (this.waitingBytes - this.waiting[0].text.length > shownBytes) {
            this.waitingBytes -= this.waiting.shift().text.length;
            this.clear(this.waiting.find((piece) => piece.offset !== undefined).offset);
        }
        this.frame ??= requestAnimationFrame(() => this.draw());
    }

    clear(offset) {
        this.blocks.replaceChildren();
        this.open = "";
        this.cost = 0;
        this.newBlock(offset);
    }

    draw() {
        this.frame = null;
        for (let room = frameBytes; room > 0 && this.waiting.length > 0;) {
            const piece = this.waiting[0];
            const cut = lineEnd(piece.text, room);
            // A line that is longer than what is left begins a frame.
            if (cut > room && room < frameBytes) break;
            const text = piece.text.slice(0, cut);
            room -= Math.max(cut, 1);
            this.waitingBytes -= cut;
            if (piece.note) this.block.append(h("div", { class: "line note" }, piece.note));
            else this.write(text, piece.offset);
            if (cut === piece.text.length) this.waiting.shift();
            else this.waiting[0] = { text: piece.text.slice(cut), offset: piece.offset + encodedLength(text) };
        }
        if (this.waiting.length > 0) this.frame = requestAnimationFrame(() => this.draw());
        this.toEnd();
        this.drawn();
    }

    write(text, offset) {
        if (this.blocks.childElementCount === 1 && this.block.cost === 0 && this.open === "") this.block.offset = offset;
        this.openLine.remove();
        const parts = text.split("\n");
        const ascii = !/[^\x00-\x7f]/.test(text);
        let position = offset;
        for (let i = 0; i < parts.length; i++) {
            position += (ascii ? parts[i].length : encodedLength(parts[i])) + 1;
            this.open += parts[i];
            if (i < parts.length - 1 || this.open.length > longLine) this.endLine(position);
        }
        this.showOpenLine();
        this.trim();
    }

    /** Adds the line that is complete; a new block begins behind a full one. */
    endLine(next) {
        const nodes = this.lines.nodes(overwritten(this.open));
        const cost = this.open.length + 1 + nodeCost * nodes.length;
        this.block.append(h("div", { class: "line" }, nodes));
        this.block.cost += cost;
        this.cost += cost;
        this.open = "";
        if (this.block.cost < blockBytes) return;
        // What the block's height will be about, until it is laid out.
        this.block.style.containIntrinsicSize = `auto ${this.block.childElementCount * 17}px`;
        this.newBlock(next);
    }

    /** The last line is shown as it grows; its style is the next line's only once it is complete. */
    showOpenLine() {
        if (this.open === "") return;
        const lines = new StyledLines();
        lines.style = this.lines.style;
        this.openLine.replaceChildren(...lines.nodes(overwritten(this.open)));
        this.block.append(this.openLine);
    }

    trim() {
        while (this.cost > shownBytes && this.blocks.childElementCount > 1) {
            this.cost -= this.blocks.firstElementChild.cost;
            this.blocks.firstElementChild.remove();
        }
    }
}

/** How much of a text to draw where there is room for so much: whole lines, at least one. */
function lineEnd(text, room) {
    if (text.length <= room) return text.length;
    return text.lastIndexOf("\n", room - 1) + 1 || text.indexOf("\n") + 1 || text.length;
}

const encoder = new TextEncoder();
function encodedLength(text) { return encoder.encode(text).length; }

/** What is left of a line in which carriage returns went back to its beginning, as progress bars do. */
function overwritten(line) {
    const text = line.endsWith("\r") ? line.slice(0, -1) : line;
    return text.slice(text.lastIndexOf("\r") + 1);
}

/** The text of an event of the output stream. */
function eventText(data) {
    if (data.text !== undefined) return data.text;
    return new TextDecoder().decode(Uint8Array.from(atob(data.base64), (char) => char.charCodeAt(0)));
}
