// Changes: what differs from the last commit in the repositories that are watched, as it changes.

sections.push({
    id: "changes", title: "Changes", icon: "M5 3v10M5 3a1 1 0 100-.1M5 13a1 1 0 100-.1M11 5a1 1 0 100-.1M11 6c0 3-6 2-6 5",
    show(view) { new ChangesSection(view); },
});

class ChangesSection {
    constructor({ root, signal }) {
        this.signal = signal;
        this.repositories = new Map();
        this.opened = new Map();
        this.status = h("span", { class: "soft", role: "status" });
        this.list = h("div", { class: "stack" });
        root.append(h("div", { class: "bar" }, h("h1", {}, "Changes"), mayChange() ? this.pathForm() : this.chatChoice(),
            button("Look again", () => this.socket?.readyState === WebSocket.OPEN && this.socket.send('{"type":"refresh"}')), this.status), this.list);
        signal.addEventListener("abort", () => this.socket?.close());
        this.draw();
        if (mayChange()) this.watchPaths();
    }

    /** The watcher shows the repositories of a chat's working directories, so the page has a chat of its own. */
    pathForm() {
        this.paths = kept.get("changes.paths", [session.directory]);
        const path = h("input", { type: "text", value: "", placeholder: "Directory to watch", "aria-label": "Directory to watch", spellcheck: "false" });
        return h("form", { class: "actions", onsubmit: (event) => {
            event.preventDefault();
            if (path.value === "" || this.paths.includes(path.value)) return;
            attempt(async () => {
                await this.touch(path.value);
                this.paths.push(path.value);
                kept.set("changes.paths", this.paths);
                path.value = "";
                this.draw();
            });
        } }, path, h("button", { type: "submit" }, "Watch"));
    }

    /** A read-only session starts nothing, so it looks at what others' chats touched. */
    chatChoice() {
        const choice = h("select", { "aria-label": "Chat", onchange: () => { this.repositories.clear(); this.connect(choice.value); } });
        poll(10000, this.signal, async () => {
            const { processes } = await getJSON("api/v0/processes/list?limit=1000");
            const chats = [...new Set(processes.map((process) => process.chat_id).filter(Boolean))];
            const fresh = chats.filter((chat) => ![...choice.options].some((option) => option.value === chat));
            choice.append(...fresh.map((chat) => h("option", { value: chat }, `chat ${chat.slice(0, 8)}`)));
            if (!this.chat && choice.value) this.connect(choice.value);
            this.draw();
        });
        return choice;
    }

    async watchPaths() {
        this.connect(pageChat());
        for (const path of this.paths) await this.touch(path).catch((error) => { if (path !== session.directory) showError(error); });
    }

    /** A command of the chat makes its directory known. */
    async touch(path) {
        await postJSON("api/v0/processes/start", { command: "true # the page watches this directory", workdir: path, background: true }, { headers: { "Coder-Chat-Id": pageChat() } });
    }

    connect(chat, delay = 1000) {
        const old = this.socket;
        this.chat = chat;
        this.socket = null;
        old?.close();
        const socket = this.socket = new WebSocket(socketURL(`api/v0/git/watch?chat_id=${chat}`));
        socket.addEventListener("open", () => { delay = 1000; setText(this.status, "Watching"); });
        socket.addEventListener("message", (event) => this.take(JSON.parse(event.data)));
        socket.addEventListener("close", async () => {
            if (this.signal.aborted || this.socket !== socket) return;
            setText(this.status, "Not connected; trying again…");
            await pause(delay, this.signal).catch(() => {});
            await connection.ready();
            if (!this.signal.aborted && this.socket === socket) this.connect(chat, Math.min(delay * 2, 15000));
        });
    }

    take(message) {
        if (message.type === "error") return showBanner("error", message.message, { bad: true });
        for (const repository of message.repositories || []) {
            if (repository.removed) this.repositories.delete(repository.repo_root);
            else this.repositories.set(repository.repo_root, repository);
        }
        setText(this.status, `Watching; looked at ${formatClock(new Date(message.scanned_at))}`);
        this.draw();
        return undefined;
    }

    draw() {
        if (this.repositories.size === 0) {
            this.list.replaceChildren(empty(mayChange() ? `No repository yet in ${this.paths.join(", ")}. Name a directory in one, and its changes appear here.`
                : "No repository is watched. A read-only session shows those in which a chat has started a process."));
            return;
        }
        const repositories = [...this.repositories.values()].sort((a, b) => a.repo_root.localeCompare(b.repo_root));
        this.list.replaceChildren(...repositories.map((repository) => this.repository(repository)));
    }

    repository({ repo_root: root, branch, remote_origin: origin, unified_diff: diff = "" }) {
        const { files, notes } = parseDiff(diff);
        const sum = (name) => files.reduce((total, file) => total + file[name], 0);
        return h("section", { class: "panel" },
            h("div", { class: "panel-head" }, h("h2", {}, root.split("/").pop() || "/"), h("code", { class: "soft" }, root), h("span", {}, branch || "detached HEAD"),
                origin && h("span", { class: "soft" }, origin), h("span", { class: "spacer" }), h("span", {}, formatCount(files.length, "file")),
                h("span", { class: "good" }, `+${sum("added")}`), h("span", { class: "bad" }, `−${sum("removed")}`)),
            notes.map((note) => h("p", { class: "panel-body soft" }, note)),
            files.length === 0 && notes.length === 0 ? empty("No changes since the last commit.")
                : files.slice(0, 500).map((file) => diffFile(file, `${root} ${file.name}`, this.opened)),
            files.length > 500 && h("p", { class: "panel-body soft" }, `${files.length - 500} more files are not shown.`));
    }
}

/** The page's chat, one for a tab's life. */
function pageChat() {
    try {
        const chat = sessionStorage.getItem("workspace-agent.chat") || randomUUID();
        sessionStorage.setItem("workspace-agent.chat", chat);
        return chat;
    } catch {
        return (pageChat.chat ??= randomUUID());
    }
}
