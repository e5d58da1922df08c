// Scripts: those of the workspace's template with their last runs, and what they wrote.

const runWords = { ok: "ok", exit_failure: "failed", timed_out: "timed out", pipes_left_open: "left its output open" };

sections.push({
    id: "scripts", title: "Scripts", icon: "M4 2h6l3 3v9H4zM10 2v3h3M6 8h4M6 11h4",
    show(view) {
        const { root, signal } = view;
        const list = h("div", { class: "scroll" });
        const pane = h("div", { class: "panel detail-pane" });
        const split = h("div", { class: "split stacked" }, h("div", { class: "panel master" }, list), pane);
        root.append(h("div", { class: "bar" }, h("h1", {}, "Scripts")), split);
        let chosen = view.args[0], before = "", log = null;
        const open = (id) => {
            log?.abort();
            log = new AbortController();
            chosen = id;
            before = "";
            pane.replaceChildren();
            if (id) showScriptLog(id, pane, AbortSignal.any([signal, log.signal]));
            else pane.append(empty("Choose a script to see its log."));
        };
        view.update = ([id]) => { open(id); load(); };
        const load = async () => {
            const text = await (await request("GET", "api/v0/scripts")).text();
            if (text === before) return;
            before = text;
            const { scripts } = JSON.parse(text);
            list.replaceChildren(...(scripts.length === 0 ? [empty("No scripts. They come with the manifest from the control plane.")]
                : scripts.map((script) => scriptCard(script, script.id === chosen))));
        };
        open(chosen);
        poll(2000, signal, load);
    },
});

function scriptCard(script, chosen) {
    const when = [script.runs_on.length > 0 && `at ${script.runs_on.join(" and ")}`, script.cron && `cron ${script.cron}`,
        script.timeout_seconds > 0 && `at most ${formatDuration(script.timeout_seconds)}`].filter(Boolean).join(" · ");
    const last = script.runs[0];
    const kind = script.running ? "info" : !last ? "" : last.status === "ok" ? "good" : "bad";
    return h("article", { class: "script", "aria-current": chosen ? "true" : null },
        h("a", { class: "script-head", href: hashOf("scripts", script.id) }, h("span", { class: `dot ${kind}`, "aria-hidden": "true" }), h("b", {}, script.name),
            h("span", { class: "spacer" }), h("span", { class: "soft" }, script.running ? "running" : last ? runWords[last.status] || last.status : "has not run")),
        h("p", { class: "soft" }, when || "never by itself"),
        script.runs.length > 0 && h("table", { class: "timeline runs" }, h("tbody", {}, script.runs.slice(0, 5).map(scriptRun))));
}

function scriptRun(run) {
    const started = new Date(run.started_at);
    return h("tr", {}, h("td", {}, formatDate(started)), h("td", {}, run.stage),
        h("td", { class: run.status === "ok" ? "good" : "bad" }, `${runWords[run.status] || run.status}${run.exit_code !== 0 ? ` (${run.exit_code})` : ""}`),
        h("td", { class: "soft" }, formatDuration((new Date(run.ended_at) - started) / 1000)));
}

/** The end of the script's log, read again while it is shown. */
function showScriptLog(id, pane, signal) {
    let view = null, before = null;
    poll(2000, signal, async () => {
        let text;
        try {
            text = await (await request("GET", `api/v0/scripts/${encodeURIComponent(id)}/log`, { signal })).text();
        } catch (error) {
            if (error.status !== 404) throw error;
            pane.replaceChildren(empty(describeError(error)));
            return;
        }
        if (text === before) return;
        // What was shown is its beginning, unless the log was cut at its front.
        if (view && before && text.startsWith(before)) view.append(text.slice(before.length), 0);
        else {
            view = new OutputView("Log");
            pane.replaceChildren(h("h2", {}, "Log"), text === "" ? empty("The log is empty.") : view.element);
            view.append(text, 0);
        }
        before = text;
    });
}
