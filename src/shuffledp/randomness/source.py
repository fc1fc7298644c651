"""Where random bits come from: the operating system and a cipher keyed by it, or a seed."""

from __future__ import annotations

import hashlib
import operator
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

BUFFER_BYTES = 1 << 18
"""How many random bytes are made at a time: they stay in the cache until they are used."""

_KEY_BYTES = 32
_CHUNK_BYTES = 1 << 16  # zeros and the keystream of a call both stay in the nearer cache
_ZEROS = memoryview(bytes(_CHUNK_BYTES))
_FEW_BYTES = 1 << 15  # a thread that needs no more in all asks the operating system: a device loads no cipher
_MOST_DRAWS = 1 << 62
_LARGE_BYTES = 1 << 16  # from here on a key of one's own costs less than copying and overwriting


class RandomSource(Protocol):
    """Something that fills a buffer with independent uniform bytes."""

    @property
    def secure(self) -> bool:
        """Whether the bytes are unpredictable to everybody."""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite the one-dimensional contiguous array ``out`` with random bytes."""


class SystemRandomness:
    """Secure bytes: the operating system's for a few, AES-256-CTR keyed by it for more.

    A large request has a key of its own, which is forgotten at its end. Smaller ones are served from a buffer of the
    thread. What was handed out is no longer in it, and the key that made it is gone, so that nobody who reads the
    memory later learns what was drawn before. A child process starts without the buffers of its parent.
    """

    @property
    def secure(self) -> bool:
        """Always true."""
        return True

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with secure random bytes."""
        if out.nbytes >= _LARGE_BYTES:
            stream_of(self, out.nbytes)(out)
            return
        buffer = _THREAD.buffer
        if buffer is None:
            _THREAD.asked_bytes += out.nbytes
            if _THREAD.asked_bytes <= _FEW_BYTES:
                _ask_system(out)
                return
            buffer = _THREAD.buffer = _Buffer()
        buffer.take(out)


class InsecureSeededRandomness:
    """Reproducible bytes from a seed, for tests and studies. Whoever knows the seed knows the noise.

    An estimate made with it says that it carries no privacy guarantee. A seed gives the same result wherever the
    same code draws from it: the compiled kernels and their twins in numpy have the same distributions, but use the
    bytes differently, and so may versions of this package.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=10, epsilon=1.0, delta=0.1)
    >>> protocol.run([1, 0] * 5, source=sdp.InsecureSeededRandomness(7)).secure
    False
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int | np.integer):
            raise ParameterError(f"{seed!r} cannot be a seed; a whole number is needed.", seed=seed)
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


def number_of_draws(size: int) -> int:
    """The size that was asked for, if so many can be drawn."""
    try:
        number = operator.index(size)
    except TypeError:
        raise ParameterError(f"{size!r} numbers cannot be drawn; a whole number is needed.", size=size) from None
    if not 0 <= number <= _MOST_DRAWS:
        raise ParameterError(f"{number} numbers cannot be drawn; ask for 0 to 2^62.", size=number)
    return number


def fill_of(source: RandomSource) -> Callable[[NDArray[np.uint8]], None]:
    """What overwrites arrays with random bytes of the source, if it is one."""
    if type(source) is SystemRandomness:  # the usual one, quickly
        return source.fill
    if isinstance(source, type):
        given = f"the class {source.__name__}"
    elif callable(getattr(source, "fill", None)):
        return source.fill
    else:
        given = f"an object of type {type(source).__name__}"
    raise ParameterError(
        f"Random bits cannot come from {given}; give SYSTEM, or InsecureSeededRandomness(seed) in tests.", source=source
    )


def draw_bytes(count: int, source: RandomSource) -> NDArray[np.uint8]:
    """``count`` independent uniform bytes."""
    out = np.empty(count, dtype=np.uint8)
    fill_of(source)(out)
    return out


def draw_words(count: int, dtype: type[np.unsignedinteger[Any]], source: RandomSource) -> NDArray[Any]:
    """``count`` independent uniform unsigned integers of the given width."""
    width = np.dtype(dtype).itemsize
    return draw_bytes(count * width, source).view(dtype)


def stream_of(source: RandomSource, expected_bytes: int) -> Callable[[NDArray[np.uint8]], None]:
    """What fills one buffer after the other for one job that needs about so many bytes.

    It is ``source.fill``; but a large job of the system's source has one key, which is gone when the job lets go of
    what is returned here. So it must not be kept. In a child process it has no part in its parent's stream.
    """
    if type(source) is not SystemRandomness or expected_bytes < _LARGE_BYTES:
        return fill_of(source)
    owner = os.getpid()
    cipher = _encryptor(os.urandom(_KEY_BYTES), nonce=0)

    def fill(out: NDArray[np.uint8]) -> None:
        _write_keystream(cipher, out)
        if os.getpid() != owner:
            _write_keystream(_encryptor(os.urandom(_KEY_BYTES), nonce=0), out)

    return fill


class _Buffer:
    """One thread's unused keystream.

    The first bytes of every buffer are the key of the next one and leave the buffer at once.
    """

    __slots__ = ("__weakref__", "_busy", "_bytes", "_gone", "_key", "_owner", "_used")

    def __init__(self) -> None:
        self._busy = self._gone = False
        self._owner = os.getpid()
        self._key = bytearray(_KEY_BYTES)
        self._bytes = np.zeros(BUFFER_BYTES, dtype=np.uint8)
        self._used = BUFFER_BYTES
        _BUFFERS.add(self)  # before it has a key: a child of this moment must know that it is not its own
        self._key[:] = os.urandom(_KEY_BYTES)

    def take(self, out: NDArray[np.uint8]) -> None:
        """Hand out unused bytes and overwrite them; what is left over when a buffer runs low is lost."""
        if self._busy or self._is_of_another():  # a signal's handler draws while this thread is in here
            _ask_system(out)
            return
        self._busy = True
        try:
            if out.nbytes > BUFFER_BYTES - self._used:
                self._refill()
            piece = self._bytes[self._used : self._used + out.nbytes]
            self._used += out.nbytes
            out[:] = piece
            piece.fill(0)
            if self._is_of_another():  # such a handler forked, and this is the child
                _ask_system(out)
        finally:
            self._busy = False

    def _is_of_another(self) -> bool:
        """Whether this process is a child; some are made without telling Python."""
        return self._gone or self._owner != os.getpid()

    def _refill(self) -> None:
        self._used = BUFFER_BYTES  # should the cipher fail, nothing is handed out twice
        _write_keystream(_encryptor(self._key, nonce=0), self._bytes)
        self._key[:] = self._bytes[:_KEY_BYTES].data
        self._bytes[:_KEY_BYTES] = 0
        self._used = _KEY_BYTES

    def wipe(self) -> None:
        """Forget everything; the key too, so that the buffer is of no further use."""
        self._bytes.fill(0)
        self._key[:] = bytes(_KEY_BYTES)
        self._gone = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("Unused random bytes are neither copied nor pickled.")


class _Thread(threading.local):
    """What a thread has of its own."""

    buffer: _Buffer | None = None
    asked_bytes = 0


_THREAD = _Thread()
_BUFFERS: WeakSet[_Buffer] = WeakSet()


def _forget_buffers() -> None:
    """In a child process: the parent goes on drawing from its buffers."""
    global _THREAD
    _THREAD = _Thread()
    for buffer in list(_BUFFERS):
        buffer.wipe()
    _BUFFERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_buffers)


def _ask_system(out: NDArray[np.uint8]) -> None:
    out[:] = np.frombuffer(os.urandom(out.nbytes), dtype=np.uint8)


def _encryptor(key: bytes | bytearray, *, nonce: int) -> CipherContext:
    # not at import time: one user's few bytes come from the operating system
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES256(key), modes.CTR(nonce.to_bytes(16, "big"))).encryptor()


def _write_keystream(cipher: CipherContext, out: NDArray[np.uint8]) -> None:
    view = out.data.cast("B")
    for start in range(0, out.nbytes, _CHUNK_BYTES):
        piece = view[start : start + _CHUNK_BYTES]
        cipher.update_into(_ZEROS[: len(piece)], piece)
