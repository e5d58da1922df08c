import BenchSupport
import Glibc

// The desktop's actions, screenshots and bridge of a release binary, each beside what the usual tools
// take for the same in the same run. Usage: DesktopBench PATH/workspace-agent PATH/portabledesktop

/// One action beside a program that does the same.
func compare(_ name: String, _ client: Client, _ fields: String, count: Int = 300, floor: [String]) throws {
    var own: [Double] = [], others: [Double] = []
    // In turns, so that both see the same machine.
    for _ in 0..<5 {
        own += try samples(count / 5, warmUp: 3) { try client.action(fields) }
        others += try samples(max(4, count / 25), warmUp: 1) {
            let pid = try spawn(floor)
            waitpid(pid, nil, 0)
        }
    }
    let (p50, floor50) = (percentile(own, 0.5), percentile(others, 0.5))
    row(
        name, "p50 \(milli(p50)), p99 \(milli(percentile(own, 0.99)))",
        floor: "\(floor[0]) p50 \(milli(floor50)), p99 \(milli(percentile(others, 0.99)))", ratio: round2(p50 / floor50)
    )
}

func actions(_ client: Client) throws {
    try compare(
        "mouse_move", client, #""action":"mouse_move","coordinate":[500,400]"#,
        floor: ["xdotool", "mousemove", "500", "400"])
    try compare(
        "left_click", client, #""action":"left_click","coordinate":[500,400]"#,
        floor: ["xdotool", "mousemove", "500", "400", "click", "1"])
    try compare("key", client, #""action":"key","text":"a""#, floor: ["xdotool", "key", "a"])
    let text = "the quick brown fox jumps over the lazy dog again."
    try compare(
        "type of 50", client, "\"action\":\"type\",\"text\":\"\(text)\"", count: 50,
        floor: ["xdotool", "type", "--delay", "0", text])
    try compare(
        "scroll by 3", client, #""action":"scroll","coordinate":[500,400],"scroll_amount":3"#,
        floor: ["xdotool", "mousemove", "500", "400", "click", "--repeat", "3", "--delay", "0", "5"])
}

func screenshots(_ client: Client, _ picture: String) throws {
    let scaled = #""action":"screenshot","scaled_width":1280,"scaled_height":720"#
    try compare(
        "screenshot 1280×720, \(picture)", client, scaled, count: 25,
        floor: ["import", "-window", "root", "-resize", "1280x720!", "png:/dev/null"])
    try compare(
        "screenshot native, \(picture)", client, #""action":"screenshot""#, count: 25,
        floor: ["import", "-window", "root", "png:/dev/null"])
}

func drag(_ client: Client) throws {
    try compare(
        "left_click_drag", client,
        #""action":"left_click_drag","start_coordinate":[500,400],"coordinate":[700,500]"#, count: 50,
        floor: ["xdotool", "mousemove", "500", "400", "mousedown", "1", "mousemove", "700", "500", "mouseup", "1"])
}

func region(_ client: Client, _ picture: String) throws {
    try compare(
        "region 640×360, \(picture)", client, #""action":"zoom","region":[400,300,640,360]"#, count: 100,
        floor: ["import", "-window", "root", "-crop", "640x360+400+300", "png:/dev/null"])
}

func windowsAndClipboard(_ client: Client) throws {
    // Windows of their own, so that there is something to list.
    let terminals = try (0..<5).map { try spawn(["xterm", "-T", "Terminal \($0)", "-e", "sleep", "1000"]) }
    defer {
        for terminal in terminals {
            kill(terminal, SIGTERM)
            waitpid(terminal, nil, 0)
        }
    }
    for index in terminals.indices {
        try client.action("\"action\":\"wait_for_window\",\"title\":\"Terminal \(index)\",\"timeout_ms\":30000")
    }
    try compare("windows, 5 of them", client, #""action":"windows""#, count: 100, floor: ["wmctrl", "-lpGx"])
    try client.action(#""action":"clipboard_set","text":"hello""#)
    try compare(
        "clipboard_get", client, #""action":"clipboard_get""#, count: 100,
        floor: ["xclip", "-out", "-selection", "clipboard"])
}

/// The daemon's CPU while it waits for a still screen to be still for longer.
func stillness(_ daemon: Daemon, _ client: Client) throws {
    pause(1)
    let before = daemon.cpu
    try client.action(#""action":"wait_stable","ms":10000,"timeout_ms":20000"#)
    row("wait_stable for 10 s, CPU", milli(daemon.cpu - before))
}

/// MB/s of whole raw pictures through a stream.
func throughput(_ stream: any Stream, frames: Int) throws -> (rate: Double, bytes: Int) {
    let client = try RFBClient(stream)
    for _ in 0..<3 { _ = try client.frame() }
    var bytes = 0
    let begin = seconds()
    for _ in 0..<frames { bytes += try client.frame() }
    return (Double(bytes) / 1e6 / (seconds() - begin), bytes)
}

func bridge(_ daemon: Daemon, port: Int) throws {
    let socatPort = 20_000 + Int(getpid()) % 10_000
    let socat = try spawn([
        "socat", "-b", "65536", "TCP-LISTEN:\(socatPort),bind=127.0.0.1,reuseaddr,fork",
        "TCP:127.0.0.1:\(port),nodelay",
    ])
    defer {
        kill(socat, SIGTERM)
        waitpid(socat, nil, 0)
    }
    var attempts = 0
    while true {
        if let probe = try? connectTCP(socatPort) {
            close(probe)
            break
        }
        attempts += 1
        guard attempts < 200 else { throw BenchFailure("socat does not listen") }
        pause(0.02)
    }
    var bridged: [Double] = [], direct: [Double] = [], relayed: [Double] = []
    var cpu = 0.0, total = 0
    for _ in 0..<3 {
        direct.append(try throughput(Reader(try connectTCP(port)), frames: 60).rate)
        let before = daemon.cpu
        let (rate, bytes) = try throughput(try WebSocketStream(daemon.socket), frames: 60)
        bridged.append(rate)
        cpu += daemon.cpu - before
        total += bytes
        relayed.append(try throughput(Reader(try connectTCP(socatPort)), frames: 60).rate)
    }
    let (own, straight, relay) = (percentile(bridged, 0.5), percentile(direct, 0.5), percentile(relayed, 0.5))
    row(
        "bridge, raw pictures", "\(Int(own)) MB/s", floor: "direct \(Int(straight)) MB/s", ratio: round2(own / straight)
    )
    row("", "", floor: "socat \(Int(relay)) MB/s", ratio: round2(own / relay))
    row("  daemon's CPU", "\(round2(cpu / Double(total) * 1e9)) s/GB")
}

func bench(_ binary: String, _ program: String) throws {
    guard let real = realpath(program, nil) else { throw BenchFailure("there is no \(program)") }
    let path = String(cString: real)
    free(real)
    let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
    setenv("PATH", "\(folder):\(String(cString: getenv("PATH") ?? strdup("/usr/bin:/bin")))", 1)

    let daemon = try Daemon(binary)
    defer { daemon.stop() }
    let client = try Client(daemon.socket)
    _ = try client.request("GET", "/")
    pause(1)
    row("what", "measured", floor: "floor, same run", ratio: "ratio")
    daemon.tell("before first use")
    let begin = seconds()
    try client.action(#""action":"cursor_position""#)
    let first = seconds() - begin
    let state = "/tmp/wa-bench-desktop-\(getpid()).json"
    let upBegin = seconds()
    try run(path, "up", "--json", "--geometry", "1920x1080", "--state-file", state, "--xvnc-arg=-localhost=1")
    let up = seconds() - upBegin
    try run(path, "down", "--state-file", state)
    row(
        "first action, starts the desktop", milli(first), floor: "portabledesktop up \(milli(up))",
        ratio: round2(first / up))
    daemon.tell("after first use")

    let status = try client.request("GET", "/api/v0/desktop/status").text
    guard let key = status.firstRange(of: "\"vnc_port\":"),
        let port = Int(status[key.upperBound...].prefix { $0.isNumber })
    else { throw BenchFailure("no port in \(status)") }
    setenv("DISPLAY", ":\(port - 5900)", 1)

    try actions(client)
    try drag(client)
    try windowsAndClipboard(client)
    try stillness(daemon, client)
    try screenshots(client, "plain")
    try region(client, "plain")
    try bridge(daemon, port: port)
    // Like a photograph: smooth, with noise in every pixel.
    let picture = "/tmp/wa-bench-\(getpid()).png"
    try run("convert", "-size", "1920x1080", "plasma:fractal", "-attenuate", "0.3", "+noise", "Gaussian", picture)
    defer { unlink(picture) }
    // It shows the picture and exits with 1.
    waitpid(try spawn(["display", "-window", "root", picture]), nil, 0)
    try screenshots(client, "photo")
    try region(client, "photo")
    daemon.tell("after use")
}

signal(SIGPIPE, SIG_IGN)
do {
    guard CommandLine.arguments.count == 3 else { throw BenchFailure("usage: DesktopBench BINARY PORTABLEDESKTOP") }
    try bench(CommandLine.arguments[1], CommandLine.arguments[2])
} catch {
    print("DesktopBench: \(error)")
    exit(1)
}
