// Small plots of the last 15 minutes.

const plotSeconds = 900;

/** A plot of `value(sample)` over time, with its newest value in words. */
class Plot {
    constructor({ title, value, format, least }) {
        Object.assign(this, { value, format, least });
        this.now = h("strong", { class: "plot-now" });
        this.top = h("span", { class: "soft" });
        this.area = svg("path", { class: "plot-area" });
        this.path = svg("path", { class: "plot-line" });
        this.hover = svg("line", { class: "plot-hover", y1: 0, y2: 100, visibility: "hidden" });
        this.picture = svg("svg", { viewBox: `0 0 ${plotSeconds} 100`, preserveAspectRatio: "none", role: "img" },
            ...[0, 50, 100].map((y) => svg("line", { class: "plot-grid", x1: 0, x2: plotSeconds, y1: y, y2: y })),
            this.area, this.path, this.hover);
        this.picture.addEventListener("pointermove", (event) => this.point(event));
        this.picture.addEventListener("pointerleave", () => { this.pointed = null; this.draw(this.samples); });
        this.title = title;
        this.element = h("figure", { class: "plot panel" },
            h("figcaption", {}, h("span", {}, title), this.now),
            h("div", { class: "plot-body" }, this.picture),
            h("div", { class: "plot-scale soft" }, h("span", {}, "15 min ago"), this.top, h("span", {}, "now")));
    }

    draw(samples) {
        this.samples = samples;
        const end = Date.now() / 1000;
        const points = samples.map((s) => [plotSeconds - (end - s.time), this.value(s), s]).filter(([x]) => x >= 0);
        if (points.length === 0) return setText(this.now, "no samples yet");
        const most = Math.max(...points.map(([, y]) => y));
        const scale = niceCeiling(Math.max(most, this.least));
        const place = ([x, y]) => `${x.toFixed(1)} ${(100 - (y / scale) * 96).toFixed(2)}`;
        // A gap is when no page was open.
        let path = "", area = "", previous = null;
        for (const point of points) {
            const joined = previous && point[0] - previous[0] < 30;
            path += `${joined ? "L" : "M"}${place(point)}`;
            if (!joined && previous) area += `L${previous[0].toFixed(1)} 100Z`;
            area += joined ? `L${place(point)}` : `M${point[0].toFixed(1)} 100L${place(point)}`;
            previous = point;
        }
        this.path.setAttribute("d", path);
        this.area.setAttribute("d", `${area}L${previous[0].toFixed(1)} 100Z`);
        const shown = this.pointed || points.at(-1)[2];
        setText(this.now, this.format(this.value(shown)) + (this.pointed ? ` at ${formatClock(new Date(shown.time * 1000))}` : ""));
        setText(this.top, `top ${this.format(scale)}, highest ${this.format(most)}`);
        this.hover.setAttribute("visibility", this.pointed ? "visible" : "hidden");
        this.picture.setAttribute("aria-label", `${this.title} over the last 15 minutes: now ${this.format(points.at(-1)[1])}, highest ${this.format(most)}`);
    }

    point(event) {
        if (!this.samples?.length) return;
        const box = this.picture.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * plotSeconds;
        const time = Date.now() / 1000 - plotSeconds + x;
        this.pointed = this.samples.reduce((best, s) => (Math.abs(s.time - time) < Math.abs(best.time - time) ? s : best));
        for (const end of ["x1", "x2"]) this.hover.setAttribute(end, x);
        this.draw(this.samples);
    }
}

/** The next of 1, 2, 2.5, 5 times a power of ten; of bytes, of a power of two. */
function niceCeiling(value) {
    const base = value >= 1 << 20 ? 1 << 20 : 1;
    const scaled = value / base;
    const power = 10 ** Math.floor(Math.log10(scaled));
    for (const step of [1, 2, 2.5, 4, 5, 8, 10]) if (step * power >= scaled) return step * power * base;
    return value;
}
