"""Random bytes: secure by default, a seed only by name."""

import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import shuffledp
from shuffledp.errors import ParameterError
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, RepeatableRandomness, draw_bytes, draw_words, source
from shuffledp.randomness.source import BUFFER_BYTES, stream_of
from shuffledp.testing.statistics import ALPHA, p_value


@pytest.mark.parametrize(
    "size", [0, 1, 15, 4096, 4097, 65_535, 65_536, (1 << 18) - 1, 1 << 18, (1 << 18) + 17, 3_000_001]
)
def test_every_byte_is_filled(size):
    first, second = draw_bytes(size, SYSTEM), draw_bytes(size, SYSTEM)
    assert len(first) == size
    if size > 100:
        assert (first != second).mean() > 0.9
        assert (first[-64:] != second[-64:]).any()


@pytest.mark.parametrize("size", [4096, 10_000, 2_000_000])
def test_bytes_are_uniform(size):
    """All 256 values; a source stuck in one bit would be rejected."""
    drawn = np.concatenate([draw_bytes(size, SYSTEM) for _ in range(max(1, 2_000_000 // size))])
    distribution = np.full(256, 1 / 256)
    assert p_value(np.bincount(drawn, minlength=256), distribution) > ALPHA
    assert p_value(np.bincount(drawn | 1, minlength=256), distribution) < ALPHA


@pytest.fixture
def keys(monkeypatch):
    """The keys that the operating system hands out, one after the other, to a thread that will have a buffer."""
    given = []

    def urandom(size):
        given.append(bytes(place % 256 for place in range(len(given), len(given) + size)))
        return given[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    thread = source._Thread()
    thread.asked_bytes = source._FEW_BYTES
    monkeypatch.setattr(source, "_THREAD", thread)
    return given


def keystream(key, size):
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def test_large_requests_are_the_keystream_of_a_fresh_key(keys):
    first, second = draw_bytes(600_000, SYSTEM), draw_bytes(600_000, SYSTEM)
    assert [len(key) for key in keys] == [32, 32]
    for key, drawn in zip(keys, (first, second), strict=True):
        assert keystream(key, 600_000) == drawn.tobytes()


def test_smaller_requests_come_from_a_buffer_that_is_keyed_anew(keys):
    """Its first bytes are the next key, and the others are handed out once each, in order."""
    drawn = b"".join(draw_bytes(50_000, SYSTEM).tobytes() for _ in range(12))
    key, expected = bytes(range(32)), b""
    for _ in range(3):
        stream = keystream(key, BUFFER_BYTES)
        key, usable = stream[:32], stream[32:]
        expected += usable[: len(usable) // 50_000 * 50_000]  # what does not suffice for a request is lost
    assert drawn == expected[: len(drawn)]
    assert len(keys) == 1


def test_what_was_used_is_gone(keys):
    drawn = draw_bytes(10_000, SYSTEM)
    buffer = source._THREAD.buffer
    stream = keystream(keys[0], BUFFER_BYTES)
    assert not buffer._bytes[: 32 + len(drawn)].any()
    assert buffer._bytes[32 + len(drawn) :].tobytes() == stream[32 + len(drawn) :]
    assert bytes(buffer._key) == stream[:32] != keys[0]
    buffer.wipe()
    assert not buffer._bytes.any()
    assert not any(buffer._key)


def test_a_failing_cipher_hands_out_nothing_twice(keys, monkeypatch):
    first = draw_bytes(60_000, SYSTEM)

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(source, "_encryptor", fail)
    for _ in range(3):
        draw_bytes(60_000, SYSTEM)
    for _ in range(2):
        with pytest.raises(MemoryError):
            draw_bytes(60_000, SYSTEM)
    monkeypatch.undo()
    assert not np.array_equal(draw_bytes(60_000, SYSTEM), first)


def test_a_handler_that_draws_in_between_gets_other_bytes(keys):
    """As a signal's handler would, while its thread is taking bytes from the buffer."""
    draw_bytes(5000, SYSTEM)
    buffer = source._THREAD.buffer
    used = buffer._used
    buffer._busy = True
    draw_bytes(5000, SYSTEM)
    assert buffer._used == used
    assert len(keys[-1]) == 5000
    buffer._busy = False
    draw_bytes(5000, SYSTEM)
    assert buffer._used == used + 5000
    buffer.wipe()
    assert draw_bytes(5000, SYSTEM).tobytes() == keys[-1] != bytes(5000)


def test_a_buffer_is_neither_copied_nor_pickled():
    draw_bytes(40_000, SYSTEM)
    for spread in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            spread(source._THREAD.buffer)
    assert vars(SYSTEM) == {}
    assert SYSTEM.secure
    assert pickle.loads(pickle.dumps(SYSTEM)).secure


def test_few_bytes_load_no_cipher():
    """A device that draws little starts quickly; the same check must notice one that draws more."""
    script = "import sys; from shuffledp.randomness import *; [draw_bytes({}, SYSTEM) for _ in range(8)]; "
    script += "print('cryptography' in sys.modules)"
    for size, loaded in ((0, "False"), (4096, "False"), (4097, "True")):
        told = subprocess.run([sys.executable, "-c", script.format(size)], capture_output=True, text=True, check=True)
        assert told.stdout.strip() == loaded


def test_a_job_has_one_key(keys):
    fill = stream_of(SYSTEM, 1 << 20)
    parts = [np.empty(70_000, dtype=np.uint8) for _ in range(3)]
    for part in parts:
        fill(part)
    assert [len(key) for key in keys] == [32]
    assert np.concatenate(parts).tobytes() == keystream(keys[0], 210_000)
    assert stream_of(SYSTEM, 1 << 10) == SYSTEM.fill
    seeded = InsecureSeededRandomness(1)
    assert stream_of(seeded, 1 << 30) == seeded.fill


FORKING = """
import os, sys, threading
from shuffledp.randomness import SYSTEM, draw_bytes, source
source._FEW_BYTES = 0
ready, done = threading.Event(), threading.Event()
def other():
    draw_bytes(5000, SYSTEM)
    others.append(source._THREAD.buffer)
    ready.set()
    done.wait()
others = []
draw_bytes(5000, SYSTEM)
mine = source._THREAD.buffer
if sys.argv[1] == "threads":
    threading.Thread(target=other).start()
    ready.wait()
else:
    others.append(mine)
child = os.fork()
if child == 0:
    left = [bool(each._bytes.any() or any(each._key)) for each in (mine, *others)]
    kept = source._THREAD.buffer
    print("child", left, kept, draw_bytes(5000, SYSTEM)[:16].tobytes().hex(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
print("parent", source._THREAD.buffer is mine, draw_bytes(5000, SYSTEM)[:16].tobytes().hex(), flush=True)
"""


@pytest.mark.parametrize("threads", ["threads", "alone"])
def test_a_child_has_nothing_of_its_parents_buffers(threads):
    command = [sys.executable, "-W", "ignore", "-c", FORKING, threads]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    child, parent = (next(line for line in told if line.startswith(who)) for who in ("child", "parent"))
    assert child.startswith("child [False, False] None ")
    assert parent.startswith("parent True ")
    assert child.split()[-1] != parent.split()[-1]


FORKING_UNTOLD = """
import ctypes, os, signal, sys
import numpy as np
from shuffledp.randomness import SYSTEM, draw_bytes, source
from shuffledp.randomness.source import stream_of

moment = sys.argv[1]
fork = ctypes.CDLL(None).fork  # without Python's hooks
if moment == "buffer":
    for _ in range(20):
        draw_bytes(5000, SYSTEM)
    assert source._THREAD.buffer is not None
    child = fork()
    drawn = draw_bytes(5000, SYSTEM)
elif moment == "stream":
    fill, drawn = stream_of(SYSTEM, 1 << 20), np.empty(1 << 17, dtype=np.uint8)
    fill(drawn)
    child = fork()
    fill(drawn)
else:  # while a buffer is being made
    children, urandom = [], os.urandom

    def forking(size):
        key = urandom(size)
        if size == 32 and not children:
            children.append(os.fork())
        return key

    os.urandom = forking
    for _ in range(20):
        drawn = draw_bytes(5000, SYSTEM)
    child = children[0]
if child:
    os.waitpid(child, 0)
os.write(1, f"{'parent' if child else 'child'} {drawn[-16:].tobytes().hex()}\\n".encode())
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no such children")
@pytest.mark.parametrize("moment", ["buffer", "stream", "making"])
def test_a_child_that_nobody_told_of_draws_other_bytes(moment):
    command = [sys.executable, "-W", "ignore", "-c", FORKING_UNTOLD, moment]
    told = dict(
        line.split() for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    )
    assert set(told) == {"child", "parent"}
    assert told["child"] != told["parent"]


def test_arrays_of_several_dimensions_are_filled_whole():
    for given in (SYSTEM, InsecureSeededRandomness(1)):
        out = np.zeros((1000, 1000), dtype=np.uint8)
        given.fill(out)
        assert (out == 0).mean() < 0.01


def test_threads_draw_different_bytes():
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(draw_bytes(8192, SYSTEM).tobytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8


def test_a_seed_repeats_and_says_that_it_is_insecure():
    first, second, other = (InsecureSeededRandomness(seed) for seed in (7, 7, 8))
    assert not first.secure
    a, b, c = (np.concatenate([draw_bytes(10, s), draw_bytes(600_000, s)]) for s in (first, second, other))
    assert np.array_equal(a, b)
    assert (a != c).mean() > 0.9
    assert not np.array_equal(draw_bytes(100, first), draw_bytes(100, InsecureSeededRandomness(7)))


def test_a_seeded_source_is_public_only_under_a_name_that_says_insecure():
    assert [name for name in shuffledp.__all__ if "seed" in name.lower()] == ["InsecureSeededRandomness"]


def test_words_have_the_right_width():
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        words = draw_words(1000, dtype, SYSTEM)
        assert words.dtype == dtype
        assert len(words) == 1000
        assert int(words.max()) > np.iinfo(dtype).max // 2


def test_repeatable_bytes_follow_from_key_and_label():
    key = RepeatableRandomness.new_key()

    def drawn(key, label):
        source = RepeatableRandomness(key, label)
        return draw_bytes(100_000, source).tobytes() + draw_bytes(40, source).tobytes()

    assert drawn(key, b"a") == drawn(key, b"a")
    assert len({drawn(key, b"a"), drawn(key, b"b"), drawn(key, b""), drawn(RepeatableRandomness.new_key(), b"a")}) == 4
    assert RepeatableRandomness(key, b"a").secure
    counts = np.bincount(np.frombuffer(drawn(key, b"a"), dtype=np.uint8), minlength=256)
    assert p_value(counts, np.full(256, 1 / 256)) > ALPHA
    with pytest.raises(ParameterError, match="32 bytes"):
        RepeatableRandomness(b"short", b"a")
