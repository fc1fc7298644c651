"""Random bytes: secure by default, a seed only by name."""

import os
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import shuffledp
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness, draw_bytes, draw_words
from shuffledp.testing.statistics import ALPHA, p_value


@pytest.mark.parametrize("size", [0, 1, 15, 4096, 4097, (1 << 18) - 1, 1 << 18, (1 << 18) + 17, 3_000_001])
def test_every_byte_is_filled(size):
    first, second = draw_bytes(size, SYSTEM), draw_bytes(size, SYSTEM)
    assert len(first) == size
    if size > 100:
        assert (first != second).mean() > 0.9
        assert (first[-64:] != second[-64:]).any()


@pytest.mark.parametrize("size", [4096, 2_000_000])
def test_bytes_are_uniform(size):
    """All 256 values; a source stuck in one bit would be rejected."""
    drawn = np.concatenate([draw_bytes(size, SYSTEM) for _ in range(max(1, 2_000_000 // size))])
    law = np.full(256, 1 / 256)
    assert p_value(np.bincount(drawn, minlength=256), law) > ALPHA
    assert p_value(np.bincount(drawn | 1, minlength=256), law) < ALPHA


def test_large_requests_are_the_keystream_of_a_fresh_key(monkeypatch):
    keys = []

    def urandom(size):
        keys.append(bytes(range(len(keys), len(keys) + size)))
        return keys[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    first, second = draw_bytes(600_000, SYSTEM), draw_bytes(600_000, SYSTEM)
    assert [len(key) for key in keys] == [32, 32]
    for key, drawn in zip(keys, (first, second), strict=True):
        cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        assert cipher.update(bytes(600_000)) == drawn.tobytes()


def test_the_system_source_keeps_no_state():
    assert SYSTEM.secure
    assert vars(SYSTEM) == {}


def test_children_and_threads_draw_different_bytes():
    read, write = os.pipe()
    child = os.fork() if not threading.active_count() > 1 else None
    if child == 0:
        os.write(write, draw_bytes(8192, SYSTEM).tobytes()[:64])
        os._exit(0)
    if child is not None:
        os.waitpid(child, 0)
        assert os.read(read, 64) != draw_bytes(8192, SYSTEM).tobytes()[:64]
    os.close(read)
    os.close(write)
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


def test_the_seeded_twin_is_not_a_public_name():
    assert not any("seed" in name.lower() for name in shuffledp.__all__)


def test_words_have_the_right_width():
    for dtype in (np.uint8, np.uint16, np.uint32, np.uint64):
        words = draw_words(1000, dtype, SYSTEM)
        assert words.dtype == dtype
        assert len(words) == 1000
        assert int(words.max()) > np.iinfo(dtype).max // 2
