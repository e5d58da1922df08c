// Requests to the daemon, and whether it is there. All addresses are relative, so that the page works behind a proxy
// that puts a path in front.

/** What the daemon said no with. */
class ApiError extends Error {
    constructor(status, body) {
        super(body.message || `The daemon answered with status ${status}.`);
        this.status = status;
        this.detail = body.detail || (body.validations || []).map((v) => `${v.field}: ${v.detail}`).join("; ");
    }
}

/** The daemon, or the proxy in front of it, does not answer. */
class AwayError extends Error {
    constructor() { super("The daemon does not answer."); }
}

function describeError(error) { return error.detail ? `${error.message} ${error.detail}` : error.message; }

/** Whether the daemon is there. Code that needs it waits for `ready()`; one loop alone asks for it again. */
const connection = {
    state: "connected",
    instance: null,
    retryAt: 0,
    listeners: new Set(),
    waiting: [],

    ready() {
        if (this.state === "connected") return Promise.resolve();
        return new Promise((resolve) => this.waiting.push(resolve));
    },

    lost() {
        if (this.state !== "connected") return;
        this.change("away");
        this.retry(1000);
    },

    /** The session has ended: only a new one helps, so nothing asks again. */
    refused() { this.change("refused"); },

    retry(delay) {
        this.retryAt = Date.now() + delay;
        clearTimeout(this.timer);
        this.timer = setTimeout(async () => {
            // A page that is not seen does not ask.
            if (document.hidden) return this.retry(1000);
            try {
                await request("GET", "api/v0/ui/session");
            } catch (error) {
                if (error instanceof AwayError) return this.retry(Math.min(delay * 2, 15000));
                if (this.state === "refused") return;
            }
            this.change("connected");
            for (const resolve of this.waiting.splice(0)) resolve();
        }, delay);
    },

    change(state, restarted = false) {
        this.state = state;
        for (const listener of this.listeners) listener(state, restarted);
    },

    /** The id of the daemon's run is on every answer; another one means that it was restarted. */
    seen(instance) {
        if (!instance || instance === this.instance) return;
        const restarted = this.instance !== null;
        this.instance = instance;
        if (restarted) for (const listener of this.listeners) listener(this.state, true);
    },
};

/** A request, and its response if that is good. `body`: an object (JSON), or anything else as it is. */
async function request(method, path, { body, headers = {}, signal } = {}) {
    const options = { method, headers: { ...headers }, signal, cache: "no-store" };
    if (body !== undefined) {
        const raw = typeof body === "string" || body instanceof Blob;
        options.body = raw ? body : JSON.stringify(body);
        options.headers["Content-Type"] ??= raw ? "application/octet-stream" : "application/json";
    }
    let response;
    try {
        response = await fetch(path, options);
    } catch (error) {
        if (error.name === "AbortError") throw error;
        connection.lost();
        throw new AwayError();
    }
    connection.seen(response.headers.get("Workspace-Agent-Instance"));
    if (response.ok) return response;
    const text = await response.text().catch(() => "");
    let answer = {};
    try { answer = JSON.parse(text); } catch { /* A proxy's own error page, say. */ }
    // 502 and 504 are a proxy's; 503 without our words as well.
    if ([502, 504].includes(response.status) || (response.status === 503 && !answer.message)) {
        connection.lost();
        throw new AwayError();
    }
    if (response.status === 401) connection.refused();
    const error = new ApiError(response.status, answer);
    error.etag = response.headers.get("ETag");
    throw error;
}

async function getJSON(path, options) { return (await request("GET", path, options)).json(); }
async function postJSON(path, body, options = {}) { return (await request("POST", path, { ...options, body })).json(); }

const query = (values) => new URLSearchParams(values).toString();

function socketURL(path) {
    const url = new URL(path, document.baseURI);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return url.href;
}

function pause(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
    });
}

/** Resolves once the page can be seen. */
function visible() {
    if (!document.hidden) return Promise.resolve();
    return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })).then(visible);
}

/** Calls an action again and again while the page is seen and the daemon is there, until the signal. The action
 *  may return how long to wait instead. */
async function poll(milliseconds, signal, action) {
    while (!signal.aborted) {
        await visible();
        await connection.ready();
        if (signal.aborted) return;
        let next;
        try {
            next = await action();
        } catch (error) {
            if (signal.aborted) return;
            if (!(error instanceof AwayError)) showError(error);
        }
        await pause(next || milliseconds, signal).catch(() => {});
    }
}
