// Processes: the list, and beside it one of them or the form that starts one.

const processPath = (id, rest) => `api/v0/processes/${encodeURIComponent(id)}/${rest}`;

sections.push({
    id: "processes", title: "Processes", icon: "M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10.5h3",
    show(view) { new ProcessesSection(view); },
});

class ProcessesSection {
    constructor(view) {
        this.view = view;
        this.processes = [];
        this.filter = kept.get("processes.filter", "all");
        this.text = "";
        this.count = h("span", { class: "soft", role: "status" });
        this.search = h("input", { type: "search", placeholder: "Filter by command or directory", "aria-label": "Filter processes",
            oninput: debounced(80, () => { this.text = this.search.value.toLowerCase(); this.draw(); }) });
        this.list = new RowList({ label: "Processes", height: 46, fill: fillProcessRow, href: (p) => hashOf("processes", p.id) });
        this.pane = h("div", { class: "panel detail-pane", id: "process" });
        this.split = h("div", { class: "split" }, h("div", { class: "panel master" }, this.list.element), this.pane);
        view.root.append(this.bar(), this.split);
        view.update = (args) => this.open(args[0]);
        this.open(view.args[0]);
        poll(2000, view.signal, () => this.load());
    }

    bar() {
        const filters = select([["all", "All"], ["running", "Running"], ["ended", "Ended"]], this.filter, (event) => {
            this.filter = event.target.value;
            kept.set("processes.filter", this.filter);
            this.draw();
        }, { "aria-label": "Which processes" });
        return h("div", { class: "bar" }, h("h1", {}, "Processes"), this.search, filters, this.count, h("span", { class: "spacer" }),
            mayChange() && linkButton("Start a process", "#processes/new", { class: "button primary" }));
    }

    async load() {
        this.processes = (await getJSON("api/v0/processes/list?limit=1000")).processes;
        this.draw();
        this.detail?.info?.(this.processes.find((p) => p.id === this.chosen));
        // A long list costs the daemon more, and tells less.
        return this.processes.length > 200 ? 5000 : 2000;
    }

    draw() {
        const items = this.processes.filter((p) =>
            (this.filter === "all" || p.running === (this.filter === "running")) &&
            (this.text === "" || `${p.command} ${p.workdir}`.toLowerCase().includes(this.text)));
        this.list.set(items, this.chosen);
        const running = this.processes.filter((p) => p.running).length;
        setText(this.count, `${items.length} of ${formatCount(this.processes.length, "process", "processes")}, ${running} running`);
    }

    open(id) {
        this.detail?.close();
        this.detail = null;
        this.chosen = id;
        this.split.classList.toggle("detail", !!id);
        this.list.set(this.list.items, id);
        this.pane.replaceChildren();
        if (id === "new" && mayChange()) this.pane.append(startForm());
        else if (id && id !== "new") this.detail = new ProcessDetail(this.pane, id, this.view.signal);
        else this.pane.append(empty("Choose a process to see its output.", mayChange() && " Or start one."));
    }
}

/** A process's state: its colour, in words, and in words with the reason. */
function processState(process) {
    if (process.running) return ["info", "running"];
    const how = process.reason && process.reason !== "exited" ? process.reason.replaceAll("_", " ") : `exit ${process.exit_code}`;
    const signal = process.signal ? ` (${process.signal})` : "";
    return [process.exit_code === 0 ? "good" : "bad", how + signal];
}

function fillProcessRow(row, process) {
    if (!row.firstChild) {
        row.append(h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "title mono" }), h("span", { class: "sub" }));
    }
    const [dot, title, sub] = row.children;
    const [kind, state] = processState(process);
    dot.className = `dot ${kind}`;
    setText(title, process.command.replace(/\s+/g, " ").slice(0, 300));
    setText(sub, [state, formatAgo(process.started_at_unix * 1000), formatBytes(process.total_bytes),
        process.pty ? "terminal" : ""].filter(Boolean).join(" · "));
}

function startForm() {
    const command = h("textarea", { required: true, rows: 3, spellcheck: "false", placeholder: "make test" });
    const workdir = h("input", { type: "text", value: session.directory, spellcheck: "false" });
    const terminal = h("input", { type: "checkbox", checked: true });
    const input = h("input", { type: "checkbox" });
    const form = h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); submit(); } },
        h("h2", {}, "Start a process"),
        field("Command, run by sh -c (Ctrl Enter starts it)", command), field("Directory", workdir),
        h("label", { class: "check" }, terminal, "In a terminal"),
        h("label", { class: "check" }, input, "Without a terminal, but with a standard input to write to"),
        h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Start"), linkButton("Cancel", "#processes")));
    input.addEventListener("change", () => { if (input.checked) terminal.checked = false; });
    terminal.addEventListener("change", () => { if (terminal.checked) input.checked = false; });
    command.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.ctrlKey) form.requestSubmit(); });
    const submit = () => attempt(async () => {
        const body = { command: command.value, workdir: workdir.value || undefined };
        if (terminal.checked) body.pty = { rows: 24, cols: 80 };
        else if (input.checked) body.stdin = true;
        const { id } = await postJSON("api/v0/processes/start", body);
        startedHere.add(id);
        go("processes", id);
    });
    setTimeout(() => command.focus());
    return form;
}

/** Processes that this page started: no answer to their terminal's questions was given before. */
const startedHere = new Set();
