"""Where random bits come from: the operating system and a cipher keyed by it, or a seed."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

__all__ = [
    "SYSTEM",
    "InsecureSeededRandomness",
    "RandomSource",
    "SystemRandomness",
    "draw_bytes",
    "draw_words",
]

_CHUNK_BYTES = 1 << 18  # stays in the L2 cache: the keystream runs at full speed
_ZEROS = memoryview(bytes(_CHUNK_BYTES))
_SMALL_BYTES = 1 << 12  # below this, asking the operating system is faster than keying a cipher


class RandomSource(Protocol):
    """Something that fills a buffer with independent uniform bytes."""

    @property
    def secure(self) -> bool:
        """Whether the bytes are unpredictable to everybody."""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite the one-dimensional contiguous array ``out`` with random bytes."""


class SystemRandomness:
    """Secure bytes: the operating system's for small requests, AES-256-CTR for large ones.

    Every large request uses a fresh key from the operating system and forgets it afterwards. No
    state outlives a call, so nothing can be shared across a fork, raced by a thread or recovered
    later.
    """

    @property
    def secure(self) -> bool:
        """Always true."""
        return True

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with secure random bytes."""
        if out.nbytes <= _SMALL_BYTES:
            out[:] = np.frombuffer(os.urandom(out.nbytes), dtype=np.uint8)
        else:
            _write_keystream(_encryptor(os.urandom(32), nonce=0), out)


class InsecureSeededRandomness:
    """Reproducible bytes from a seed, for tests and studies. Whoever knows the seed knows the noise.

    An estimate made with it says that it carries no privacy guarantee.
    """

    def __init__(self, seed: int) -> None:
        self._key = hashlib.sha256(b"shuffledp insecure seed %d" % seed).digest()
        self._requests = 0

    @property
    def secure(self) -> bool:
        """Always false."""
        return False

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the seed's stream."""
        self._requests += 1
        _write_keystream(_encryptor(self._key, nonce=self._requests << 64), out)


SYSTEM: RandomSource = SystemRandomness()


def draw_bytes(count: int, source: RandomSource) -> NDArray[np.uint8]:
    """``count`` independent uniform bytes."""
    out = np.empty(count, dtype=np.uint8)
    source.fill(out)
    return out


def draw_words(count: int, dtype: type[np.unsignedinteger[Any]], source: RandomSource) -> NDArray[Any]:
    """``count`` independent uniform unsigned integers of the given width."""
    width = np.dtype(dtype).itemsize
    return draw_bytes(count * width, source).view(dtype)


def _encryptor(key: bytes, *, nonce: int) -> CipherContext:
    # not at import time: one user's few bytes come from the operating system
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES256(key), modes.CTR(nonce.to_bytes(16, "big"))).encryptor()


def _write_keystream(cipher: CipherContext, out: NDArray[np.uint8]) -> None:
    view = out.data
    for start in range(0, out.nbytes, _CHUNK_BYTES):
        piece = view[start : start + _CHUNK_BYTES]
        cipher.update_into(_ZEROS[: len(piece)], piece)
