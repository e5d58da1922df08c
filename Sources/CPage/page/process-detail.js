// One process: what it is, its output as it comes, or its terminal.

const processSignals = [["terminate", "SIGTERM"], ["SIGINT", "SIGINT"], ["SIGHUP", "SIGHUP"], ["SIGQUIT", "SIGQUIT"],
    ["SIGUSR1", "SIGUSR1"], ["SIGUSR2", "SIGUSR2"], ["SIGSTOP", "SIGSTOP"], ["SIGCONT", "SIGCONT"], ["kill", "SIGKILL"]];
const earlierBytes = 256 << 10;

class ProcessDetail {
    constructor(pane, id, sectionSignal) {
        this.id = id;
        this.pane = pane;
        this.abort = new AbortController();
        this.signal = AbortSignal.any([this.abort.signal, sectionSignal]);
        sectionSignal.addEventListener("abort", () => this.close(), { signal: this.abort.signal });
        this.command = h("pre", { class: "command" });
        this.facts = h("div", { class: "meta", role: "status" });
        this.controls = h("div", { class: "actions" });
        this.body = h("div", { class: "fill" });
        pane.append(h("div", { class: "panel-head" }, linkButton("Back", "#processes", { class: "button narrow-only" }),
            this.command, this.controls), this.facts, this.body);
        this.load();
    }

    close() {
        this.abort.abort();
        this.terminal?.close();
        this.socket?.close();
    }

    async load() {
        try {
            const output = await getJSON(processPath(this.id, "output"), { signal: this.signal });
            this.total = output.total_bytes;
            this.drawControls(output);
            if (output.pty && output.running && mayChange()) await this.attach();
            else await this.stream(output);
        } catch (error) {
            if (this.signal.aborted) return;
            if (error.status === 404) this.body.replaceChildren(empty("The daemon no longer knows this process. It forgets one five minutes after its end, and all at a restart."));
            else if (error instanceof AwayError) { await connection.ready(); if (!this.signal.aborted) this.load(); }
            else showError(error);
        }
    }

    /** What the list says, each time it is asked. */
    info(process) {
        if (!process) return;
        const [kind, state] = processState(process);
        setText(this.command, process.command);
        const end = process.running ? Date.now() / 1000 : process.exited_at_unix;
        const parts = [["", h("b", { class: kind }, state)], ["pid ", process.pid], ["in ", process.workdir],
            ["started ", formatDate(new Date(process.started_at_unix * 1000))],
            [process.running ? "for " : "took ", formatDuration(Math.max(0, end - process.started_at_unix))],
            ["wrote ", formatBytes(process.total_bytes)],
            ["CPU ", process.running ? null : formatDuration((process.user_cpu_ms + process.system_cpu_ms) / 1000)],
            ["peak memory ", process.max_rss_bytes ? formatBytes(process.max_rss_bytes) : null],
            ["", process.lingering ? "something it started still holds its output" : null]];
        this.facts.replaceChildren(...parts.filter(([, value]) => value !== null && value !== undefined)
            .map(([name, value]) => h("span", {}, name, value)));
        if (!process.running) this.ended();
    }

    ended() { for (const control of this.controls.querySelectorAll(".for-running")) control.remove(); }

    drawControls(output) {
        this.controls.replaceChildren();
        if (mayChange() && output.running) {
            const signals = select(processSignals, "terminate", () => {}, { "aria-label": "Signal", class: "for-running" });
            this.controls.append(signals, button("Send signal", () => attempt(() =>
                postJSON(processPath(this.id, "signal"), { signal: signals.value })), { class: "for-running" }));
        }
        this.controls.append(linkButton("Raw", processPath(this.id, "output/raw"), { target: "_blank", title: "All bytes that are kept of the output" }));
    }

    // --- Output ----------------------------------------------------------------------------------

    async stream(output) {
        const start = Math.max(0, output.total_bytes - (shownBytes >> 1));
        this.view = new OutputView("Output", () => this.drawEarlier());
        this.earlier = h("div", { class: "meta", hidden: true });
        this.body.replaceChildren(this.earlier, this.view.element, ...(output.stdin && output.running && mayChange() ? [this.inputLine()] : []));
        this.view.blocks.firstElementChild.offset = start;
        await follow(processPath(this.id, `output/stream?offset=${start}`), this.signal, (name, data) => this.take(name, data));
    }

    take(name, data) {
        if (name === "output") this.view.append(eventText(data), data.offset);
        if (name === "gone") this.view.note(`${formatBytes(data.bytes)} are no longer kept`);
        if (name !== "exit") return undefined;
        const [, state] = processState(data);
        this.view.note(data.total_bytes === 0 ? `No output. ${state}` : state);
        this.ended();
        this.body.querySelector(".input-line")?.remove();
        return "end";
    }

    drawEarlier() {
        const offset = this.view.firstOffset;
        if (this.earlier.offset === offset) return;
        this.earlier.offset = offset;
        this.earlier.hidden = offset === 0;
        this.earlier.replaceChildren(h("span", {}, `${formatBytes(offset)} before this are not shown.`),
            button("Show earlier output", () => attempt(() => this.showEarlier())));
    }

    /** A page of its own for what is before: the live view stays bounded. */
    async showEarlier() {
        const end = this.view.firstOffset;
        const start = Math.max(0, end - earlierBytes);
        const response = await request("GET", processPath(this.id, `output/raw?offset=${start}&limit=${end - start}`), { signal: this.signal });
        const text = new TextDecoder().decode(await response.arrayBuffer());
        this.abort.abort();
        this.abort = new AbortController();
        this.signal = this.abort.signal;
        this.view = new OutputView("Earlier output", () => this.drawEarlier());
        this.view.append(text, start);
        const back = button("Follow the output", () => { this.abort.abort(); this.abort = new AbortController(); this.signal = this.abort.signal; this.load(); });
        this.earlier = h("div", { class: "meta" });
        this.body.replaceChildren(h("div", { class: "panel-head" }, `Bytes ${start.toLocaleString("en")} to ${end.toLocaleString("en")}`, back), this.earlier, this.view.element);
    }

    /** A line of input for a process with a pipe. */
    inputLine() {
        const line = h("input", { type: "text", "aria-label": "Input", placeholder: "A line of input", autocomplete: "off", spellcheck: "false" });
        let socket = null;
        // Only who writes attaches: each that does gets all output a second time.
        const send = async (data) => {
            if (!socket || socket.readyState > WebSocket.OPEN) {
                socket = this.socket = new WebSocket(socketURL(processPath(this.id, `attach?offset=${this.total}`)));
                socket.binaryType = "arraybuffer";
            }
            if (socket.readyState !== WebSocket.OPEN) await new Promise((resolve) => socket.addEventListener("open", resolve));
            socket.send(data);
        };
        const form = h("form", { class: "panel-head input-line", onsubmit: (event) => {
            event.preventDefault();
            send(encoder.encode(line.value + "\n"));
            line.value = "";
        } }, line, h("button", { type: "submit" }, "Send"), button("End of input", () => send(JSON.stringify({ eof: true }))));
        line.style.flex = "1";
        return form;
    }

    // --- Terminal --------------------------------------------------------------------------------

    async attach() {
        this.title = h("span", { class: "soft" });
        this.terminal = new TerminalView({
            send: (text) => { if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(encoder.encode(text)); },
            onSize: (rows, cols) => this.resize(rows, cols),
            onTitle: (text) => setText(this.title, text),
        });
        this.terminal.replaying = !startedHere.has(this.id);
        this.state = h("div", { class: "meta", role: "status", hidden: true });
        this.body.replaceChildren(this.state, this.terminal.element);
        this.terminal.element.prepend(h("span", { class: "hide-visually" }, this.title));
        this.terminal.fit();
        this.terminal.input.focus();
        this.connect(startedHere.has(this.id) ? 0 : null, 1000);
    }

    resize(rows, cols) {
        if (this.attached && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ resize: { rows, cols } }));
    }

    /** `offset`: where to go on after a break; null at first. */
    connect(offset, delay) {
        this.attached = false;
        const rest = offset === null ? "attach" : `attach?offset=${offset}`;
        const socket = this.socket = new WebSocket(socketURL(processPath(this.id, rest)));
        socket.binaryType = "arraybuffer";
        socket.addEventListener("message", ({ data }) => {
            if (typeof data === "string") return this.control(JSON.parse(data));
            delay = 1000;
            this.terminal.feed(new Uint8Array(data));
            this.offset += data.byteLength;
            if (this.offset >= this.total) this.terminal.replaying = false;
        });
        socket.addEventListener("close", async () => {
            if (this.signal.aborted || this.finished) return;
            this.state.hidden = false;
            setText(this.state, "The terminal's connection broke. Trying again…");
            await pause(delay, this.signal).catch(() => {});
            await connection.ready();
            if (!this.signal.aborted) this.connect(this.offset ?? offset, Math.min(delay * 2, 15000));
        });
    }

    control(message) {
        if (message.attached) {
            this.attached = true;
            this.offset = message.attached.offset;
            if (this.offset >= this.total) this.terminal.replaying = false;
            this.state.hidden = true;
            const { rows, columns } = this.terminal.terminal.grid;
            this.resize(rows, columns);
        }
        if (message.gone) this.offset += message.gone.bytes;
        if (message.exit) {
            this.finished = true;
            this.state.hidden = false;
            setText(this.state, `The process has ended: ${processState(message.exit)[1]}.`);
            this.ended();
        }
    }
}
