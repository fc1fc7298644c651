"""Exact Bernoulli sampling of many bits with one probability: as flags, as a bitmap, or as the indices of the ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.errors import ParameterError
from shuffledp.native import ACTIVE
from shuffledp.randomness.binomial import binomial, power_table
from shuffledp.randomness.dyadic import Dyadic, Probability
from shuffledp.randomness.samplers import integers
from shuffledp.randomness.source import (
    BUFFER_BYTES,
    SYSTEM,
    RandomSource,
    draw_bytes,
    fill_of,
    number_of_draws,
    stream_of,
)

if ACTIVE:
    from shuffledp.native import _bits

_CHUNK = 1 << 20

_FEW = 1 << 12  # up to this size numpy is as fast as the kernels and uses fewer random bytes
_FEW_FOR_A_TABLE = 1 << 16  # up to this size drawing the bits is faster than building a table
_LARGEST_RARE = 0.06  # up to this probability it is faster to draw the number of ones in a block and their indices
_GROUP_BITS = 9  # 512 bits are drawn at once
_GROUP_BYTES = 64
_MAX_DIGITS = 64
_USUAL_ROUNDS = 8  # 512 drawn bits take about 7.5 times 512 random bits
_TIES = 1 << 12  # capacity for the indices of ties
_ONES_PER_BLOCK = 8
_LARGEST_MARKED_BLOCK = 12  # binary logarithm of the largest block that has a bitmap
_BLOCKS_AT_ONCE = 1 << 13
_SPARE = 64  # extra indices to replace duplicates; multiplied if a block cannot be completed

_LARGEST_SPARSE = 1 / 64  # in numpy: above this probability it is faster to draw every bit
_ONES_PER_SPARSE_BLOCK = 1 << 12
_MIN_PROBABILITY = 2.0**-200  # avoids an overflow; blocks never become this long


def bernoulli(probability: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.bool_]:
    """``size`` independent bits, each true with exactly ``probability``."""
    probability = Dyadic.of(probability)
    size = number_of_draws(size)
    out = np.empty(size, dtype=np.bool_)
    if probability.numerator in (0, 1 << probability.bits):
        out.fill(probability.numerator > 0)
    elif ACTIVE and size > _FEW:
        for start, bitmap in _bitmaps(probability, size, source):
            _bits.spread_bits(bitmap, out[start : start + _CHUNK].view(np.uint8))
    else:
        _draw_flags(probability, out, source)
    return out


def bernoulli_bits(probability: Probability, size: int, source: RandomSource = SYSTEM) -> NDArray[np.uint8]:
    """``size`` independent bits as a bitmap: bit i is bit i mod 8 of byte i // 8, least significant first.

    Padding bits are zero. ``np.unpackbits(bitmap, count=size, bitorder="little")`` converts it to flags.
    """
    probability = Dyadic.of(probability)
    size = number_of_draws(size)
    out = np.empty(-(-size // 8), dtype=np.uint8)
    if probability.numerator in (0, 1 << probability.bits):
        out.fill(255 * (probability.numerator > 0))
        _clear_after(out, size)
    elif ACTIVE and size > _FEW:
        for start, bitmap in _bitmaps(probability, size, source):
            piece = out[start // 8 : (start + _CHUNK) // 8]
            piece[:] = bitmap[: len(piece)]
    else:
        for start in range(0, size, _CHUNK):
            flags = bernoulli(probability, min(_CHUNK, size - start), source)
            out[start // 8 : (start + _CHUNK) // 8] = np.packbits(flags, bitorder="little")
    return out


def bernoulli_indices(
    probability: Probability,
    size: int,
    source: RandomSource = SYSTEM,
    *,
    dtype: type[np.int64] | type[np.uint32] = np.int64,
) -> NDArray[Any]:
    """The indices of the ones among ``size`` independent bits, in increasing order.

    For small probabilities time and memory are proportional to the number of ones.
    """
    probability = Dyadic.of(probability)
    size = number_of_draws(size)
    if np.dtype(dtype) not in (np.int64, np.uint32):
        raise ParameterError(f"dtype must be int64 or uint32; got {np.dtype(dtype)}.", dtype=dtype)
    if size > np.iinfo(dtype).max:
        raise ParameterError(f"{np.dtype(dtype)} cannot index {size:,} bits.", size=size)
    if probability.numerator == 0 or size == 0:
        return np.zeros(0, dtype=dtype)
    if probability.numerator == 1 << probability.bits:
        return np.arange(size, dtype=dtype)
    if not ACTIVE or size <= _FEW:
        return _indices_of_ones(probability, size, source).astype(dtype, copy=False)
    indices = _IndexBuffer.expecting(probability, size, dtype)
    if float(probability) <= _LARGEST_RARE and size > _FEW_FOR_A_TABLE:
        _scatter_indices(probability, size, source, indices)
    else:
        for start, bitmap in _bitmaps(probability, size, source):
            indices.reserve(int(np.bitwise_count(bitmap).sum()))
            indices.length += _bits.list_bits(bitmap, start, indices.unused)
    return indices.used


# --- with the kernels


@dataclass(frozen=True)
class _Digits:
    """The binary digits of a probability: ``first`` for the kernel, ``further`` (as bytes) for ties."""

    first: NDArray[np.uint8]
    further: bytes

    def bytes_for(self, groups: int) -> int:
        """Random bytes that usually suffice for this many groups of bits, and always for one group."""
        return groups * _GROUP_BYTES * min(len(self.first), _USUAL_ROUNDS) + _GROUP_BYTES * len(self.first)


@lru_cache(maxsize=256)
def _digits(probability: Dyadic) -> _Digits:
    zeros = (probability.numerator & -probability.numerator).bit_length() - 1
    length = probability.bits - zeros  # trailing zeros never decide a comparison
    number = probability.numerator >> zeros
    first = np.array([number >> (length - 1 - i) & 1 for i in range(min(length, _MAX_DIGITS))], dtype=np.uint8)
    remaining = length - len(first)
    width = -(-remaining // 8)
    return _Digits(first, ((number & ((1 << remaining) - 1)) << (8 * width - remaining)).to_bytes(width, "big"))


def _bitmaps(probability: Dyadic, size: int, source: RandomSource) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield chunks of bits as bitmaps, each with the index of its first bit; padding bits are zero.

    Bitmaps are padded to full words. The same array is reused for the next chunk.
    """
    rarer = min(probability, probability.complement, key=float)
    rare = size > _FEW_FOR_A_TABLE and float(rarer) <= _LARGEST_RARE
    block = min(_block_bits(rarer, size), _LARGEST_MARKED_BLOCK) if rare else _GROUP_BITS
    buffer = np.empty(-(-min(size, _CHUNK) >> block) << (block - 3), dtype=np.uint8)
    with _Words(source, size // 8 if rare else size) as words:
        for start in range(0, size, _CHUNK):
            bits = min(_CHUNK, size - start)
            bitmap = buffer[: -(-bits >> block) << (block - 3)]
            if rare:
                _scatter_bits(rarer, bitmap, block, words, source)
                if rarer != probability:
                    np.bitwise_not(bitmap, out=bitmap)
            else:
                _slice_bits(_digits(probability), bitmap, words, source)
            _clear_after(bitmap, bits)
            yield start, bitmap


def _slice_bits(digits: _Digits, bitmap: NDArray[np.uint8], words: _Words, source: RandomSource) -> None:
    """Fill the bitmap by comparing uniform bits with the digits of the probability, 512 bits at a time."""
    ties = np.empty(_TIES, dtype=np.int64)
    done = 0
    while done < len(bitmap):
        piece = bitmap[done:]
        drawn = words.draw(digits.bytes_for(len(piece) // _GROUP_BYTES))
        filled, tied = _bits.slice_bits(drawn, digits.first, not digits.further, piece, ties)
        _decide_ties(piece, ties[:tied], digits.further, source)
        done += filled


def _decide_ties(bitmap: NDArray[np.uint8], ties: NDArray[np.int64], digits: bytes, source: RandomSource) -> None:
    """Compare further digits where all digits so far were equal; a tie in all digits gives a zero."""
    for digit in digits:
        if len(ties) == 0:
            return
        drawn = draw_bytes(len(ties), source)
        ones = ties[drawn < digit]
        np.bitwise_or.at(bitmap, ones >> 3, np.left_shift(1, ones & 7).astype(np.uint8))
        ties = ties[drawn == digit]


def _scatter_bits(
    probability: Dyadic, bitmap: NDArray[np.uint8], block: int, words: _Words, source: RandomSource
) -> None:
    """Fill the bitmap block by block: the number of ones is binomial, and their indices are a uniform subset."""
    bitmap.fill(0)
    counts = power_table(block, probability).draw(len(bitmap) >> (block - 3), source)
    done, spare = 0, _SPARE
    while done < len(counts):
        drawn = words.draw(_bytes_for(int(counts[done:].sum()), block, spare))
        more = _bits.scatter_bits(counts[done:], block, drawn, bitmap[done << (block - 3) :])
        done += more
        spare *= 1 if more else 4


def _scatter_indices(probability: Dyadic, size: int, source: RandomSource, indices: _IndexBuffer) -> None:
    """Append the sorted indices of the ones, drawn in the same way as by ``_scatter_bits``."""
    block = _block_bits(probability, size)
    table = power_table(block, probability)
    blocks = -(-size >> block)
    with _Words(source, 8 * blocks) as words:
        for start in range(0, blocks, _BLOCKS_AT_ONCE):
            counts = table.draw(min(_BLOCKS_AT_ONCE, blocks - start), source)
            words.allow(_bytes_for(int(counts.max()), block, _SPARE))
            indices.reserve(int(counts.sum()))
            done, spare = 0, _SPARE
            while done < len(counts):
                drawn = words.draw(_bytes_for(int(counts[done:].sum()), block, spare))
                more, written = _bits.scatter_places(counts[done:], block, start + done << block, drawn, indices.unused)
                indices.length += written
                done += more
                spare *= 1 if more else 4
    indices.length = int(np.searchsorted(indices.used, size))  # the last block may extend past the last bit


def _bytes_for(ones: int, block: int, spare: int) -> int:
    """Random bytes for this many indices in blocks of 2^block bits, with ``spare`` indices to replace duplicates."""
    return (ones + (16 * ones >> block) + spare) * next(width for width in (1, 2, 4, 8) if block <= 8 * width)


def _block_bits(probability: Dyadic, size: int) -> int:
    """The binary logarithm of the block size: about four to eight ones per block, fewer in large blocks."""
    length = probability.bits - probability.numerator.bit_length()  # 2^(-length - 1) <= probability < 2^-length
    block = length + _ONES_PER_BLOCK.bit_length() - 1
    if block > _LARGEST_MARKED_BLOCK:
        block = max(_LARGEST_MARKED_BLOCK, block - 1)
    return min(block, max(_GROUP_BITS, (size - 1).bit_length()))


class _Words:
    """The random words of one call, drawn into a reused buffer that is overwritten at the end."""

    def __init__(self, source: RandomSource, expected_bytes: int) -> None:
        self._fill = stream_of(source, expected_bytes)
        self._array = np.empty(0, dtype=np.uint64)
        self._max_bytes = BUFFER_BYTES

    def __enter__(self) -> _Words:
        return self

    def __exit__(self, *_: object) -> None:
        self._array.fill(0)  # the words reveal what was drawn

    def allow(self, size: int) -> None:
        """Allow requests of this many bytes: a block may need more than a buffer, with negligible probability."""
        self._max_bytes = max(self._max_bytes, size)

    def draw(self, size: int) -> NDArray[np.uint64]:
        """Words of ``size`` bytes in total, or a full buffer if that is less."""
        number = min(size, self._max_bytes) + 7 >> 3
        if number > len(self._array):
            self._array.fill(0)
            self._array = np.empty(number, dtype=np.uint64)
        words = self._array[:number]
        self._fill(words.view(np.uint8))
        return words


@dataclass
class _IndexBuffer:
    """A growing array of indices."""

    array: NDArray[Any]
    length: int = 0

    @classmethod
    def expecting(cls, probability: Dyadic, size: int, dtype: type[np.int64] | type[np.uint32]) -> _IndexBuffer:
        """Enough capacity for nearly every outcome; pages that are not written take no memory."""
        mean = size * probability.numerator >> probability.bits
        return cls(np.empty(min(size, mean + 8 * isqrt(mean)) + 64, dtype=dtype))

    @property
    def used(self) -> NDArray[Any]:
        return self.array[: self.length]

    @property
    def unused(self) -> NDArray[Any]:
        return self.array[self.length :]

    def reserve(self, more: int) -> None:
        """Make sure that this many more indices fit."""
        needed = self.length + more
        if needed > len(self.array):
            longer = np.empty(needed + needed // 8, dtype=self.array.dtype)
            longer[: self.length] = self.used
            self.array = longer


def _clear_after(bitmap: NDArray[np.uint8], bits: int) -> None:
    """Set the padding bits, those after the first ``bits``, to zero."""
    used_bytes, remaining_bits = divmod(bits, 8)
    if remaining_bits:
        bitmap[used_bytes] &= (1 << remaining_bits) - 1
        used_bytes += 1
    bitmap[used_bytes:] = 0


# --- in numpy


def _draw_flags(probability: Dyadic, out: NDArray[np.bool_], source: RandomSource) -> None:
    """Set each bit to whether a uniform number lies below the probability.

    One random byte decides 255 of 256 cases; further bytes are drawn only where it equals the probability's leading
    byte.
    """
    width = max(1, -(-probability.bits // 8))
    digits = (probability.numerator << (8 * width - probability.bits)).to_bytes(width, "big")
    first, further = digits[0], digits[1:].rstrip(b"\0")  # trailing zeros never decide a comparison
    undecided, fill = [], fill_of(source)
    for start in range(0, len(out), _CHUNK):
        chunk = out[start : start + _CHUNK]
        drawn = chunk.view(np.uint8)
        fill(drawn)
        if further:
            undecided.append(np.flatnonzero(drawn == first) + start)
        np.less(drawn, first, out=chunk)
    ties = np.concatenate(undecided) if undecided else np.zeros(0, dtype=np.intp)
    for digit in further:
        if len(ties) == 0:
            return
        drawn = draw_bytes(len(ties), source)
        out[ties] = drawn < digit
        ties = ties[drawn == digit]


def _indices_of_ones(probability: Dyadic, size: int, source: RandomSource) -> NDArray[np.int64]:
    """Draw every bit, or the binomial number of ones and then a uniform subset of that size."""
    if size <= _FEW or float(probability) > _LARGEST_SPARSE:
        starts = range(0, size, _CHUNK)
        chunks = [bernoulli(probability, min(_CHUNK, size - start), source) for start in starts]
        return np.concatenate([np.flatnonzero(chunk) + start for chunk, start in zip(chunks, starts, strict=True)])
    return _uniform_subset(size, _number_of_ones(probability, size, source), source)


def _number_of_ones(probability: Dyadic, size: int, source: RandomSource) -> int:
    """Bin(size, probability), as a sum over blocks of one size, whose table is short and cached."""
    block = 1 << max(0, int(_ONES_PER_SPARSE_BLOCK / max(float(probability), _MIN_PROBABILITY))).bit_length()
    blocks, remainder = divmod(size, block)
    ones = int(binomial(block, probability, blocks, source).sum()) if blocks else 0
    return ones + int(binomial(remainder, probability, 1, source)[0])


def _uniform_subset(size: int, number: int, source: RandomSource) -> NDArray[np.int64]:
    """A uniform subset of ``number`` indices below ``size``; duplicates are drawn again."""
    chosen = np.zeros(0, dtype=np.int64)
    while len(chosen) < number:
        more = integers(size, number - len(chosen), source).view(np.int64)
        chosen = np.concatenate((chosen, more))
        chosen.sort(kind="stable")  # fast on sorted runs; np.unique is many times slower
        new = np.ones(number, dtype=np.bool_)
        np.not_equal(chosen[1:], chosen[:-1], out=new[1:])
        chosen = chosen[new]
    return chosen
