#!/usr/bin/env python3
"""Writes seed files for the fuzzers from the recorded vectors: seeds.py OUTPUT-DIRECTORY."""
import json
import pathlib
import sys

vectors = pathlib.Path(__file__).resolve().parent.parent / "Tests" / "DRPCTests" / "Vectors"
out = pathlib.Path(sys.argv[1])
for name in ("FrameFuzz", "ServerFuzz", "YamuxFuzz"):
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
