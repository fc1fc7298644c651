# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Uniform integers below a bound."""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>

    /* The upper half of a product, and its lower half. */
    static uint64_t MULTIPLY(uint64_t a, uint64_t b, uint64_t *low) {
    #ifdef __SIZEOF_INT128__
        unsigned __int128 product = (unsigned __int128)a * b;
        *low = (uint64_t)product;
        return (uint64_t)(product >> 64);
    #else
        uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
        uint64_t lower = al * bl, middle = ah * bl + (lower >> 32), other = al * bh + (uint32_t)middle;
        *low = other << 32 | (uint32_t)lower;
        return ah * bh + (middle >> 32) + (other >> 32);
    #endif
    }
    """
    uint64_t MULTIPLY(uint64_t a, uint64_t b, uint64_t* low) noexcept nogil


def draw_below(const uint64_t[::1] words not None, uint64_t bound, uint64_t[::1] out not None):
    """Write exactly uniform integers below a bound: the upper half of the product of a word and the bound.

    Words whose lower half is below 2^64 modulo the bound are rejected (Lemire 2019). Returns the number of integers
    written, fewer than the size of the output if the words run out.
    """
    cdef Py_ssize_t available = words.shape[0]
    cdef Py_ssize_t size = out.shape[0]
    cdef Py_ssize_t i = 0, filled = 0
    cdef uint64_t left_over, high, low = 0
    if bound == 0:
        raise ValueError("the bound must be at least 1")
    left_over = (0 - bound) % bound  # 2^64 modulo the bound
    with nogil:
        while i < available and filled < size:
            high = MULTIPLY(words[i], bound, &low)
            i += 1
            out[filled] = high
            filled += low >= left_over
    return filled
