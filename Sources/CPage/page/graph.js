// A graph from left to right: what a node depends on is to its left.

const nodeWidth = 168, nodeHeight = 44, layerGap = 64, nodeGap = 14, graphMargin = 16;

/**
 * Places nodes in layers. `nodes` are `{name, dependencies: [name]}`; edges of a cycle that lead back are left out of
 * the layering, so that it ends whatever the graph is. Gives `{places: Map(name → {x, y}), back: Set("a b"), width, height}`.
 */
function layoutGraph(nodes) {
    const byName = new Map(nodes.map((node) => [node.name, node]));
    const back = backEdges(byName);
    const layers = layersOf(byName, back);
    orderLayers(layers, byName);
    const places = new Map();
    const tallest = Math.max(1, ...layers.map((layer) => layer.length));
    const height = tallest * (nodeHeight + nodeGap) - nodeGap;
    layers.forEach((layer, index) => {
        const top = (height - (layer.length * (nodeHeight + nodeGap) - nodeGap)) / 2;
        layer.forEach((name, i) => places.set(name, {
            x: graphMargin + index * (nodeWidth + layerGap), y: graphMargin + top + i * (nodeHeight + nodeGap),
        }));
    });
    const width = 2 * graphMargin + layers.length * (nodeWidth + layerGap) - layerGap;
    return { places, back, width: Math.max(width, 0), height: height + 2 * graphMargin };
}

/** The edges that close a cycle: those that lead to a node that is still being looked at. */
function backEdges(byName) {
    const state = new Map(), back = new Set();
    for (const root of byName.keys()) {
        // No recursion: a chain may be as long as the graph.
        const path = [[root, 0]];
        while (path.length > 0) {
            const frame = path.at(-1), [name, next] = frame;
            if (next === 0 && state.get(name) === "done") { path.pop(); continue; }
            state.set(name, "open");
            const dependency = byName.get(name).dependencies[next];
            if (dependency === undefined) { state.set(name, "done"); path.pop(); continue; }
            frame[1]++;
            if (!byName.has(dependency)) continue;
            if (state.get(dependency) === "open") back.add(`${name} ${dependency}`);
            else if (!state.has(dependency)) path.push([dependency, 0]);
        }
    }
    return back;
}

/** A node is one layer behind the last of what it depends on. */
function layersOf(byName, back) {
    const layer = new Map([...byName.keys()].map((name) => [name, 0]));
    for (let round = 0, changed = true; changed && round <= byName.size; round++) {
        changed = false;
        for (const { name, dependencies } of byName.values()) {
            for (const dependency of dependencies) {
                if (!byName.has(dependency) || back.has(`${name} ${dependency}`)) continue;
                if (layer.get(dependency) < layer.get(name)) continue;
                layer.set(name, layer.get(dependency) + 1);
                changed = true;
            }
        }
    }
    const layers = [];
    for (const [name, index] of layer) (layers[index] ??= []).push(name);
    return Array.from(layers, (names) => names || []);
}

/** Fewer crossings: each node goes to the middle of its neighbours, a few times from either side. */
function orderLayers(layers, byName) {
    const users = new Map();
    for (const { name, dependencies } of byName.values()) {
        for (const dependency of dependencies) users.set(dependency, [...(users.get(dependency) || []), name]);
    }
    const place = new Map();
    const note = () => layers.forEach((layer) => layer.forEach((name, i) => place.set(name, (i + 0.5) / layer.length)));
    note();
    for (let round = 0; round < 6; round++) {
        const neighbours = (name) => (round % 2 === 0 ? byName.get(name).dependencies : users.get(name) || []);
        for (const layer of round % 2 === 0 ? layers : [...layers].reverse()) {
            const middle = new Map(layer.map((name) => {
                const known = neighbours(name).filter((other) => place.has(other));
                return [name, known.length ? known.reduce((sum, other) => sum + place.get(other), 0) / known.length : place.get(name)];
            }));
            layer.sort((a, b) => middle.get(a) - middle.get(b));
            note();
        }
    }
}

/** The path from what is depended on (its right side) to the node that waits for it (its left side). */
function edgePath(from, to) {
    const x1 = from.x + nodeWidth, y1 = from.y + nodeHeight / 2, x2 = to.x - 3, y2 = to.y + nodeHeight / 2;
    const bend = Math.max(30, Math.abs(x2 - x1) / 2);
    return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
