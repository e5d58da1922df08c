// Tailnet: the relays by which clients reach this agent, the peers, and the paths to them.

sections.push({
    id: "tailnet", title: "Tailnet", icon: "M8 2v4M8 10v4M3 8h3M10 8h3M8 6a2 2 0 1 0 0 4a2 2 0 1 0 0-4",
    show({ root, signal }) {
        const content = h("div", { class: "scroll" });
        root.append(h("div", { class: "bar" }, h("h1", {}, "Tailnet")), content);
        const pongs = new Map();
        let report = null;
        const draw = () => {
            if (!report) return;
            replaceIfChanged(content, h("div", { class: "stack" },
                h("div", { class: "cards" },
                    h("section", { class: "panel", id: "tailnet-node" }, h("h2", {}, "Node"), h("div", { class: "panel-body" }, describeNode(report))),
                    h("section", { class: "panel", id: "tailnet-direct" }, h("h2", {}, "Direct paths"), h("div", { class: "panel-body" }, describeDirect(report.direct)))),
                h("section", { class: "panel", id: "tailnet-relays" }, h("h2", {}, "Relays"), relayTable(report.relays)),
                h("section", { class: "panel", id: "tailnet-peers" }, h("h2", {}, "Peers"), peerTable(report.peers, pongs)),
                dropTable(report.drops)));
        };
        // Listens on what stays: the rows are made anew at each change.
        content.addEventListener("click", async (event) => {
            const peer = event.target.closest("button[data-peer]")?.dataset.peer;
            if (!peer) return;
            const pong = await attempt(() => request("POST", `api/v0/tailnet/ping?peer=${encodeURIComponent(peer)}`).then((answer) => answer.json()));
            if (pong) pongs.set(peer, pong.latency_ms === undefined ? "no answer within 5 s" : `${formatLatency(pong.latency_ms)}, ${pong.path === "direct" ? "direct" : "by relay"}`);
            draw();
        });
        poll(2000, signal, async () => {
            try {
                report = await getJSON("api/v0/tailnet");
            } catch (error) {
                if (error.status !== 503) throw error;
                report = null;
                replaceIfChanged(content, empty(describeError(error)));
            }
            draw();
        });
    },
});

const formatLatency = (milliseconds) => `${milliseconds.toFixed(milliseconds < 10 ? 2 : 0)} ms`;
/** Whole units, so that the page changes no more often than it has to. */
const formatAge = (seconds) => seconds === undefined ? "never" : seconds < 60 ? "under a minute ago" : `${formatDuration(Math.floor(seconds / 60) * 60)} ago`;

function describeNode(report) {
    const home = report.relays.find((relay) => relay.is_home);
    const reachable = !report.problem && home?.is_connected;
    return h("div", { class: "stack" },
        h("p", { class: `big ${report.problem ? "bad" : reachable ? "good" : "warn"}` }, report.problem ? "Not reachable" : reachable ? "Reachable" : "No relay yet"),
        report.problem && h("p", { class: "bad" }, report.problem),
        facts([["Key", h("code", {}, report.key)], ["Addresses", h("code", {}, report.addresses.join(" "))],
            ["Home relay", home ? `${home.region_id} ${home.region_name}` : "none"],
            ["Coordination", report.coordination.is_open ? "open" : "not open"],
            ["Connections", `${report.connections} TCP, ${report.udp_flows} UDP`]]));
}

function describeDirect(direct) {
    if (!direct.is_enabled) return h("p", { class: "soft" }, "Disabled by the control plane. Everything goes by relay.");
    return h("div", { class: "stack" }, direct.problem && h("p", { class: "bad" }, direct.problem),
        facts([["UDP port", direct.port ? String(direct.port) : "none yet"],
            ["Endpoints", direct.endpoints.length > 0 ? h("code", {}, direct.endpoints.join(" ")) : "none"],
            ["Symmetric NAT", direct.mapping_varies === undefined ? "not known" : direct.mapping_varies ? "yes: direct paths are unlikely" : "no"]]));
}

function tailnetTable(columns, rows) {
    return h("div", { class: "scroll-x" }, h("table", { class: "timeline" },
        h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col" }, column)))), h("tbody", {}, rows)));
}

function relayTable(relays) {
    if (relays.length === 0) return empty("The control plane has announced none.");
    return tailnetTable(["Region", "State", "Latency", "Note"], relays.map((relay) => h("tr", {},
        h("td", {}, `${relay.region_id} ${relay.region_name || relay.region_code}`),
        h("td", { class: relay.is_connected ? "good" : relay.is_home ? "bad" : "soft" },
            relay.url === undefined ? "STUN only" : `${relay.is_home ? "home, " : ""}${relay.is_connected ? "connected" : "not connected"}`),
        h("td", {}, relay.latency_ms === undefined ? "–" : formatLatency(relay.latency_ms)),
        h("td", { class: "soft" }, relay.problem || (relay.websocket_reason ? `by WebSocket: ${relay.websocket_reason}` : "")))));
}

function peerTable(peers, pongs) {
    if (peers.length === 0) return empty("No peers. A client appears here when it connects to this workspace.");
    return tailnetTable(["Peer", "Session", "Path", "Traffic", ""], peers.map((peer) => h("tr", {},
        h("td", {}, h("code", {}, peer.addresses[0] || peer.id), h("br"), h("span", { class: "soft" }, peer.key)),
        h("td", {}, h("span", { class: peer.session === "usable" ? "good" : "soft" }, peer.session), h("br"), h("span", { class: "soft" }, `handshake ${formatAge(peer.last_handshake_seconds)}`)),
        h("td", {}, peer.endpoint ? `${peer.path}: ${peer.endpoint}` : `relay ${peer.home_region}`, h("br"),
            h("span", { class: "soft" }, pongs.get(peer.id) || (peer.latency_ms === undefined ? "" : formatLatency(peer.latency_ms)))),
        h("td", {}, `${formatBytes(peer.received_bytes)} in, ${formatBytes(peer.sent_bytes)} out`, h("br"), h("span", { class: "soft" }, formatCount(peer.connections, "connection"))),
        h("td", {}, h("button", { type: "button", "data-peer": peer.id, "aria-label": `Ping ${peer.addresses[0] || peer.id}` }, "Ping")))));
}

function dropTable(drops) {
    const rows = Object.entries(drops).sort(([a], [b]) => a < b ? -1 : 1);
    if (rows.length === 0) return null;
    return h("section", { class: "panel", id: "tailnet-drops" }, h("h2", {}, "Not taken"),
        tailnetTable(["Cause", "Count"], rows.map(([cause, count]) => h("tr", {}, h("td", {}, cause), h("td", {}, String(count))))));
}
