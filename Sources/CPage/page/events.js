// Server-sent events, read with fetch: EventSource tells neither the status of a refusal nor when it will try again,
// and reads on when the page cannot keep up.

/** Splits a stream of text into events of `{event, data, id}`. */
class EventParser {
    constructor() { this.rest = ""; this.reset(); }

    reset() { this.event = "message"; this.data = []; }

    /** The events that are complete with this text. */
    feed(text) {
        const events = [];
        const lines = (this.rest + text).split("\n");
        this.rest = lines.pop();
        for (const line of lines) this.line(line.endsWith("\r") ? line.slice(0, -1) : line, events);
        return events;
    }

    line(line, events) {
        if (line === "") {
            if (this.data.length > 0) events.push({ event: this.event, data: this.data.join("\n"), id: this.id });
            return this.reset();
        }
        const colon = line.indexOf(":");
        if (colon === 0) return; // a comment, which keeps the connection alive
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") this.event = value;
        else if (name === "data") this.data.push(value);
        else if (name === "id") this.id = value;
    }
}

/**
 * Follows a stream until the signal, or until `onEvent` returns "end". After a break it waits for the daemon and goes
 * on at `Last-Event-ID`. An answer that refuses the request is thrown.
 */
async function follow(path, signal, onEvent, onOpen = () => {}) {
    let lastID, delay = 1000;
    while (!signal.aborted) {
        await connection.ready();
        try {
            const headers = { Accept: "text/event-stream", ...(lastID ? { "Last-Event-ID": lastID } : {}) };
            const response = await request("GET", path, { headers, signal });
            onOpen();
            const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
            const parser = new EventParser();
            for (;;) {
                const { value, done } = await reader.read();
                if (done) break;
                delay = 1000;
                for (const event of parser.feed(value)) {
                    lastID = event.id ?? lastID;
                    if (onEvent(event.event, JSON.parse(event.data)) === "end") return;
                }
            }
        } catch (error) {
            if (signal.aborted) return;
            if (error instanceof ApiError) throw error;
        }
        // The stream broke: the daemon ended, or a proxy gave it up.
        await pause(delay, signal).catch(() => {});
        delay = Math.min(delay * 2, 15000);
    }
}
