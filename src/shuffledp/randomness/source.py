"""Sources of random bytes: the operating system, AES-256-CTR keyed by it, or an insecure seed."""

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
"""The number of random bytes generated at a time: they stay in the cache until they are used."""

_KEY_BYTES = 32
_CHUNK_BYTES = 1 << 16  # zeros and keystream of one call fit the L2 cache
_ZEROS = memoryview(bytes(_CHUNK_BYTES))
_FEW_BYTES = 1 << 15  # a thread's first bytes come from the operating system, so a device never loads the cipher
_MAX_DRAWS = 1 << 62
_LARGE_BYTES = 1 << 16  # from here on a separate key costs less than copying from the buffer and overwriting it


class RandomSource(Protocol):
    """A source of independent uniform bytes."""

    @property
    def secure(self) -> bool:
        """Whether nobody can predict the bytes."""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite the one-dimensional contiguous array ``out`` with random bytes."""


class SystemRandomness:
    """Secure bytes: from the operating system for small amounts, else from AES-256-CTR keyed by it.

    A large request uses a key of its own, which is discarded afterwards. Smaller requests are served from a buffer of
    the thread. Used bytes are erased from the buffer and the key that generated them is discarded, so that reading the
    memory later does not reveal earlier draws. A child process does not inherit the buffers of its parent.
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
    """Reproducible bytes from a seed, for tests and studies. Anyone who knows the seed knows the noise.

    An estimate made with it states that it has no privacy guarantee. A seed gives the same results only with the same
    code: the compiled kernels and their numpy equivalents have the same distributions, but use the bytes differently,
    and other versions of this package may, too.

    >>> protocol = sdp.BalcerCheuCount.calibrate(users=10, epsilon=1.0, delta=0.1)
    >>> protocol.run([1, 0] * 5, source=sdp.InsecureSeededRandomness(7)).secure
    False
    """

    def __init__(self, seed: int) -> None:
        if not isinstance(seed, int | np.integer):
            raise ParameterError(f"seed must be an integer; got {seed!r}.", seed=seed)
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


class RepeatableRandomness:
    """Bytes that a secret key and a label determine: whoever lacks the key cannot predict them.

    For steps that may run again after a failure and must then give the same result, such as the grouping of records on
    a cluster. Noise is never drawn from it: a repeated step may see its input in another order. Keys come from
    ``RepeatableRandomness.new_key()``; streams with different labels are independent.
    """

    def __init__(self, key: bytes, label: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ParameterError(f"A key of repeatable randomness has {_KEY_BYTES} bytes; got {len(key)}.")
        derived = hashlib.blake2b(label, digest_size=_KEY_BYTES, key=key, person=b"sdp repeatable").digest()
        self._cipher = _encryptor(derived, nonce=0)

    @staticmethod
    def new_key() -> bytes:
        """A new secret key, from the operating system."""
        return os.urandom(_KEY_BYTES)

    @property
    def secure(self) -> bool:
        """Always true: the key is secret."""
        return True

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the stream."""
        _write_keystream(self._cipher, out)


SYSTEM: RandomSource = SystemRandomness()


def number_of_draws(size: int) -> int:
    """Check a requested number of draws and return it as an int."""
    try:
        number = operator.index(size)
    except TypeError:
        raise ParameterError(f"size must be an integer; got {size!r}.", size=size) from None
    if not 0 <= number <= _MAX_DRAWS:
        raise ParameterError(f"size must lie between 0 and 2^62; got {number}.", size=number)
    return number


def fill_of(source: RandomSource) -> Callable[[NDArray[np.uint8]], None]:
    """The ``fill`` method of a random source; anything else is rejected."""
    if type(source) is SystemRandomness:  # fast path
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
    """A function that fills buffers for one computation that needs about ``expected_bytes`` bytes.

    It is ``source.fill``, except for large amounts from the system source: then one key serves the computation and is
    discarded with the returned function, which the caller must not store. A child process that calls it after a fork
    gets bytes of a new key, not those of its parent.
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

    __slots__ = ("__weakref__", "_busy", "_bytes", "_key", "_owner", "_used", "_wiped")

    def __init__(self) -> None:
        self._busy = self._wiped = False
        self._owner = os.getpid()
        self._key = bytearray(_KEY_BYTES)
        self._bytes = np.zeros(BUFFER_BYTES, dtype=np.uint8)
        self._used = BUFFER_BYTES
        _BUFFERS.add(self)  # before it has a key: a child forked right now must recognize it as its parent's
        self._key[:] = os.urandom(_KEY_BYTES)

    def take(self, out: NDArray[np.uint8]) -> None:
        """Copy unused bytes to ``out`` and erase them; if too few are left, discard them and refill the buffer."""
        if self._busy or self._belongs_to_parent():  # busy: called by a signal handler that interrupted this method
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
            if self._belongs_to_parent():  # a signal handler forked during this call, and this is the child
                _ask_system(out)
        finally:
            self._busy = False

    def _belongs_to_parent(self) -> bool:
        """Whether this process is a child; fork hooks do not run for forks outside Python, so compare process ids."""
        return self._wiped or self._owner != os.getpid()

    def _refill(self) -> None:
        self._used = BUFFER_BYTES  # if the cipher fails, no byte is used twice
        _write_keystream(_encryptor(self._key, nonce=0), self._bytes)
        self._key[:] = self._bytes[:_KEY_BYTES].data
        self._bytes[:_KEY_BYTES] = 0
        self._used = _KEY_BYTES

    def wipe(self) -> None:
        """Erase the bytes and the key; the buffer cannot be used afterwards."""
        self._bytes.fill(0)
        self._key[:] = bytes(_KEY_BYTES)
        self._wiped = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("Unused random bytes are neither copied nor pickled.")


class _Thread(threading.local):
    """Thread-local state."""

    buffer: _Buffer | None = None
    asked_bytes = 0


_THREAD = _Thread()
_BUFFERS: WeakSet[_Buffer] = WeakSet()


def _forget_buffers() -> None:
    """Erase all buffers in a child process: its parent continues to use the same bytes."""
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
    # not at import time: a single report needs few bytes and no cipher
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES256(key), modes.CTR(nonce.to_bytes(16, "big"))).encryptor()


def _write_keystream(cipher: CipherContext, out: NDArray[np.uint8]) -> None:
    view = out.data.cast("B")
    for start in range(0, out.nbytes, _CHUNK_BYTES):
        piece = view[start : start + _CHUNK_BYTES]
        cipher.update_into(_ZEROS[: len(piece)], piece)
