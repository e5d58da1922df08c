// Log: the daemon's own, as it is written.

const logLevels = ["trace", "debug", "info", "notice", "warning", "error", "critical"];
const shownLogLines = 2000;

sections.push({
    id: "log", title: "Log", icon: "M3 4h10M3 8h10M3 12h6",
    show(view) { new LogSection(view); },
});

class LogSection {
    constructor({ root, signal }) {
        this.signal = signal;
        this.waiting = [];
        this.paused = false;
        this.text = "";
        this.level = kept.get("log.level", "info");
        this.search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the log",
            oninput: debounced(80, () => { this.text = this.search.value.toLowerCase(); this.filter(); }) });
        this.pauseButton = button("Pause", () => this.pause(!this.paused), { "aria-pressed": "false" });
        this.state = h("span", { class: "soft", role: "status" });
        this.list = h("div", { class: "panel log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Log" });
        const levels = select(logLevels.map((level) => [level, `${level} and above`]), this.level, (event) => {
            this.level = event.target.value;
            kept.set("log.level", this.level);
            this.start();
        }, { "aria-label": "Least level" });
        root.append(h("div", { class: "bar" }, h("h1", {}, "Log"), levels, this.search, this.pauseButton,
            button("Clear", () => this.list.replaceChildren()), this.state), this.list);
        this.start();
    }

    async start() {
        this.abort?.abort();
        this.abort = new AbortController();
        const signal = AbortSignal.any([this.abort.signal, this.signal]);
        this.waiting = [];
        const path = `api/v0/logs/stream?${query({ level: this.level, lines: 500 })}`;
        try {
            // A stream that begins again begins with the lines that are kept, so that none is missing.
            await follow(path, signal, (name, data) => this.take(name, data), () => { this.waiting = []; this.list.replaceChildren(); });
        } catch (error) { showError(error); }
    }

    take(name, data) {
        this.waiting.push([name, data]);
        if (this.waiting.length > shownLogLines) this.waiting.shift();
        if (this.paused) setText(this.state, `${formatCount(this.waiting.length, "new line")}`);
        else this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
    }

    pause(on) {
        this.paused = on;
        this.pauseButton.setAttribute("aria-pressed", on);
        setText(this.pauseButton, on ? "Go on" : "Pause");
        if (!on) { setText(this.state, ""); this.draw(); }
    }

    draw() {
        if (this.paused) return;
        keepAtEnd(this.list, () => {
            this.list.append(...this.waiting.splice(0).map(([name, data]) =>
                (name === "dropped" ? h("div", { class: "gap" }, `${formatCount(data.lines, "line")} left out: the page was too slow`) : this.entry(data))));
            while (this.list.childElementCount > shownLogLines) this.list.firstChild.remove();
        });
    }

    entry({ time, level, message, metadata }) {
        const extra = Object.entries(metadata || {}).map(([name, value]) => ` ${name}=${value}`).join("");
        const entry = h("div", { class: `entry level-${level}` }, h("time", { datetime: time, title: time }, formatClock(new Date(time), true)),
            h("span", { class: "level" }, level), h("span", {}, message, h("span", { class: "meta-text" }, extra)));
        entry.search = `${level} ${message}${extra}`.toLowerCase();
        entry.hidden = !entry.search.includes(this.text);
        return entry;
    }

    filter() { for (const entry of this.list.children) if (entry.search) entry.hidden = !entry.search.includes(this.text); }
}
