// Small helpers that everything else uses: elements, formats, and what the browser keeps for this page.

/** An element. Text goes in as text nodes, never as HTML; `on…` are listeners; `style` is an object, since the
 *  page's security policy forbids style attributes. */
function h(tag, props = {}, ...children) {
    const element = document.createElement(tag);
    setProps(element, props);
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

const svgNamespace = "http://www.w3.org/2000/svg";

function svg(tag, props = {}, ...children) {
    const element = document.createElementNS(svgNamespace, tag);
    setProps(element, props);
    element.append(...children);
    return element;
}

function setProps(element, props) {
    for (const [name, value] of Object.entries(props)) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else if (name === "style") Object.assign(element.style, value);
        else element.setAttribute(name, value === true ? "" : value);
    }
}

/** Sets text only where it differs, so that live regions speak only of changes and selections survive. */
function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

const byId = (id) => document.getElementById(id);

function button(label, action, props = {}) {
    return h("button", { type: "button", onclick: action, ...props }, label);
}

/** A label with its field in it. */
function field(label, input) { return h("label", { class: "field" }, h("span", {}, label), input); }

/** A link that looks like a button. */
function linkButton(label, href, props = {}) { return h("a", { class: "button", href, ...props }, label); }

function select(options, chosen, onchange, props = {}) {
    return h("select", { onchange, ...props }, options.map(([value, label]) =>
        h("option", { value, selected: value === chosen }, label)));
}

function empty(text, ...more) { return h("p", { class: "empty" }, text, ...more); }

function formatBytes(bytes) {
    if (bytes < 1024) return `${Math.round(bytes)} B`;
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let value = bytes, unit = -1;
    do { value /= 1024; unit++; } while (value >= 1000 && unit < units.length - 1);
    return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** `3 d 4 h`, `12 min 5 s`, `4.2 s`: at most two units. */
function formatDuration(seconds) {
    if (seconds < 0) seconds = 0;
    if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
    const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    let rest = Math.round(seconds);
    const shown = [];
    for (const [name, size] of parts) {
        const count = Math.floor(rest / size);
        rest -= count * size;
        if (count > 0 || shown.length > 0) shown.push(count > 0 ? `${count} ${name}` : "");
        if (shown.length === 2) break;
    }
    return shown.filter(Boolean).join(" ") || "0 s";
}

function formatAgo(date) {
    const seconds = (Date.now() - date) / 1000;
    return seconds < 2 ? "just now" : `${formatDuration(seconds)} ago`;
}

const pad = (number, width = 2) => String(number).padStart(width, "0");

function formatClock(date, milliseconds = false) {
    const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => pad(part)).join(":");
    return milliseconds ? `${time}.${pad(date.getMilliseconds(), 3)}` : time;
}

function formatDate(date) {
    const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
    return `${day} ${formatClock(date)}`;
}

function formatCount(number, one, many = `${one}s`) { return `${number.toLocaleString("en")} ${number === 1 ? one : many}`; }

/** What this browser keeps for the page; it may forbid that. */
const kept = {
    get(name, fallback) {
        try { return JSON.parse(localStorage.getItem(`workspace-agent.${name}`)) ?? fallback; } catch { return fallback; }
    },
    set(name, value) {
        try { localStorage.setItem(`workspace-agent.${name}`, JSON.stringify(value)); } catch { /* Not kept, then. */ }
    },
};

/** A random UUID. crypto.randomUUID exists only over https and on localhost; the page may be behind a plain proxy. */
function randomUUID() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

function debounced(milliseconds, action) {
    let timer;
    return (...values) => { clearTimeout(timer); timer = setTimeout(() => action(...values), milliseconds); };
}

/** Up to date with what is written; at its end only if it was there before. */
function keepAtEnd(scroller, change) {
    const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 24;
    change();
    if (atEnd) scroller.scrollTop = scroller.scrollHeight;
}

/** Asks in a dialog; true when the person agreed. `text` is asked for when `value` is given, and returned. */
function ask({ title, text = "", action = "OK", danger = false, value, label = "Name" }) {
    const input = value === undefined ? null : h("input", { type: "text", value, autocomplete: "off" });
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, h("form", { method: "dialog" },
        h("h2", { id: "ask-title" }, title), text && h("p", {}, text), input && field(label, input),
        h("div", { class: "actions" },
            button("Cancel", () => dialog.close()),
            h("button", { type: "submit", class: danger ? "danger" : "primary", value: "yes" }, action))));
    document.body.append(dialog);
    dialog.showModal();
    input?.select();
    return new Promise((resolve) => {
        dialog.addEventListener("close", () => {
            const agreed = dialog.returnValue === "yes";
            dialog.remove();
            resolve(agreed ? (input ? input.value : true) : null);
        });
    });
}
