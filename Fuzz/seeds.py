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
