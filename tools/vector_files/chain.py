"""Test vectors of chains: the layers of a message for two later shufflers, and layers that must not open."""

from __future__ import annotations

from shuffledp.collection.task.wire_version_2 import ShufflerKeys
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.layers import layer_info
from shuffledp.collection.wire.sealing import sealing_info
from vector_files import Document
from vector_files.keys import ANALYZER, AUTHOR, SHUFFLER, seal, secret_of
from vector_files.version_2 import ROUND_KEY, SECOND, SECOND_ROUND_KEY, second_task_of

_THIRD, _THIRD_ROUND_KEY = SigningKey(secret_of("third shuffler")), SealingKey(secret_of("third round key"))


def chain_file() -> Document:
    """The content of v2/chain.json."""
    keys = (ROUND_KEY, SECOND_ROUND_KEY, _THIRD_ROUND_KEY)
    signing = (SHUFFLER, SECOND, _THIRD)
    shufflers = tuple(ShufflerKeys(sign.public, key.public) for sign, key in zip(signing, keys, strict=True))
    task = second_task_of("histogram/balcer-cheu", shufflers=shufflers)
    inner = seal("chain inner", bytes([1, 64]), sealing_info(task.id, 2), ANALYZER)
    third = seal("chain third", inner, layer_info(2, task.id), _THIRD_ROUND_KEY)
    second = seal("chain second", third, layer_info(1, task.id), SECOND_ROUND_KEY)
    flipped = second[:31] + bytes([second[31] ^ 0x80]) + second[32:]
    bad = {
        "for the third shuffler": third + bytes(48),
        "the index of another shuffler": seal("chain hop", third, layer_info(2, task.id), SECOND_ROUND_KEY),
        "another task": seal("chain task", third, layer_info(1, bytes(32)), SECOND_ROUND_KEY),
        "another key": seal("chain key", third, layer_info(1, task.id), _THIRD_ROUND_KEY),
        "the top bit of the encapsulated key": flipped,
        "one byte short": second[:-1],
    }
    return {
        "about": "A message in a chain of three shufflers, as it arrives at the second, the third and the analyzer.",
        "content": task.signed(AUTHOR).to_bytes().decode(),
        "round_keys": [key.secret.hex() for key in keys],
        "record_sizes": [task.record_size(hop) for hop in range(3)],
        "layers": [
            {"hop": 1, "info": layer_info(1, task.id).hex(), "sealed": second.hex(), "content": third.hex()},
            {"hop": 2, "info": layer_info(2, task.id).hex(), "sealed": third.hex(), "content": inner.hex()},
        ],
        "unopenable": [{"name": name, "hop": 1, "sealed": sealed.hex()} for name, sealed in bad.items()],
    }
