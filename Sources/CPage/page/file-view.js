// One file: text by parts, images, the first bytes of what is neither, and an editor.

const partBytes = 128 << 10;
const editableBytes = 2 << 20;
const filePath = (route, path, more = {}) => `api/v0/${route}?${query({ path, ...more })}`;

class FileView {
    constructor(pane, path, section, line) {
        Object.assign(this, { pane, path, section, line });
        this.abort = new AbortController();
        this.facts = h("div", { class: "meta" });
        this.controls = h("div", { class: "actions" });
        this.notice = h("div", { role: "alert" });
        this.body = h("div", { class: "fill" });
        pane.append(h("div", { class: "panel-head" }, linkButton("Back", "#files", { class: "button narrow-only" }),
            h("code", { class: "command" }, path), this.controls), this.facts, this.notice, this.body);
        this.load();
    }

    close() { this.abort.abort(); }

    async load() {
        this.editing = false;
        mayLeave = async () => true;
        await attempt(async () => {
            const info = this.info = await getJSON(filePath("file-info", this.path), { signal: this.abort.signal });
            this.facts.replaceChildren(...[info.type, formatBytes(info.size), info.mime, `mode ${info.mode}`, info.owner?.user,
                `changed ${formatDate(new Date(info.modified_at))}`, info.target && `link to ${info.target}`].filter(Boolean).map((text) => h("span", {}, text)));
            this.drawControls();
            await this.showContent(info);
        });
    }

    drawControls() {
        const { path, section } = this;
        const download = linkButton("Download", filePath("read-file", path), { download: lastName(path) });
        this.controls.replaceChildren(...(mayChange() ? [button("Rename", () => section.rename(path)),
            button("Delete", () => section.remove(path), { class: "danger" })] : []), download);
    }

    async showContent(info) {
        if (info.type !== "file" && info.type !== "symlink") return this.body.replaceChildren(empty(`This is a ${info.type}.`));
        if (info.mime?.startsWith("image/")) {
            // As an image, an SVG file runs no script.
            return this.body.replaceChildren(h("div", { class: "scroll image" }, h("img", { src: filePath("read-file", this.path), alt: lastName(this.path) })));
        }
        if (info.binary) return this.showBytes();
        this.etag = info.etag;
        if (this.line > 0) return this.showLines();
        this.pre = h("pre", { class: "output text", tabindex: 0, "aria-label": "Contents" });
        this.decoder = new TextDecoder();
        this.position = 0;
        this.more = h("div", { class: "panel-head" });
        this.body.replaceChildren(this.pre, this.more);
        await this.showPart();
        if (mayChange() && info.size <= editableBytes) this.controls.prepend(button("Edit", () => attempt(() => this.edit()), { class: "primary" }));
        return undefined;
    }

    async showPart() {
        const response = await request("GET", filePath("read-file", this.path, { offset: this.position, limit: partBytes }), { signal: this.abort.signal });
        const bytes = await response.arrayBuffer();
        this.position += bytes.byteLength;
        const part = h("span", { class: "block" });
        part.textContent = this.decoder.decode(bytes, { stream: true });
        this.pre.append(part);
        // What is in the page stays bounded; the rest of a huge file is for other programs.
        while (this.pre.childElementCount > 16) this.pre.firstChild.remove();
        const left = this.info.size - this.position;
        this.more.hidden = left <= 0 || bytes.byteLength === 0;
        this.more.replaceChildren(h("span", { class: "soft" }, `${formatBytes(this.position)} of ${formatBytes(this.info.size)}`),
            button("Show more", () => attempt(() => this.showPart())));
    }

    /** Around a line that a search found. */
    async showLines() {
        const from = Math.max(1, this.line - 100);
        const answer = await getJSON(filePath("read-file-lines", this.path, { offset: from, limit: 400, max_file_size: 1 << 30, max_response_bytes: 1 << 20 }));
        if (!answer.success) throw new Error(answer.error);
        const rows = answer.content.split("\n").map((row) => {
            const [, number, text] = /^(\d+)\t(.*)$/s.exec(row) || [null, "", row];
            return h("div", { class: Number(number) === this.line ? "line found" : "line" }, h("span", { class: "number" }, number), text);
        });
        this.body.replaceChildren(h("div", { class: "output", tabindex: 0 }, rows),
            h("div", { class: "panel-head" }, button("Show the whole file", () => { this.line = 0; this.load(); })));
        this.body.querySelector(".found")?.scrollIntoView({ block: "center" });
    }

    async showBytes() {
        const response = await request("GET", filePath("read-file", this.path, { offset: 0, limit: 4096 }), { signal: this.abort.signal });
        const bytes = new Uint8Array(await response.arrayBuffer());
        this.body.replaceChildren(h("p", { class: "panel-body soft" }, `No text. The first ${formatBytes(bytes.length)} of ${formatBytes(this.info.size)}:`),
            h("pre", { class: "output text", tabindex: 0 }, hexDump(bytes)));
    }

    // --- Editing ---------------------------------------------------------------------------------

    async edit() {
        const response = await request("GET", filePath("read-file", this.path), { signal: this.abort.signal });
        const etag = response.headers.get("ETag");
        let text;
        try {
            text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await response.arrayBuffer());
        } catch {
            throw new Error("The file is not UTF-8, so it cannot be edited here without loss.");
        }
        // A text field knows only LF. A file that mixes line endings would not come back as it was.
        const crlf = text.includes("\r\n");
        if (/\r(?!\n)/.test(text) || (crlf && /(^|[^\r])\n/.test(text))) throw new Error("The file mixes line endings, so it cannot be edited here without loss.");
        this.openEditor(text.replaceAll("\r\n", "\n"), etag, crlf);
    }

    openEditor(text, etag, crlf) {
        const area = h("textarea", { class: "editor", spellcheck: "false", "aria-label": `Text of ${lastName(this.path)}`, wrap: "off" });
        area.value = text;
        this.etag = etag;
        this.saved = text;
        const changed = () => area.value !== this.saved;
        const saveButton = button("Save", () => this.save(area, crlf), { class: "primary", disabled: true, title: "Ctrl S" });
        area.addEventListener("input", () => { saveButton.disabled = !changed(); });
        area.addEventListener("keydown", (event) => {
            if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            this.save(area, crlf);
        });
        mayLeave = async () => !changed() || (await ask({ title: "Leave without saving?", text: `Your changes of ${lastName(this.path)} would be lost.`, action: "Leave", danger: true }));
        this.saveButton = saveButton;
        this.controls.replaceChildren(saveButton, button("Close", async () => { if (await mayLeave()) { this.notice.replaceChildren(); this.load(); } }));
        this.body.replaceChildren(area);
        area.focus();
    }

    /** Writes only over the version that was read; another is told, and the person chooses. */
    async save(area, crlf, condition = { "If-Match": this.etag }) {
        const text = area.value;
        await attempt(async () => {
            try {
                const response = await request("POST", filePath("write-file", this.path), { body: crlf ? text.replaceAll("\n", "\r\n") : text, headers: condition });
                this.etag = (await response.json()).etag;
                this.saved = text;
                this.saveButton.disabled = area.value === text;
                this.notice.replaceChildren(h("p", { class: "notice good" }, `Saved at ${formatClock(new Date())}.`));
            } catch (error) {
                if (error.status !== 412) throw error;
                this.conflict(area, crlf);
            }
        });
    }

    conflict(area, crlf) {
        this.notice.replaceChildren(h("div", { class: "banner bad conflict" }, h("p", {}, "The file was changed by someone else since it was opened here. Nothing was written."),
            button("Save over it", () => this.save(area, crlf, {}), { class: "danger" }),
            button("Take theirs", () => { this.notice.replaceChildren(); attempt(() => this.edit()); })));
    }
}

function hexDump(bytes) {
    const lines = [];
    for (let at = 0; at < bytes.length; at += 16) {
        const row = Array.from(bytes.slice(at, at + 16));
        const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
        lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
    }
    return lines.join("\n");
}

addEventListener("beforeunload", (event) => {
    const editor = document.querySelector("textarea.editor");
    if (editor && document.querySelector(".actions .primary:not(:disabled)[title='Ctrl S']")) event.preventDefault();
});
