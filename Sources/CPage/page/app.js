// The frame around the sections: navigation by the address's hash, the theme, banners, and the state in the header.

/** Each section adds itself: `{id, title, icon, show(view)}`. `view` is {root, args, signal, refresh}. */
const sections = [];
/** What the daemon says of this session and of itself. */
let session = { mode: "read-only", directory: "/" };
let overview = null;
const overviewListeners = new Set();
const mayChange = () => session.mode === "on";

// --- Sections ------------------------------------------------------------------------------------

let current = null;
/** Set by a section that has something to lose; false keeps the person there. */
let mayLeave = async () => true;
let shownHash = null;

function drawNavigation() {
    byId("sections").replaceChildren(...sections.map(({ id, title, icon }, index) =>
        h("li", {}, h("a", { href: `#${id}`, "data-id": id },
            svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: icon })), title,
            h("kbd", { "aria-hidden": "true" }, `Alt ${index + 1}`)))));
}

async function route(force = false) {
    const hash = location.hash.slice(1);
    if (hash === "main") return;
    if (hash === shownHash && !force) return;
    if (!force && !(await mayLeave())) {
        history.replaceState(null, "", `#${shownHash}`);
        return;
    }
    mayLeave = async () => true;
    shownHash = hash;
    const [id, ...rest] = hash.split("/");
    const section = sections.find((candidate) => candidate.id === id) || sections[0];
    const args = rest.map(decodePart);
    if (!force && current?.section === section && current.view.update) return current.view.update(args);
    current?.abort.abort();
    const abort = new AbortController();
    const main = byId("main");
    const view = { root: main, args, signal: abort.signal };
    current = { section, abort, view };
    document.title = `${section.title} · Workspace agent`;
    for (const link of byId("sections").querySelectorAll("a")) {
        if (link.dataset.id === section.id) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    clearError();
    main.replaceChildren();
    section.show(view);
}

function decodePart(text) { try { return decodeURIComponent(text); } catch { return text; } }

/** Goes to a section; each part is encoded. */
function go(...parts) { location.hash = parts.map((part) => encodeURIComponent(part)).join("/"); }
const hashOf = (...parts) => "#" + parts.map((part) => encodeURIComponent(part)).join("/");

// --- Theme ---------------------------------------------------------------------------------------

const themes = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
    const chosen = kept.get("theme", "auto");
    const theme = chosen === "auto" ? (systemDark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = theme;
    setText(byId("theme"), themes[chosen] || themes.auto);
    document.dispatchEvent(new Event("themechange"));
}

function nextTheme() {
    const names = Object.keys(themes);
    kept.set("theme", names[(names.indexOf(kept.get("theme", "auto")) + 1) % names.length]);
    applyTheme();
}

// --- Banners -------------------------------------------------------------------------------------

const banners = new Map();

function showBanner(name, text, { bad = false, action } = {}) {
    let banner = banners.get(name);
    if (!banner) {
        banner = h("div", { class: bad ? "banner bad" : "banner", "data-name": name }, h("p", {}), action,
            name === "away" || name === "refused" ? null : button("Dismiss", () => hideBanner(name)));
        banners.set(name, banner);
        byId("banners").append(banner);
    }
    setText(banner.querySelector("p"), text);
}

function hideBanner(name) {
    banners.get(name)?.remove();
    banners.delete(name);
}

/** What was refused. A refusal for want of a session has a banner of its own. */
function showError(error) {
    if (error.name === "AbortError" || error instanceof AwayError || error.status === 401) return;
    hideBanner("error");
    showBanner("error", describeError(error), { bad: true });
}

function clearError() { hideBanner("error"); }

/** Does something that a person asked for, and says what went wrong. */
async function attempt(action) {
    clearError();
    try {
        return await action();
    } catch (error) {
        if (error instanceof AwayError) showBanner("error", describeError(error), { bad: true });
        else showError(error);
        return undefined;
    }
}

// --- The daemon's state --------------------------------------------------------------------------

function connectionChanged(state, restarted) {
    if (state === "away") countDown();
    else hideBanner("away");
    if (state === "refused") {
        showBanner("refused", "This session has ended. Run “workspace-agent ui” in the workspace for a new one.", { bad: true });
    }
    if (restarted) {
        showBanner("restarted", `The daemon was restarted at ${formatClock(new Date())}. Processes that it had started have ended.`);
        start();
    }
    drawState();
}

function countDown() {
    if (connection.state !== "away") return;
    const seconds = Math.max(0, Math.round((connection.retryAt - Date.now()) / 1000));
    const action = button("Try now", () => connection.retry(0));
    showBanner("away", seconds > 0 ? "The daemon does not answer. The page tries again by itself." :
        "The daemon does not answer. Trying again…", { bad: true, action });
    setTimeout(countDown, 1000);
}

function drawState() {
    const dot = byId("state-dot");
    const health = overview?.health;
    const [kind, text] = connection.state === "away" ? ["bad", "Away"] : connection.state === "refused" ? ["bad", "No session"]
        : !health ? ["", "Connecting…"] : health.status === "ok" ? ["good", "Healthy"] : ["warn", "Degraded"];
    dot.className = `dot ${kind}`;
    setText(byId("state-text"), text);
}

async function watchOverview() {
    await poll(5000, new AbortController().signal, async () => {
        overview = await getJSON("api/v0/overview");
        drawState();
        for (const listener of overviewListeners) listener(overview);
    });
}

/** At the beginning, and after a restart: what this session may do, then the section. */
async function start() {
    try {
        session = await getJSON("api/v0/ui/session");
    } catch (error) {
        if (error instanceof AwayError) connection.ready().then(start);
        else showError(error);
        return;
    }
    setText(byId("host"), session.hostname);
    byId("read-only").hidden = mayChange();
    await route(true);
}

function begin() {
    drawNavigation();
    applyTheme();
    systemDark.addEventListener("change", applyTheme);
    byId("theme").addEventListener("click", nextTheme);
    byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
    addEventListener("hashchange", () => route());
    addEventListener("keydown", (event) => {
        const section = event.altKey && !event.ctrlKey && !event.metaKey && sections[Number(event.key) - 1];
        if (!section) return;
        event.preventDefault();
        go(section.id);
        byId("main").focus();
    });
    connection.listeners.add(connectionChanged);
    start();
    watchOverview();
}
