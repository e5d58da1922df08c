// Overview: how the daemon is, its link to the control plane, and what it uses.

sections.push({
    id: "overview", title: "Overview", icon: "M2 9h3l2-6 3 10 2-4h2",
    show({ root, signal }) {
        const health = h("div", { class: "panel-body" });
        const link = h("div", { class: "panel-body" });
        const about = h("div", { class: "panel-body" });
        const plots = usagePlots();
        root.append(
            h("div", { class: "bar" }, h("h1", {}, "Overview"), h("span", { class: "spacer" }),
                button("End this session", () => attempt(endSession), { id: "end-session" })),
            h("div", { class: "cards" },
                h("section", { class: "panel", id: "health" }, h("h2", {}, "Health"), health),
                h("section", { class: "panel", id: "link" }, h("h2", {}, "Control plane"), link),
                h("section", { class: "panel", id: "about" }, h("h2", {}, "Daemon"), about)),
            h("div", { class: "plots" }, plots.map((plot) => plot.element)));
        const draw = (value) => {
            replaceIfChanged(health, describeHealth(value.health));
            replaceIfChanged(link, describeLink(value.link));
            replaceIfChanged(about, describeDaemon(value));
            for (const plot of plots) plot.draw(value.usage.samples);
        };
        if (overview) draw(overview);
        else health.append(h("p", { class: "soft" }, "Asking the daemon…"));
        overviewListeners.add(draw);
        signal.addEventListener("abort", () => overviewListeners.delete(draw));
    },
});

/** The cookie opens nothing from then on, wherever it was copied to. */
async function endSession() {
    await request("DELETE", "api/v0/ui/session");
    connection.refused();
}

function usagePlots() {
    return [
        new Plot({ title: "Memory (resident)", value: (s) => s.rss_bytes, format: formatBytes, least: 16 << 20 }),
        new Plot({ title: "CPU, of one core", value: (s) => s.cpu_percent, format: (n) => `${n.toFixed(1)} %`, least: 5 }),
        new Plot({ title: "Connections", value: (s) => s.connections, format: (n) => String(Math.round(n)), least: 4 }),
    ];
}

/** Keeps what is there, and a person's selection in it, when it would look the same. */
function replaceIfChanged(parent, child) {
    if (parent.firstElementChild?.isEqualNode(child) && parent.childElementCount === 1) return;
    parent.replaceChildren(child);
}

function describeHealth({ status, reasons }) {
    const good = status === "ok" && reasons.length === 0;
    return h("div", { class: "stack" },
        h("p", { class: `big ${status === "ok" ? "good" : "warn"}` }, status === "ok" ? "Healthy" : "Degraded"),
        reasons.length > 0 && h("ul", { class: "plain" }, reasons.map((reason) => h("li", {}, reason))),
        good && h("p", { class: "soft" }, "Nothing to report."));
}

function describeLink(link) {
    if (!link) {
        return h("div", { class: "stack" }, h("p", { class: "big" }, "Standalone"),
            h("p", { class: "soft" }, "No control plane is configured (--agent-url)."));
    }
    const kinds = { connected: "good", connecting: "warn", refused: "bad", stopped: "bad" };
    const names = { connected: "Connected", connecting: "Connecting", refused: "Refused", stopped: "Stopped" };
    const since = link.since ? new Date(link.since) : null;
    return h("div", { class: "stack" }, h("p", { class: `big ${kinds[link.state]}` }, names[link.state] || link.state),
        link.problem && h("p", { class: "bad" }, link.problem),
        facts([["Address", h("code", {}, link.address)], ["Since", since && formatDate(since)],
            ["Attempts", link.state === "connected" ? null : String(link.attempts)],
            ["Boundary batches", `${link.boundary_batches_queued} queued`]]));
}

function describeDaemon(value) {
    const started = new Date(value.started_at);
    const uptime = (Date.now() - started) / 1000;
    return facts([["Version", value.version], ["Host", value.hostname], ["Uptime", formatDuration(Math.floor(uptime / 5) * 5)],
        ["Started", formatDate(started)], ["Processes", `${value.processes.running} running, ${value.processes.known} known`],
        ["Process id", String(value.pid)], ["Commands start in", h("code", {}, session.directory)]]);
}

function facts(rows) {
    return h("dl", { class: "facts" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
