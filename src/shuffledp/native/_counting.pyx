# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Counting of occurrences of each value."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

ctypedef fused value_t:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


def count_in_four(const value_t[::1] values not None, uint64_t limit, uint32_t[:, ::1] tables not None):
    """Count the values below ``limit`` in four tables, whose sum is the result; returns whether all are below.

    Successive equal values are counted in different tables, which avoids store-to-load dependencies; for few different
    values. At most 2^32 - 1 values are supported. If a value is not below the limit, the counts are undefined.
    """
    cdef Py_ssize_t width = tables.shape[1], length = values.shape[0]
    cdef bint inside
    if tables.shape[0] != 4 or limit > <uint64_t> width:
        raise ValueError("four tables are needed, at least as wide as the limit")
    if length == 0 or limit == 0:
        return length == 0
    if _overlap(&values[0], length * sizeof(value_t), &tables[0, 0], 4 * width * sizeof(uint32_t)):
        raise ValueError("the tables must not overlap the values")
    with nogil:
        inside = _count_in_four(&values[0], length, limit, &tables[0, 0], width)
    return inside


def count_in_bytes(
    const value_t[::1] values not None, uint64_t limit, uint8_t[::1] low not None, int64_t[::1] high not None
):
    """Count the values below ``limit`` in bytes, with carries of 256 to ``high``; the result is the sum of both.

    A table of bytes fits a smaller cache; for many different values. If ``low`` is empty, everything is counted in
    ``high``. Returns the number of additions to ``high``, or -1 if a value is not below the limit; then the counts are
    undefined.
    """
    cdef Py_ssize_t length = values.shape[0], carried
    if limit > <uint64_t> high.shape[0] or (low.shape[0] and low.shape[0] != high.shape[0]):
        raise ValueError("tables of the same length are needed, at least as long as the limit")
    if length == 0 or limit == 0:
        return 0 if length == 0 else -1
    if _overlap(&values[0], length * sizeof(value_t), &high[0], high.shape[0] * sizeof(int64_t)):
        raise ValueError("the tables must not overlap the values")
    if low.shape[0] == 0:
        with nogil:
            carried = _count_at_once(&values[0], length, limit, &high[0])
        return carried
    if _overlap(&values[0], length * sizeof(value_t), &low[0], low.shape[0]):
        raise ValueError("the tables must not overlap the values")
    if _overlap(&low[0], low.shape[0], &high[0], high.shape[0] * sizeof(int64_t)):
        raise ValueError("the tables must not overlap each other")
    with nogil:
        carried = _count_in_bytes(&values[0], length, limit, &low[0], &high[0])
    return carried


cdef bint _overlap(const void *one, size_t length, const void *other, size_t other_length) noexcept:
    return <uintptr_t> one < <uintptr_t> other + other_length and <uintptr_t> other < <uintptr_t> one + length


cdef bint _count_in_four(
    const value_t *values, Py_ssize_t length, uint64_t limit, uint32_t *first, Py_ssize_t width
) noexcept nogil:
    cdef uint32_t *second = first + width
    cdef uint32_t *third = second + width
    cdef uint32_t *fourth = third + width
    cdef Py_ssize_t i, aligned = length - length % 4
    cdef uint64_t a, b, c, d
    for i in range(0, aligned, 4):
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        if a >= limit or b >= limit or c >= limit or d >= limit:
            return False
        first[a] += 1
        second[b] += 1
        third[c] += 1
        fourth[d] += 1
    for i in range(aligned, length):
        a = values[i]
        if a >= limit:
            return False
        first[a] += 1
    return True


cdef Py_ssize_t _count_in_bytes(
    const value_t *values, Py_ssize_t length, uint64_t limit, uint8_t *low, int64_t *high
) noexcept nogil:
    cdef Py_ssize_t i, aligned = length - length % 4, carried = 0
    cdef uint64_t a, b, c, d
    for i in range(0, aligned, 4):
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        if a >= limit or b >= limit or c >= limit or d >= limit:
            return -1
        carried += _count_in_byte(a, low, high)
        carried += _count_in_byte(b, low, high)
        carried += _count_in_byte(c, low, high)
        carried += _count_in_byte(d, low, high)
    for i in range(aligned, length):
        a = values[i]
        if a >= limit:
            return -1
        carried += _count_in_byte(a, low, high)
    return carried


cdef inline bint _count_in_byte(uint64_t value, uint8_t *low, int64_t *high) noexcept nogil:
    """Count one value; returns whether there was a carry."""
    cdef uint8_t count = low[value] + 1
    low[value] = count
    if count:
        return False
    high[value] += 256
    return True


cdef Py_ssize_t _count_at_once(
    const value_t *values, Py_ssize_t length, uint64_t limit, int64_t *table
) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint64_t value
    for i in range(length):
        value = values[i]
        if value >= limit:
            return -1
        table[value] += 1
    return length
