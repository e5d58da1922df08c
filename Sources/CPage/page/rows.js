// A long list, of which only the rows in sight are in the page.

class RowList {
    /** `fill(element, item)` writes a row, `href(item)` is where it leads; items have an `id`. */
    constructor({ label, height, fill, href }) {
        Object.assign(this, { height, fill, href });
        this.items = [];
        this.shown = new Map();
        this.room = h("div", { class: "height", role: "list", "aria-label": label });
        this.element = h("div", { class: "rows" }, this.room);
        this.element.addEventListener("scroll", () => this.draw(), { passive: true });
        this.element.addEventListener("keydown", (event) => this.keyDown(event));
        new ResizeObserver(() => this.draw()).observe(this.element);
    }

    set(items, chosen = this.chosen) {
        this.items = items;
        this.chosen = chosen;
        this.room.style.height = `${items.length * this.height}px`;
        this.draw();
    }

    draw() {
        const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 6);
        const last = Math.min(this.items.length, first + Math.ceil(this.element.clientHeight / this.height) + 12);
        const wanted = new Map(this.items.slice(first, last).map((item, i) => [item.id, [item, first + i]]));
        for (const [id, row] of this.shown) {
            if (wanted.has(id)) continue;
            row.parentElement.remove();
            this.shown.delete(id);
        }
        for (const [id, [item, index]] of wanted) this.place(this.shown.get(id) || this.make(id), item, index);
    }

    make(id) {
        const row = h("a", { class: "row", style: { height: `${this.height}px` } });
        this.room.append(h("div", { role: "listitem" }, row));
        this.shown.set(id, row);
        return row;
    }

    place(row, item, index) {
        row.style.top = `${index * this.height}px`;
        row.parentElement.setAttribute("aria-setsize", this.items.length);
        row.parentElement.setAttribute("aria-posinset", index + 1);
        row.dataset.index = index;
        row.href = this.href(item);
        if (item.id === this.chosen) row.setAttribute("aria-current", "true");
        else row.removeAttribute("aria-current");
        this.fill(row, item);
    }

    /** Arrows, Page Up and Down, Home and End go from row to row. */
    keyDown(event) {
        const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
        const last = this.items.length - 1;
        const from = Number(document.activeElement.dataset?.index ?? 0);
        const to = { ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + page, PageUp: from - page, Home: 0, End: last }[event.key];
        if (to === undefined || last < 0) return;
        event.preventDefault();
        const index = Math.max(0, Math.min(last, to));
        const top = index * this.height;
        if (top < this.element.scrollTop) this.element.scrollTop = top;
        const under = top + this.height - this.element.clientHeight;
        if (under > this.element.scrollTop) this.element.scrollTop = under;
        this.draw();
        this.shown.get(this.items[index].id)?.focus();
    }
}
