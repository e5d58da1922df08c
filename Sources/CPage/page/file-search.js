// Search: files by name, or lines by content.

FilesSection.prototype.searchForm = function () {
    const text = h("input", { type: "search", placeholder: "Search", "aria-label": "Search below the directory", spellcheck: "false" });
    const kind = select([["text", "text"], ["regex", "pattern"], ["name", "file names"]], "text", () => {}, { "aria-label": "What to search" });
    text.addEventListener("input", () => { if (text.value === "") this.showResults(null); });
    return h("form", { class: "panel-head", onsubmit: (event) => {
        event.preventDefault();
        if (text.value !== "") attempt(() => this.search(text.value, kind.value));
    } }, text, kind, h("button", { type: "submit" }, "Search"));
};

FilesSection.prototype.search = async function (text, kind) {
    this.showResults([empty("Searching…")]);
    if (kind === "name") {
        const pattern = /[*?[{]/.test(text) ? text : `*${text}*`;
        const { paths, truncated } = await postJSON("api/v0/glob", { root: this.root, pattern, limit: 500 });
        this.showResults([searchSummary(paths.length, truncated, "file"), ...paths.map((path) =>
            h("a", { class: "result", href: hashOf("files", path) }, h("b", {}, lastName(path)), h("span", { class: "soft" }, below(this.root, path))))]);
        return;
    }
    const body = { root: this.root, pattern: text, fixed: kind === "text", ignore_case: text === text.toLowerCase(), limit: 500 };
    const { matches, truncated } = await postJSON("api/v0/grep", body);
    this.showResults([searchSummary(matches.length, truncated, "line"), ...matches.map(({ path, line, text: found }) =>
        h("a", { class: "result", href: hashOf("files", path, line) }, h("span", { class: "soft" }, `${below(this.root, path)}:${line}`),
            h("code", {}, found.trim().slice(0, 200))))]);
};

FilesSection.prototype.showResults = function (children) {
    this.results.hidden = children === null;
    this.treeBox.hidden = children !== null;
    this.results.replaceChildren(...(children ? [...children, button("Back to the tree", () => this.showResults(null), { class: "more" })] : []));
};

function searchSummary(count, truncated, what) {
    return h("p", { class: "panel-body soft", role: "status" }, truncated ? `The first ${formatCount(count, what)}; there are more.` : formatCount(count, what));
}

const below = (root, path) => (path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path);
