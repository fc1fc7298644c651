"""Test vectors of packed messages, and of reports made of sealed messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.sealing import sealing_info
from shuffledp.messages import MessageFormat
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import seal, secret_of


def report_file() -> Document:
    """The content of report.json."""
    task = task_of("histogram/balcer-cheu")
    form, info = ReportFormat.of(task), sealing_info(task.id)
    contents = [b"\x01\x40", b"\x01\x00", b"\x00\x00", b"\x01\x40"]
    sealed = [seal(f"report {place}", content, info) for place, content in enumerate(contents)]
    report_id = secret_of("report id")[:16]
    good = form.build(report_id, sealed)
    other = bytes.fromhex("00" * 31 + "01")
    bad = {
        "one byte short": ("size", good[:-1]),
        "one byte long": ("size", good + b"\x00"),
        "a message is missing": ("size", good[: -form.sealed_size]),
        "nothing": ("size", b""),
        "another beginning": ("magic", b"SDPX" + good[4:]),
        "version 0": ("version", good[:4] + b"\x00" + good[5:]),
        "version 2": ("version", good[:4] + b"\x02" + good[5:]),
        "another task": ("task", good[:5] + other + good[37:]),
    }
    return {
        "about": "How messages are packed, and how a report is built of sealed ones.",
        "message_formats": _message_formats(),
        "task": "histogram/balcer-cheu",
        "task_id": task.id.hex(),
        "messages": form.messages,
        "sealed_size": form.sealed_size,
        "report_size": form.size,
        "good": [
            {
                "name": "two messages for the category 1, one for 0, a dummy",
                "report_id": report_id.hex(),
                "sealed": [each.hex() for each in sealed],
                "report": good.hex(),
                "opened": [
                    {"parts": [hex(content[1] >> 6)]} if content[0] else {"dummy": True} for content in contents
                ],
            }
        ],
        "bad": [{"name": name, "reason": reason, "report": report.hex()} for name, (reason, report) in bad.items()],
    }


def _message_formats() -> list[Document]:
    cases: list[tuple[MessageFormat, list[list[int]]]] = [
        (MessageFormat((2,)), [[0], [1]]),
        (MessageFormat((3,)), [[0], [1], [2]]),
        (MessageFormat((65536,)), [[0], [1], [258], [65535]]),
        (MessageFormat((1000,), flags=1), [[0, 0], [999, 1], [513, 0]]),
        (MessageFormat((5, 300, 2), flags=3), [[4, 299, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0]]),
        (MessageFormat((1 << 64,)), [[0], [(1 << 64) - 1], [0x0123456789ABCDEF]]),
        (MessageFormat((), flags=11), [[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]),
    ]
    return [
        {
            "bounds": [hex(bound) for bound in form.bounds],
            "flags": form.flags,
            "bits": form.bits,
            "size": form.size,
            "good": [
                {"parts": [hex(part) for part in parts], "packed": _packed(form, parts).hex()} for parts in messages
            ],
            "bad": _bad_packed(form),
        }
        for form, messages in cases
    ]


def _packed(form: MessageFormat, parts: Sequence[int]) -> bytes:
    values = np.array([parts], dtype=form.dtype)
    return bytes(form.pack(values[:, 0] if form.columns == 1 else values)[0])


def _bad_packed(form: MessageFormat) -> list[Document]:
    """Ones everywhere: a part outside its bounds, or a bit after the end, unless all bytes are messages."""
    if form.codes == 1 << (8 * form.size):
        return []
    return [{"packed": (b"\xff" * form.size).hex(), "reason": "outside-domain"}]
