// The desktop: whether it runs, and the viewer. Nothing here starts one before a person asks.

sections.push({
    id: "desktop", title: "Desktop", icon: "M2 3h12v8H2zM6 14h4M8 11v3",
    show({ root, signal }) {
        const status = h("span", { class: "soft", role: "status" });
        const problem = h("p", { class: "problem", role: "alert" });
        const controls = h("span", { class: "actions" });
        const body = h("div", { class: "panel fill" }, empty("Asking the daemon…"));
        root.append(h("div", { class: "bar" }, h("h1", {}, "Desktop"), status, h("span", { class: "spacer" }), controls), problem, body);
        let shown = null;
        const show = (state) => {
            if (shown === state) return;
            shown = state;
            controls.replaceChildren();
            if (state === "read-only") {
                body.replaceChildren(empty("A read-only session does not show the desktop: the viewer could click and type. “workspace-agent ui” without --read-only gives a session that does."));
            } else if (state === "off") {
                body.replaceChildren(empty("The desktop does not run. ", button("Start the desktop", () => show("viewer"), { class: "primary" })));
            } else {
                body.replaceChildren(h("iframe", { class: "viewer", src: "api/v0/desktop/viewer", title: "The workspace's desktop" }));
                controls.append(linkButton("Open in a tab of its own", "api/v0/desktop/viewer", { target: "_blank" }));
            }
        };
        poll(2000, signal, async () => {
            const desktop = await getJSON("api/v0/desktop/status");
            setText(status, desktopStatus(desktop));
            setText(problem, desktop.running ? "" : desktopProblem());
            if (!mayChange()) show("read-only");
            // A viewer that is shown stays: it starts the desktop, and connects again by itself.
            else if (shown !== "viewer") show(desktop.running ? "viewer" : "off");
        });
    },
});

/** Why it could not be started, as the daemon's health says. */
function desktopProblem() {
    return overview?.health.reasons.filter((reason) => reason.startsWith("desktop: ")).join(" ") ?? "";
}

function desktopStatus({ running, width, height, since, viewers, recordings }) {
    if (!running) return "Not running";
    return [`Running, ${width}×${height}`, since && `since ${formatDate(new Date(since * 1000))}`,
        formatCount(viewers, "viewer"), recordings > 0 && formatCount(recordings, "recording")].filter(Boolean).join(" · ");
}
