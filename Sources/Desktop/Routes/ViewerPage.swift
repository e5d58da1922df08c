/// The viewer's page. All its URLs are relative to its own, so that it also works behind a proxy that adds a path
/// prefix.
enum ViewerPage {
    /// - Parameter nonce: what the page's Content-Security-Policy names.
    static func html(nonce: String) -> String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>Desktop</title>
        <style nonce="\(nonce)">
        html, body { margin: 0; height: 100%; overflow: hidden; background: #202225; }
        #screen { position: absolute; inset: 0; }
        #status { position: absolute; top: 0; left: 0; right: 0; padding: 6px; text-align: center;
            font: 14px system-ui, sans-serif; color: #fff; background: #37415a; }
        #status:empty { display: none; }
        </style>
        </head>
        <body>
        <div id="screen"></div>
        <div id="status" role="status">Connecting…</div>
        <script type="module" nonce="\(nonce)">
        const here = new URL(location.href);
        const base = here.pathname.replace(/\\/viewer\\/?$/, "");
        const status = document.getElementById("status");
        const say = (text) => { status.textContent = text; };
        const socket = new URL(base + "/vnc", here);
        socket.protocol = here.protocol === "https:" ? "wss:" : "ws:";
        const token = here.searchParams.get("token");
        if (token) socket.searchParams.set("token", token);
        let wait = 1000;

        function connect(RFB) {
            const rfb = new RFB(document.getElementById("screen"), socket.href,
                { shared: true, wsProtocols: ["binary"] });
            rfb.scaleViewport = true;
            rfb.viewOnly = here.searchParams.get("view_only") === "true";
            rfb.addEventListener("connect", () => { say(""); wait = 1000; });
            rfb.addEventListener("desktopname", (e) => { document.title = e.detail.name; });
            rfb.addEventListener("disconnect", () => {
                say(`Disconnected; trying again in ${wait / 1000} s…`);
                setTimeout(() => { say("Connecting…"); connect(RFB); }, wait);
                wait = Math.min(wait * 2, 15000);
            });
            // For tests and debugging.
            window.rfb = rfb;
        }

        try {
            connect((await import(base + "/viewer/core/rfb.js")).default);
        } catch (error) {
            say(`The viewer cannot be loaded: ${error.message}`);
        }
        </script>
        </body>
        </html>

        """
    }
}
