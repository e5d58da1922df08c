// Units: what start-up scripts wait for, as a graph, and what happened when.

sections.push({
    id: "units", title: "Units", icon: "M2 5h4v6H2zM10 2h4v4h-4zM10 10h4v4h-4zM6 8h2M8 4v8M8 4h2M8 12h2",
    show({ root, signal }) {
        const summary = h("span", { class: "soft", role: "status" });
        const graph = h("div", { class: "panel graph", tabindex: 0, "aria-label": "Graph of the units" });
        const timeline = h("div", { class: "panel scroll", tabindex: 0, "aria-label": "Timeline" });
        root.append(h("div", { class: "bar" }, h("h1", {}, "Units"), summary), graph,
            h("h2", {}, "Timeline"), timeline);
        let before = "";
        poll(2000, signal, async () => {
            const text = await (await request("GET", "api/v0/units")).text();
            if (text === before) return;
            before = text;
            const value = JSON.parse(text);
            drawUnits(value.units, graph, summary);
            drawTimeline(value.timeline, timeline);
        });
    },
});

const unitWords = { "": "not registered", pending: "pending", started: "started", completed: "completed" };

function drawUnits(units, parent, summary) {
    const counts = ["completed", "started", "pending"].map((status) =>
        `${units.filter((unit) => unit.status === status).length} ${status}`);
    setText(summary, units.length === 0 ? "" : `${formatCount(units.length, "unit")}: ${counts.join(", ")}`);
    if (units.length === 0) {
        parent.replaceChildren(empty("No unit is registered. “workspace-agent sync start NAME” in a script registers one."));
        return;
    }
    const all = [...units];
    // A unit may wait for one that has not come yet.
    const known = new Set(units.map((unit) => unit.name));
    for (const { dependencies } of units) {
        for (const { name } of dependencies) {
            if (!known.has(name)) { known.add(name); all.push({ name, status: "", ready: false, dependencies: [] }); }
        }
    }
    const layout = layoutGraph(all.map((unit) => ({ name: unit.name, dependencies: unit.dependencies.map((d) => d.name) })));
    parent.replaceChildren(svg("svg", { width: layout.width, height: layout.height, role: "img",
        "aria-label": `${counts.join(", ")}. The same is in the list below the graph.` },
    arrowHead(), ...all.flatMap((unit) => unitEdges(unit, layout)), ...all.map((unit) => unitNode(unit, layout.places.get(unit.name)))),
    unitList(all));
}

function arrowHead() {
    return svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        svg("path", { d: "M0 0L8 4L0 8z" })));
}

function unitEdges(unit, { places, back }) {
    return unit.dependencies.map((dependency) => {
        const kind = back.has(`${unit.name} ${dependency.name}`) ? "cycle" : dependency.satisfied ? "" : "waits";
        return svg("path", { class: `edge ${kind}`, "marker-end": "url(#arrow)",
            d: edgePath(places.get(dependency.name), places.get(unit.name)) });
    });
}

function unitNode(unit, { x, y }) {
    const waits = unit.dependencies.filter((dependency) => !dependency.satisfied).length;
    const words = unitWords[unit.status] + (unit.status === "pending" ? (unit.ready ? ", ready" : `, waits for ${waits}`) : "");
    const name = unit.name.length > 20 ? `${unit.name.slice(0, 19)}…` : unit.name;
    return svg("g", { class: `node ${unit.status || "unknown"}`, transform: `translate(${x} ${y})` },
        titled(`${unit.name}: ${words}`), svg("rect", { width: nodeWidth, height: nodeHeight, rx: 6 }),
        svg("circle", { class: "mark", cx: 15, cy: nodeHeight / 2, r: 4.5 }),
        textAt(28, 19, name), textAt(28, 34, words, "sub"));
}

function titled(text) {
    const title = svg("title");
    title.textContent = text;
    return title;
}

function textAt(x, y, text, kind = "") {
    const element = svg("text", { x, y, class: kind });
    element.textContent = text;
    return element;
}

/** What the graph shows, for a screen reader. */
function unitList(units) {
    return h("ul", { class: "hide-visually" }, units.map((unit) => h("li", {},
        `${unit.name}: ${unitWords[unit.status]}` + (unit.dependencies.length === 0 ? "" : ", depends on " +
            unit.dependencies.map((d) => `${d.name} (${d.satisfied ? "satisfied" : "not satisfied"})`).join(", ")))));
}

function drawTimeline(events, parent) {
    if (events.length === 0) return parent.replaceChildren(empty("Nothing has happened yet."));
    const first = new Date(events[0].time);
    const rows = events.slice(-500).map(({ time, unit, event }) => {
        const date = new Date(time);
        return h("tr", {}, h("td", {}, formatClock(date, true)), h("td", { class: "soft" }, `+${formatDuration((date - first) / 1000)}`),
            h("td", {}, h("b", {}, unit)), h("td", {}, event.replaceAll("_", " ")));
    });
    keepAtEnd(parent, () => parent.replaceChildren(h("table", { class: "timeline" },
        h("thead", {}, h("tr", {}, ["Time", "After", "Unit", "Event"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))));
}
