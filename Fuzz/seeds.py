#!/usr/bin/env python3
"""Writes seed files for the fuzzers from the recorded vectors: seeds.py OUTPUT-DIRECTORY."""
import json
import pathlib
import sys

vectors = pathlib.Path(__file__).resolve().parent.parent / "Tests" / "DRPCTests" / "Vectors"
out = pathlib.Path(sys.argv[1])
for name in ("FrameFuzz", "ServerFuzz", "WebSocketFuzz"):
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

stack = json.loads((vectors.parent.parent / "WebSocketsTests" / "Vectors" / "websocket_stack.json").read_text())
for direction, role in (("s2c", b"\x00"), ("c2s", b"\x01")):
    frames = [bytes.fromhex(chunk["hex"]) for chunk in stack["tcp"][2:] if chunk["dir"] == direction and "hex" in chunk]
    (out / "WebSocketFuzz" / direction).write_bytes(role + b"".join(frames))
    for number, frame in enumerate(frames):
        (out / "WebSocketFuzz" / f"{direction}-{number}").write_bytes(role + frame)
