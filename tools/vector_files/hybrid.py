"""Test vectors of the hybrid outer suite: its keys, tasks, a report under an outer seal, and a layer of a chain.

Encapsulating with ML-KEM takes randomness that the library does not let anybody choose, so one ciphertext for each key
was made once, and is part of this module. Everything else follows from labels, written out from the specifications.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shuffledp.collection.task.series import RoundKeys, Series
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat
from shuffledp.collection.wire.keys import HybridKey, SealingKey, from_base64, to_base64
from shuffledp.collection.wire.layers import layer_info
from shuffledp.collection.wire.outer_seal import outer_info
from shuffledp.collection.wire.sealing import sealing_info
from vector_files import Document
from vector_files.keys import AUTHOR, SHUFFLER, encrypted, seal, secret_of
from vector_files.version_2 import HYBRID_ROUND_KEY, ROUND_KEY, SECOND, second_task_of, signed_task_2

_SECOND_KEY = HybridKey(secret_of("second hybrid round key"))
_ML_KEM_SIZE = 1184
_ENCAPSULATED = {  # ciphertexts of ML-KEM-768, each to the key of this label
    "hybrid round key": (
        "Jy0MhP-aZ_ST7wgx0qwh4UtP5Hb52rlIzDzrDG8CTeQG-"
        "SBbfzbrP5VhjB6GyQXixuvPA0LSrz_0VOBzrnIHYLmzntttxExuyfSGc2UXo4INI-JbDD5u3c6RCN2LJCIXWUUbI5NnsNCxC7c73p2_ESF1W"
        "ocI3Y6c5QSSp5mYlSiAyCu3bj7x5EEkmBfOXiQickh5XpUHmnHMpWG3owNbEiSCMXJ1yjSadpmuUFYaJCZ11hVI1nPmT_6YRsl9iYLroQabr"
        "w8IdBiKs7t2-x9A61-v_rdceu86deb89dNgSxdjn96l5eUzuGdpDICCVNS-htOMnsgA2eFCgWg-"
        "5IbN9YbJ_obbaFgpzPtL38WceH9Vml01ADjxJX4HobdV-K2aryapJD_0AwP1PggGsIOj1xy5SU8eOE8LCNkKAmoUN4ro7ihq1kwOJKDs-tDY"
        "AodQ2Sq7eabLzMc7s7qIn4d05g3FGyZDBCRJihvuJmAbpNuBHpf5bZybD4ThBi9PF7Yx65VDCVKFEvO6gOnoJEuAB-"
        "8hTfEaFOa8Li26U16jTBHaaFjrDbd-"
        "sqO2HhaWHU_L8f_iiUMHWj1ZWsKwMnmEYPQcrjz2Gu9O5x3tnJoVRLmuYEolw3yBrpuIiseXZ1s5XlTKxW1wdNWkTkqn-ecMNxGkSSwXK6v9"
        "64QDlKDyd1nE50p4SdMaUL0LWX8xuCYDUuKL3zPorry0T257gdc4EbhNkMQaeZqG4GEmryxjtg_ccAmVpdUZWwbKEAeYB9x-"
        "qAKo5TdHvL93q5EZz-IpYNcOiPVHEml-VdNwWHlXCyk2vJX8HKl7cw8PztgFIhYfAx2txxk3YsReTxfTyk4vGh2_fID5VtbLElfvfDdc_eRr"
        "g0YooSfuLFy70xgaoQXyqgB2J31-sNBDNH-jKiNd4kBmfs2LfHfUWrJCUqDhuONVfHokRH7J8PLGC9gEZPpzyZCRtluO7WN3GrVu7wYyjGiO"
        "rJfxh0CetYXBUODVl2A66u6AeprAv5YMy3MO4SDOaqz6j0vTNmIgWUbZ6PWY6u9kv3jhpY0p3IQJLgsk4xcW63DyUphSpYvEU1TwUg649ICJ"
        "Afg3OZbTI4itpfQo2RURvUQsNyoPH0ct7ZujuLd0ClT73p_QOn24UhMQQXN9ougj7Djv6kbLMnrSM7wqQGicqhzXTSTc0SoqKB21bil_MVOB"
        "ypc_CKQg0wjfhEHX3FBdVpH3pX1akVnb3lmZ31PAMzNhgqcIwd9647q45_yTFnk1h19Iw9NuxZRz0FuJ31ah5QBf4A7t2meP3thFKMLPhphI"
        "PCAmacDZ491ph6h2lL5Rfa8MoqgGnAGM3RwYzpeOOdIWedOaaFhfvxqXdvvRVXnCgzqD7sZ5ml8GeqAxsirkXP0TbRKA5w-"
        "dffJb7M_jFVbEbo5lmw8XOEZwXkleg-nJJqf1sRbhvudLBGQ"
    ),
    "second hybrid round key": (
        "WLjFt5k2kMHHG7SqLjfYsJWjsF8HOrKqZ18iAhI2hlZfsKnwySMuewMliWg1gTgOgHYkFEPekFLswB8eFuS_zDfu0r-"
        "U7mx0sf6IdOkdhNF5Mn7_u9XsP993FqQ0cXRxoo1N7cR_vjDODCZkvMZkRgVGOK0W8LNfTP6DWaJZxrHJamilk9DFV_C2WjNg_SRLyhxxRAn"
        "MgT3Nq7y5IfHINLlnfCZsp_3KI-"
        "HxZTcpIrIMjBQnKTo6ThCa6_jFzscYKl0slcxZHCUjvc05Bg6v_WmziGlmfenOHSpsEyjXkp3UZUq8Qir3ikP-"
        "wsUvFUdWCZ9VBkXS37rqn_SpKOpe9CcLpALeH9ypCKWtlrDsMlz-O-7QeJQ_1D3HuTtcBKew--JpfawHtJixicu4g_ko8BWej1ALTrCZQZV9"
        "JTu2nUFb48OSQjfd646pABnmlpMHt45RVZ6UgcHDcydQjXZcIH4AdfRfmAvKpKAuAY7y4l2VIMTU-kUEs9wC7gvxf5o1RQs1BXz1QB-"
        "sPPEYuM9y_bcWD9oyGQtZhQZRhXI2cvOZWT6NlV7M9tBu622X1or18waa5zaRdoIF9-NofyZ5R180USVIoZw2zwMGJpXkB8S_ubZa-bH3nn-"
        "zTZQnVTKDqY0GckoMdXJsWFHvIvuUAuQdVLP12Xzsxh1tjdSmJavr5GglHtANngeJqY_k_AlYTp84BPXcJ-YCd-"
        "9llsFZDeXJjcLmzvKBSjnJb4GbHUr83_XCLgMH7aKPonuJfEQQjlGanJHxx5ZPOLRL4sJRFwDti6pI98u64w-WKJJDcDUrmlS1xRsgTDMU-"
        "s5XOP4CKOv3KDMsIs2j88AeKS4V1n82AMngsO4UHKgaWTvE4Ak5qX8xeD4RVCXJ93K97Z9o6lNfHUt9Ntl-1Kz6uPW3-"
        "bIpVEruKAV_6175lJSguAp7Mi3Gfon1KyCNP_kjUo26I7R-"
        "1mLqUzTSeH190K3PupIneLzBXQwvqggPRwpTgWjtZdKCzbr2YaZOOKfugdoKy2Vqm_7aAAnjseqt0KVtvyZVWC7Cnj2R2UNPww63spPKM7dP"
        "MiKUizecF9mcuZ1vMcXrdp8IXAIS2VA_0reG7eG1TVeTZlLwOKsoK5o6tl9jQaqmq1cppjHg1fDK4umTzbLYLhW6uX2__vLqU9dPZ-"
        "r8mXgVqXtleCZujCTVwTvRbACj43OpqF61_JEw1JC8voUM3vZUmwrVgl-AXYpvTcP8lZEGEm0mjZborPIhVPeBepccp5U5NjD_9Ih5TmRAmZ"
        "nnoYpappFxj13fNFP-"
        "5EyDZ4xSdUHcowX0DRIGUzfWAyS6UZmJmSe9HrSpZcroKkc86eMlVU_98W2LkmfF2IyxOlLndzNe_ffVCrCwTaPgXS7tGU1UhHbKdiEODzSm"
        "tpCewFEJRhF3ehngOkQfQx9dB3v-wf2_iDxaq7_Wby8"
    ),
}


def hybrid_file() -> Document:
    """The content of v2/hybrid.json."""
    task, chain = _task((HYBRID_ROUND_KEY,)), _task((HYBRID_ROUND_KEY, _SECOND_KEY))
    form = ReportFormat.of(task)
    messages = [
        seal(f"hybrid {place}", content, sealing_info(task.id, 2))
        for place, content in enumerate([b"\x01\x40", b"\x01\x00", b"\x00\x00", b"\x01\x40"])
    ]
    report_id = secret_of("hybrid report id")[:16]
    header = b"SDPR\x02" + task.id + report_id
    good = header + _seal("hybrid round key", b"".join(messages), outer_info(header))
    at = {"ML-KEM ciphertext": 0, "X25519 key": 1088, "content": 1120, "tag": len(good) - HEADER_SIZE - 1}
    unopenable = {f"another {part}": _flipped(good, HEADER_SIZE + place, 1) for part, place in at.items()}
    unopenable |= {
        "the highest bit of the X25519 key": _flipped(good, HEADER_SIZE + 1119, 128),
        "an X25519 key of small order": good[: HEADER_SIZE + 1088] + bytes(32) + good[HEADER_SIZE + 1120 :],
        "another report id": header[:-1] + bytes([header[-1] ^ 1]) + good[HEADER_SIZE:],
        "sealed without the header": header + _seal("hybrid round key", b"".join(messages), outer_info(b"")),
        "sealed to another key": header + _seal("second hybrid round key", b"".join(messages), outer_info(header)),
    }
    inner = seal("hybrid inner", bytes([1, 64]), sealing_info(chain.id, 2))
    info = layer_info(1, chain.id)
    layer = _seal("second hybrid round key", inner, info)
    bad_layers = {
        "another ML-KEM ciphertext": _flipped(layer, 0, 1),
        "the highest bit of the X25519 key": _flipped(layer, 1119, 128),
        "the index of another shuffler": _seal("second hybrid round key", inner, layer_info(2, chain.id)),
        "another task": _seal("second hybrid round key", inner, layer_info(1, bytes(32))),
        "one byte short": layer[:-1],
    }
    return {
        "about": "The hybrid outer suite: keys from their seeds, tasks, a series, a report, and a layer of a chain.",
        "keys": [
            {"private": key.secret.hex(), "key_id": key.public.id, "public": to_base64(key.public.raw)}
            for key in (HYBRID_ROUND_KEY, _SECOND_KEY)
        ],
        "good": [
            {
                "name": name,
                "content": each.signed(AUTHOR).to_bytes().decode(),
                "id": each.id.hex(),
                "report_size": ReportFormat.of(each).size,
                "record_sizes": [each.record_size(hop) for hop in range(each.hops)],
            }
            for name, each in {"one shuffler": task, "two shufflers": chain}.items()
        ],
        "bad": _bad_tasks(task),
        "good_series": [_series().signed(AUTHOR).decode()],
        "report": {
            "report_id": report_id.hex(),
            "report_size": form.size,
            "info": outer_info(header).hex(),
            "sealed": [each.hex() for each in messages],
            "report": good.hex(),
        },
        "unopenable": [{"name": name, "report": content.hex()} for name, content in unopenable.items()],
        "layer": {"hop": 1, "info": info.hex(), "sealed": layer.hex(), "content": inner.hex()},
        "unopenable_layers": [{"name": name, "sealed": content.hex()} for name, content in bad_layers.items()],
    }


def _task(keys: tuple[HybridKey, ...]) -> Task:
    signing = (SHUFFLER, SECOND)[: len(keys)]
    shufflers = tuple(ShufflerKeys(sign.public, key.public) for sign, key in zip(signing, keys, strict=True))
    return second_task_of("histogram/balcer-cheu", shufflers=shufflers)


def _series() -> Series:
    keys = tuple(
        RoundKeys(
            SealingKey(secret_of(f"hybrid series analyzer {index}")).public,
            (HybridKey(secret_of(f"hybrid series {index}")).public,),
        )
        for index in range(2)
    )
    wire = WireVersion2((ShufflerKeys(SHUFFLER.public, keys[0].shufflers[0]),))
    task = replace(_task((HYBRID_ROUND_KEY,)), analyzer=keys[0].analyzer, wire=wire)
    return Series(task, period=604_800, keys=keys, rounds_per_device=1)


def _bad_tasks(task: Task) -> list[Document]:
    document = task.to_document()
    hybrid, of_x25519 = document["shufflers"][0]["sealing"], ROUND_KEY.public.to_document()
    raw = HYBRID_ROUND_KEY.public.raw
    keys = {
        "a key of the other suite": of_x25519,
        "the key of another kind": {**hybrid, "kind": "sealing"},
        "the id of another key": {**hybrid, "id": of_x25519["id"]},
        "a key that is too short": {**hybrid, "public": to_base64(raw[:-1])},
        "no key of ML-KEM": _key_document(b"\xff" * _ML_KEM_SIZE + raw[_ML_KEM_SIZE:]),
        "an X25519 key of low order": _key_document(raw[:_ML_KEM_SIZE] + bytes(32)),
    }
    bad = {name: _with_key(document, key) for name, key in keys.items()}
    other = second_task_of("histogram/balcer-cheu").to_document()
    bad["a hybrid key in the suite of X25519"] = _with_key(other, hybrid)
    bad["the analyzer's key is hybrid"] = {**document, "analyzer": hybrid}
    return [{"name": name, "reason": "malformed", "content": signed_task_2(each)} for name, each in bad.items()]


def _with_key(document: Document, key: Document) -> Document:
    changed = copy.deepcopy(document)
    changed["shufflers"][0]["sealing"] = key
    return changed


def _key_document(raw: bytes) -> Document:
    key_id = hashlib.sha256(b"shuffledp hybrid-sealing key\n" + raw).hexdigest()[:16]
    return {"kind": "hybrid-sealing", "id": key_id, "public": to_base64(raw)}


def _seal(label: str, content: bytes, info: bytes) -> bytes:
    """A seal to the key of a label, with an ephemeral X25519 key that follows from it."""
    expanded = hashlib.shake_256(secret_of(label)).digest(96)
    ephemeral, ciphertext = X25519PrivateKey.from_private_bytes(secret_of(f"ephemeral {label}")), _ciphertext(label)
    public = X25519PrivateKey.from_private_bytes(expanded[64:]).public_key().public_bytes_raw()
    sent = ephemeral.public_key().public_bytes_raw()
    secrets = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).decapsulate(ciphertext) + ephemeral.exchange(
        X25519PublicKey.from_public_bytes(public)
    )
    shared = hashlib.sha3_256(secrets + sent + public + b"\\.//^\\").digest()
    return ciphertext + sent + encrypted(b"\x64\x7a", shared, content, info)


def _ciphertext(label: str) -> bytes:
    return from_base64(_ENCAPSULATED[label], 1088)


def _flipped(content: bytes, at: int, bits: int) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]
