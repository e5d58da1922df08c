// Files: a tree that is read as it is opened, the file that is chosen, and a search.

const joinPath = (directory, name) => (directory === "/" ? `/${name}` : `${directory}/${name}`);
const parentPath = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const lastName = (path) => path.slice(path.lastIndexOf("/") + 1) || "/";
const shownEntries = 1000;

sections.push({
    id: "files", title: "Files", icon: "M2 4h4l1.5 2H14v7H2z",
    show(view) { new FilesSection(view); },
});

class FilesSection {
    constructor(view) {
        this.view = view;
        this.root = kept.get("files.root", session.directory);
        this.openPaths = new Set();
        this.rootInput = h("input", { type: "text", value: this.root, "aria-label": "Directory", spellcheck: "false", class: "path-input" });
        this.tree = h("ul", { class: "tree", role: "tree", "aria-label": "Files" });
        this.tree.addEventListener("keydown", (event) => this.keyDown(event));
        this.results = h("div", { class: "scroll", hidden: true });
        this.treeBox = h("div", { class: "scroll" }, this.tree);
        this.pane = h("div", { class: "panel detail-pane" });
        this.split = h("div", { class: "split" }, h("div", { class: "panel master" }, this.searchForm(), this.treeBox, this.results), this.pane);
        view.root.append(this.bar(), this.split);
        view.update = (args) => this.open(args[0]);
        this.fillTree();
        this.open(view.args[0], Number(view.args[1]) || 0);
    }

    bar() {
        return h("div", { class: "bar" }, h("h1", {}, "Files"),
            h("form", { class: "actions", onsubmit: (event) => { event.preventDefault(); this.setRoot(this.rootInput.value); } }, this.rootInput,
                h("button", { type: "submit" }, "Go"), button("Up", () => this.setRoot(parentPath(this.root)), { title: "The directory above" })),
            button("Reload", () => this.fillTree()), h("span", { class: "spacer" }),
            mayChange() && button("New file", () => this.newFile()), mayChange() && button("New directory", () => this.newDirectory()));
    }

    setRoot(path) {
        this.root = path.replace(/\/+$/, "") || "/";
        this.rootInput.value = this.root;
        kept.set("files.root", this.root);
        this.fillTree();
    }

    // --- Tree ------------------------------------------------------------------------------------

    fillTree() { return attempt(() => this.fill(this.tree, this.root)); }

    async fill(list, directory, level = 1) {
        const body = { path: directory.split("/").filter(Boolean), relativity: "root" };
        const { contents } = await postJSON("api/v0/list-directory", body, { signal: this.view.signal });
        const items = contents.slice(0, shownEntries).map((entry) => this.item(entry, level));
        if (contents.length === 0) items.push(h("li", { class: "soft note" }, "empty"));
        if (contents.length > shownEntries) items.push(h("li", { class: "soft note" }, `${contents.length - shownEntries} more; search for them by name`));
        list.replaceChildren(...items);
        this.markChosen();
    }

    item({ name, is_dir: isDirectory, absolute_path_string: path }, level) {
        const link = h(isDirectory ? "button" : "a", { class: isDirectory ? "entry directory" : "entry", tabindex: -1, "data-path": path,
            style: { paddingLeft: `${level * 14}px` }, ...(isDirectory ? { type: "button" } : { href: hashOf("files", path) }) }, name);
        const item = h("li", { role: "treeitem", "aria-level": level, "aria-expanded": isDirectory ? "false" : null }, link);
        if (!isDirectory) return item;
        const children = h("ul", { role: "group", hidden: true });
        item.append(children);
        const toggle = async (open) => {
            item.setAttribute("aria-expanded", open);
            children.hidden = !open;
            this.openPaths[open ? "add" : "delete"](path);
            if (open) await attempt(() => this.fill(children, path, level + 1));
        };
        link.addEventListener("click", () => toggle(children.hidden));
        item.toggle = toggle;
        if (this.openPaths.has(path)) toggle(true);
        return item;
    }

    /** One entry takes part in the order of Tab; arrows go between them, left and right close and open. */
    keyDown(event) {
        const entries = [...this.tree.querySelectorAll(".entry")].filter((entry) => entry.offsetParent);
        const at = entries.indexOf(document.activeElement);
        const item = document.activeElement.closest("li");
        const step = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
        if (step !== undefined) entries[Math.max(0, Math.min(entries.length - 1, step))]?.focus();
        else if (event.key === "ArrowRight" && item?.getAttribute("aria-expanded") === "false") item.toggle(true);
        else if (event.key === "ArrowLeft" && item?.getAttribute("aria-expanded") === "true") item.toggle(false);
        else if (event.key === "ArrowLeft") item?.parentElement.closest("li")?.querySelector(".entry").focus();
        else return;
        event.preventDefault();
    }

    markChosen() {
        const entries = [...this.tree.querySelectorAll(".entry")];
        let inTabOrder = entries[0];
        for (const entry of entries) {
            entry.tabIndex = -1;
            if (entry.dataset.path === this.path) { entry.setAttribute("aria-current", "true"); inTabOrder = entry; }
            else entry.removeAttribute("aria-current");
        }
        if (inTabOrder) inTabOrder.tabIndex = 0;
    }

    // --- The file --------------------------------------------------------------------------------

    open(path, line = 0) {
        this.path = path;
        this.file?.close();
        this.split.classList.toggle("detail", !!path);
        this.markChosen();
        this.pane.replaceChildren();
        if (path) this.file = new FileView(this.pane, path, this, line);
        else this.pane.append(empty("Choose a file."));
    }

    async newFile() {
        const name = await ask({ title: "New file", action: "Make the file", value: joinPath(this.root, ""), label: "Path" });
        if (!name) return;
        await attempt(async () => {
            await request("POST", `api/v0/write-file?${query({ path: name })}`, { body: "", headers: { "If-None-Match": "*" } });
            await this.fillTree();
            go("files", name);
        });
    }

    async newDirectory() {
        const name = await ask({ title: "New directory", action: "Make the directory", value: joinPath(this.root, ""), label: "Path" });
        if (name) await attempt(async () => { await postJSON("api/v0/make-directory", { path: name }); await this.fillTree(); });
    }

    async rename(path) {
        const to = await ask({ title: "Rename or move", action: "Move", value: path, label: "New path" });
        if (!to || to === path) return;
        await attempt(async () => {
            await postJSON("api/v0/move", { from: path, to, overwrite: false });
            await this.fillTree();
            go("files", to);
        });
    }

    async remove(path) {
        if (!(await ask({ title: `Delete ${lastName(path)}?`, text: `${path} is removed for good.`, action: "Delete", danger: true }))) return;
        await attempt(async () => {
            await postJSON("api/v0/delete", { path, recursive: false });
            await this.fillTree();
            go("files");
        });
    }
}
