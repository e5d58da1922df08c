#!/usr/bin/env python3
"""Writes seed files for the fuzzers from the recorded vectors: seeds.py OUTPUT-DIRECTORY."""
import json
import pathlib
import sys

vectors = pathlib.Path(__file__).resolve().parent.parent / "Tests" / "DRPCTests" / "Vectors"
out = pathlib.Path(sys.argv[1])
for name in ("FrameFuzz", "ServerFuzz", "BoundaryFuzz"):
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

boundary = vectors.parent.parent / "BoundaryLogTests" / "Vectors" / "boundary_frames.json"
for number, vector in enumerate(json.loads(boundary.read_text())["vectors"]):
    if "hex" in vector:
        data = bytes.fromhex(vector["hex"])
        (out / "BoundaryFuzz" / f"frame-{number}").write_bytes(data)
        (out / "BoundaryFuzz" / f"payload-{number}").write_bytes(data[4:])
