"""Test vectors of enrolment tokens that are bound to a report."""

from __future__ import annotations

from shuffledp.collection.wire.tokens import authorization, token_hash, token_id
from vector_files import Document
from vector_files.keys import secret_of
from vector_files.version_2 import report_file_2


def token_file() -> Document:
    """Headers that prove a token for a report, and headers that do not."""
    report = bytes.fromhex(report_file_2()["good"][0]["report"])
    token, other = (secret_of(name).hex() for name in ("token", "other token"))
    good = {
        "token": token,
        "hash": token_hash(token.encode()).hex(),
        "id": token_id(token_hash(token.encode())).hex(),
        "report": report.hex(),
        "authorization": authorization(token, report, 2),
    }
    header = str(good["authorization"])
    moved = authorization(token, report[:-1] + bytes([report[-1] ^ 1]), 2)
    bad = [
        ("the proof of another report", moved),
        ("the proof of another token", header[: header.index("mac=")] + authorization(other, report, 2).split(" ")[-1]),
        ("one bit of the proof differs", header[:-1] + ("1" if header[-1] == "0" else "0")),
        ("capital letters", header.split(" ")[0] + " " + header.split(" ", 1)[1].upper()),
        ("no proof", header.split(",")[0]),
        ("the other order", f"SDP-Token {header.split(', ')[1]}, {header.split(' ')[1].rstrip(',')}"),
    ]
    return {
        "about": "Enrolment tokens that are bound to a report: Authorization headers, and headers that are refused.",
        "good": [good],
        "bad": [{"name": name, "authorization": text} for name, text in bad],
    }
