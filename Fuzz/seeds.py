#!/usr/bin/env python3
"""Writes seed files for the fuzzers from the recorded vectors: seeds.py OUTPUT-DIRECTORY."""
import json
import pathlib
import sys

vectors = pathlib.Path(__file__).resolve().parent.parent / "Tests" / "DRPCTests" / "Vectors"
out = pathlib.Path(sys.argv[1])
for name in ("FrameFuzz", "ServerFuzz", "HandlerFuzz", "WebSocketFuzz", "YamuxFuzz", "BoundaryFuzz"):
    (out / name).mkdir(parents=True, exist_ok=True)

frames = json.loads((vectors / "drpc_frames.json").read_text())
for key in ("frames", "parse", "metadata", "error_payloads"):
    for number, vector in enumerate(frames[key]):
        if "hex" in vector:
            (out / "FrameFuzz" / f"{key}-{number}").write_bytes(bytes.fromhex(vector["hex"]))

for vector in json.loads((vectors / "drpc_exchanges.json").read_text())["vectors"]:
    for number, variant in enumerate(vector["variants"]):
        for key in ("client_to_server_hex", "server_to_client_hex"):
            if isinstance(variant[key], str):
                data = bytes.fromhex(variant[key])
                (out / "FrameFuzz" / f"{vector['name']}-{number}-{key}").write_bytes(data)
                if key.startswith("client"):
                    (out / "ServerFuzz" / f"{vector['name']}-{number}").write_bytes(b"\x00" + data)
                    # At once, and in pieces of 7 bytes.
                    (out / "HandlerFuzz" / f"{vector['name']}-{number}").write_bytes(b"\x00" + data)
                    (out / "HandlerFuzz" / f"{vector['name']}-{number}-pieces").write_bytes(b"\x07" + data)

stack = json.loads((vectors.parent.parent / "WebSocketsTests" / "Vectors" / "websocket_stack.json").read_text())
for direction, role in (("s2c", b"\x00"), ("c2s", b"\x01")):
    frames = [bytes.fromhex(chunk["hex"]) for chunk in stack["tcp"][2:] if chunk["dir"] == direction and "hex" in chunk]
    (out / "WebSocketFuzz" / direction).write_bytes(role + b"".join(frames))
    for number, frame in enumerate(frames):
        (out / "WebSocketFuzz" / f"{direction}-{number}").write_bytes(role + frame)


def call(stream, method, *messages, close=True):
    """A call as a client writes it."""
    packets = [(3, f"/coder.agentsocket.v1.AgentSocket/{method}".encode())] + [(5, m) for m in messages]
    packets += [(13, b"")] if close else []
    return b"".join(bytes([kind, stream, number, len(data)]) + data for number, (kind, data) in enumerate(packets, 1))


def unit(name, field=1):
    return bytes([field << 3 | 2, len(name)]) + name.encode()


for name, data in {
    "wait": call(1, "SyncWant", unit("a") + unit("b", 2)) + call(2, "SyncWait", unit("a")),
    "wait-then-ping": call(1, "SyncWant", unit("a") + unit("b", 2)) + call(2, "SyncWait", unit("a")) + call(3, "Ping", b""),
    "events": call(1, "SyncStart", unit("a")) + call(2, "SyncEvents", b"") + bytes([9, 2, 4, 0]) + call(3, "SyncList", b""),
    "lingering": b"".join(call(n, "SyncEvents", b"", close=False) for n in range(1, 12)),
    "status": b"".join(call(n, m, unit("a")) for n, m in enumerate(("SyncStart", "SyncStatus", "SyncReady", "SyncComplete"), 1)),
    "app-status": call(1, "UpdateAppStatus", unit("app")),
    "half": call(1, "Ping", b"") + bytes([2, 2, 1, 255, 255, 3]) + b"half",
}.items():
    for prefix in (0, 1, 5):
        (out / "HandlerFuzz" / f"{name}-{prefix}").write_bytes(bytes([prefix]) + data)

boundary = vectors.parent.parent / "BoundaryLogTests" / "Vectors" / "boundary_frames.json"
for number, vector in enumerate(json.loads(boundary.read_text())["vectors"]):
    if "hex" in vector:
        data = bytes.fromhex(vector["hex"])
        (out / "BoundaryFuzz" / f"frame-{number}").write_bytes(data)
        (out / "BoundaryFuzz" / f"payload-{number}").write_bytes(data[4:])

yamux = vectors.parent.parent / "YamuxTests" / "Vectors" / "yamux_exchanges.json"
for vector in json.loads(yamux.read_text())["vectors"]:
    # The first byte's lowest bit is our role: what the server sent is for our client.
    for role, direction in ((0, "s2c"), (1, "c2s")):
        data = b"".join(
            bytes.fromhex(event["hex"]) if "hex" in event
            else bytes.fromhex(event["payload_hex"]) if "payload_hex" in event
            else bytes(event.get("payload_bytes", 0))
            for event in vector["events"]
            if event["dir"] == direction
        )
        if len(data) < 100_000:
            (out / "YamuxFuzz" / f"{vector['name']}-{direction}").write_bytes(bytes([role]) + data)

# The tailnet's machines: the first byte decides what the others are for (see the fuzzers).
tests = vectors.parent.parent


def block(data):
    return len(data).to_bytes(2, "big") + data


def seed(fuzzer, name, data):
    (out / fuzzer).mkdir(parents=True, exist_ok=True)
    (out / fuzzer / name.replace(" ", "-").replace("/", "-")).write_bytes(data)


def load(module, name):
    return json.loads((tests / f"{module}Tests" / "Vectors" / f"tailnet_{name}.json").read_text())


def pieces(operation, data, size):
    """An operation with each so many bytes."""
    return b"".join(bytes([operation]) + data[at:at + size].ljust(size, b"\0") for at in range(0, len(data), size))


# Both send, drain and deliver; then what the vectors have, as it is, with our MACs, and with our index.
talk = bytes([0x00, 9, 0x80, 200, 0x03, 0x83, 0x84, 0x83, 0x04, 0x03, 0x84, 0x04, 0x00, 1, 0x03, 0x84])
wireguard = load("WireGuard", "wireguard")
raw = [wireguard["cookie"]["initiation"], wireguard["cookie"]["initiation_with_mac2"], wireguard["cookie"]["reply_packet"]]
for session in wireguard["sessions"]:
    raw += [session["initiation"]["packet"], session["response"]["packet"]] + [m["packet"] for m in session["transport"]]
for number, message in enumerate(raw):
    data = block(bytes.fromhex(message))
    seed("WireGuardFuzz", f"message-{number}", b"\1" + talk + b"".join(bytes([op]) + data for op in (0x0b, 0x4b, 0x2b, 0x6b)))
for number, message in enumerate(m["inner"] for m in wireguard["sessions"][0]["transport"]):
    inner = bytes.fromhex(message)
    seed("WireGuardFuzz", f"inner-{number}", b"\1" + bytes([2, len(inner) // 6]) + inner[:len(inner) // 6 * 6] + b"\x84")
for number, script in enumerate([
    talk, talk + bytes([13, 130]) + talk, talk + bytes([13, 200, 0x0d, 255]) + talk, bytes([0x0e, 0]) + talk, talk + bytes([0x8e, 4]) + talk,
    bytes([0x0f, 7] * 9 + [0x8f, 7] * 9) + talk + bytes([12, 200]) + talk, bytes([0, 9, 3, 0x86, 0x84, 0x84, 0x89, 0, 5, 1, 0x8a, 3]),
]):
    for start in (0, 1):
        seed("WireGuardFuzz", f"script-{start}-{number}", bytes([start]) + script)

derp = load("DERP", "derp")
for key in ("connection_a", "connection_a_duplicate", "connection_b"):
    for side in ("server", "client"):
        data = b"".join(bytes.fromhex(event["hex"]) for event in derp[key] if event.get("from") == side and "hex" in event)
        seed("DERPFuzz", f"{key}-{side}", bytes([21]) + data)
        seed("DERPFuzz", f"{key}-{side}-connection", bytes([1]) + pieces(0xf0, data[45:] if side == "server" else data, 121))
        seed("DERPFuzz", f"{key}-{side}-relay", bytes([2, 0xfb]) + bytes(64) + pieces(0xfd, data, 121))
for number, vector in enumerate(derp["decode"]):
    if "hex" in vector:
        data = bytes.fromhex(vector["hex"])
        seed("DERPFuzz", f"frame-{number}", bytes([3]) + data)
        if len(data) > 5 and data[0] < 32:
            seed("DERPFuzz", f"connection-{number}", bytes([1, 15 | (data[0] & 15) << 4 if data[0] < 16 else 15]) + block(data[5:]))
for number, text in enumerate((b'{"version":2}', b'{"version":2,"TokenBucketBytesPerSecond":1000,"TokenBucketBytesBurst":3000}', b'{"version":"x"}')):
    seed("DERPFuzz", f"info-{number}", bytes([130, len(text)]) + text + bytes([0x47, 3, 0, 0x49, 255, 255, 13, 4, 0, 0x49, 255, 255]))
seed("DERPFuzz", "relay", bytes([2, 0, 1, 0x10, 0, 0x20, 1, 4, 0x0a, 1, 0x4a, 3, 4, 6, 4, 7, 60, 5, 0x35, 0x20, 2, 3, 0, 9, 4]))
seed("DERPFuzz", "relay-limited", bytes([128, 0, 1, 0xc0, 1, 0xc0, 1, 0xc0, 1, 4, 0x08, 0x18, 4]))

disco = load("Disco", "disco")
for packet in disco["packets"]:
    data, plaintext = bytes.fromhex(packet["packet"]), bytes.fromhex(packet["plaintext"])
    seed("DiscoFuzz", f"packet-{packet['name']}", b"\0" + data)
    seed("DiscoFuzz", f"message-{packet['name']}", b"\2" + plaintext)
    for source in (0, 1, 2, 7):
        data = bytes([5, source]) + (bytes([9]) if source & 3 == 3 else b"") + block(plaintext)
        seed("DiscoFuzz", f"node-{packet['name']}-{source}", b"\3" + data + bytes([9, 15, 13, 5, 15, 9]))
for number, vector in enumerate(disco["decode"]):
    seed("DiscoFuzz", f"plaintext-{number}", b"\2" + bytes.fromhex(vector["plaintext"]))
stun = load("Disco", "stun")
for number, packet in enumerate([stun["request"]] + [v["packet"] for v in stun["responses"] + stun["decode"]]):
    data = bytes.fromhex(packet)
    seed("DiscoFuzz", f"stun-{number}", b"\0" + data)
    seed("DiscoFuzz", f"stun-answer-{number}", bytes([1, number & 1]) + bytes(16 if number & 1 else 4) + b"\x12\x34" + data[8:20] + b"\0\0\0" + data)
    seed("DiscoFuzz", f"stun-node-{number}", b"\3\x08" + block(data) + bytes([9, 0x89, 15, 15]))
seed("DiscoFuzz", "paths", bytes([3, 9, 0x89, 15, 13, 3, 9, 10, 0x0b, 15, 13, 60, 9, 0x0e, 1, 9, 0x0e, 9, 0x0e, 7, 200]) + bytes(range(200)) * 3)

inner = load("NetStack", "inner")
for key, packets in inner.items():
    if not isinstance(packets, list):
        continue
    data = [bytes.fromhex(p.get("packet") or p.get("ping")) for p in packets if p.get("from", "client") == "client"]
    for limits in (0, 1):
        seed("NetStackFuzz", f"{key}-{limits}", bytes([limits]) + b"".join((len(p) | 0x8000).to_bytes(2, "big") + p for p in data))
    seed("NetStackFuzz", f"{key}-raw", b"\0" + b"".join(block(p) for p in data))
connect, both, reading = bytes([0x87]), bytes([0x7e]), bytes([0xfe])
write, back, finish = bytes([0x85, 0x40, 0]), bytes([0x05, 0x40, 0]), bytes([0x0a, 0x8a])
for number, script in enumerate([
    connect + reading + write * 3 + reading * 4 + finish + reading,
    connect + both + write + back + both + bytes([0x06, 1, 0]) + both + finish + both,
    connect + both + write * 2 + bytes([0x03, 0x13, 0x21, 0x11, 0x01, 0x04, 0x09, 200]) + both,
    connect * 5 + both + write + bytes([0x0b, 6]) + both + bytes([0x8b, 6]) + connect + both,
    connect + both + write + both + bytes([0x0d, 16, 0, 0, 0x0d, 24, 0x33, 57, 0, 9, 5, 0, 9, 4, 0, 9, 2]) + both,
    connect + both + write + bytes([0x0c, 0, 50, 1, 0x0c, 128, 60, 3]) + both,
    bytes([0x0f, 0, 0x1f, 2, 0x0f, 1, 0x1f, 3]) + both + bytes([0x39, 255, 0x79, 255, 0x79, 255]),
    connect + both + bytes([0x0b, 43, 0x79, 255]) + both,
    # Data for a peer that is asked whether it is there.
    connect + both + bytes([0x8b, 3, 0x49, 130]) + write + bytes([0x79, 255] * 4) + both,
]):
    for limits in (2, 3):
        seed("NetStackFuzz", f"script-{limits}-{number}", bytes([limits]) + script)

for message in load("AgentProto", "messages")["messages"]:
    data = bytes.fromhex(message["hex"])
    if message["type"].endswith("CoordinateResponse"):
        for ready in (2, 128):
            seed("CoordinatorFuzz", f"{message['name']}-{ready}", bytes([ready, 0]) + block(data) + bytes([8, 3, 0, 9, 0x84, 0]) + block(data))
    if message["type"].endswith("DERPMap"):
        for number, url in enumerate((b"https://coder.example.com", b"http://[::1]:3000/x", b"http://127.0.0.1:80")):
            seed("CoordinatorFuzz", f"{message['name']}-{number}", b"\1" + block(url) + data)
seed("CoordinatorFuzz", "updates", bytes([128, 0x1b, 0xe5, 1, 1, 2, 3, 0xe6, 2, 4, 5, 6, 0x0b, 0xe9, 0, 0x0b, 0xe5, 3, 9, 9, 9, 0x0a] + [0x11] * 16 + [9, 4, 0x84, 5]))
key = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
seed("CoordinatorFuzz", "configuration", b"""\0# A comment
[Interface]
PrivateKey=%s # mine
ListenPort = 51820
Address = 10.0.0.2/24, fd00::2/64
MTU = 1420

[Peer]
PublicKey = %s
PresharedKey = %s
AllowedIPs = fd00:1::/32,10.0.0.0/8
Endpoint = [2001:db8::1]:51821
PersistentKeepalive = 25
[Peer]
PublicKey = %s
Endpoint = vpn.example.com:443
PersistentKeepalive = off
""" % (key, key, key, key))
seed("CoordinatorFuzz", "configuration-zero", b"\0[Interface]\nPrivateKey=%s\nAddress = fd00::2, 10.0.0.2\0%s" % (key, key))
