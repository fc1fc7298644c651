"""Test vectors of sealed messages, and the results of opening them."""

from __future__ import annotations

from collections.abc import Callable

from shuffledp.collection.wire.sealing import SUITE_NAME, sealed_size, sealing_info
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import ANALYZER, OTHER_ANALYZER, seal, secret_of


def sealing_file() -> Document:
    """The content of sealing.json."""
    task_id, size = task_of("sum/split-and-mix").id, 2
    info = sealing_info(task_id)
    good: dict[str, bytes] = {"a message": b"\x01\xab\xcd", "a message of zeros": b"\x01\x00\x00", "a dummy": bytes(3)}
    sealed = seal("opening", b"\x01\xab\xcd", info)
    flip: Callable[[int], bytes] = lambda at: sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]  # noqa: E731
    bad = {
        "too short": ("wrong-size", sealed[:-1]),
        "too long": ("wrong-size", sealed + b"\x00"),
        "nothing": ("wrong-size", b""),
        "the encapsulated key is another": ("cannot-be-opened", flip(0)),
        "the highest bit of the encapsulated key": (
            "cannot-be-opened",
            sealed[:31] + bytes([sealed[31] ^ 128]) + sealed[32:],
        ),
        "a point of small order": ("cannot-be-opened", bytes(32) + sealed[32:]),
        "the content is another": ("cannot-be-opened", flip(32)),
        "the tag is another": ("cannot-be-opened", flip(len(sealed) - 1)),
        "sealed to another key": ("cannot-be-opened", seal("other key", b"\x01\xab\xcd", info, OTHER_ANALYZER)),
        "sealed for another task": ("cannot-be-opened", seal("other task", b"\x01\xab\xcd", sealing_info(bytes(32)))),
        "sealed for another role": (
            "cannot-be-opened",
            seal("other role", b"\x01\xab\xcd", info.replace(b"analyzer", b"shuffler")),
        ),
        "sealed for another version": (
            "cannot-be-opened",
            seal("version", b"\x01\xab\xcd", info.replace(b"v1", b"v2")),
        ),
        "sealed without info": ("cannot-be-opened", seal("no info", b"\x01\xab\xcd", b"")),
        "a dummy that is not zero": ("malformed", seal("bad dummy", b"\x00\x00\x01", info)),
        "neither message nor dummy": ("malformed", seal("bad kind", b"\x02\xab\xcd", info)),
    }
    return {
        "about": "Sealed messages and what opening each of them must give.",
        "suite": {"name": SUITE_NAME, "kem": "0x0020", "kdf": "0x0001", "aead": "0x0001", "mode": "base", "aad": ""},
        "analyzer": {"public": ANALYZER.public.raw.hex(), "private": ANALYZER.secret.hex()},
        "task_id": task_id.hex(),
        "info": info.hex(),
        "message_size": size,
        "sealed_size": sealed_size(size),
        "good": [
            {
                "name": name,
                "ephemeral": secret_of(f"ephemeral {name}").hex(),
                "content": content.hex(),
                "sealed": seal(name, content, info).hex(),
                "opened": {"message": content[1:].hex()} if content[0] else {"dummy": True},
            }
            for name, content in good.items()
        ],
        "bad": [{"name": name, "reason": reason, "sealed": content.hex()} for name, (reason, content) in bad.items()],
    }
