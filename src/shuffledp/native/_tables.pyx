# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Sampling by inversion: 64 random bits are compared with the thresholds of a distribution function, as integers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define FETCH(address) __builtin_prefetch(address)
    #else
    #define FETCH(address) ((void)0)
    #endif
    """
    void FETCH(const void* address) noexcept nogil

cdef enum:
    PADDING = 3  # entries after the upper halves, which are read without a check
    AHEAD = 16  # words by which the prefetch is ahead
    LONG = 1 << 15  # longer tables do not fit the fastest caches and are prefetched


def draw(
    const uint64_t[::1] words not None,
    const uint64_t[::1] thresholds not None,
    const uint32_t[::1] upper not None,
    const uint32_t[::1] guide not None,
    const uint64_t[::1] unsure not None,
    int64_t first,
    bint add,
    int64_t[::1] out not None,
):
    """Write (or add) ``first`` plus the number of thresholds that are at most the word, for each word.

    ``upper`` contains the upper halves of the thresholds, which nearly always decide and take half of the cache,
    followed by three entries of all ones. ``guide[i]`` is the number of thresholds below the least word with the
    leading bits i, for all i and one more. Stops at a word that is undecided: it equals a threshold, is all zeros or
    all ones, or is in ``unsure``. Returns the number of words before it.
    """
    cdef Py_ssize_t size = words.shape[0]
    cdef Py_ssize_t entries = thresholds.shape[0]
    cdef Py_ssize_t cells = guide.shape[0] - 1
    cdef Py_ssize_t unsure_count = unsure.shape[0]
    cdef Py_ssize_t i, j, rank, middle, end
    cdef Py_ssize_t fetching = size - AHEAD if entries >= LONG else 0
    cdef int bits = 0
    cdef int shift
    cdef uint64_t word
    cdef uint32_t half
    cdef const uint64_t* drawn
    cdef const uint64_t* bounds = NULL
    cdef const uint32_t* halves
    cdef const uint32_t* guides
    cdef int64_t* written
    if out.shape[0] != size:
        raise ValueError(f"{size} words do not fit {out.shape[0]} entries of the output")
    if upper.shape[0] != entries + PADDING:
        raise ValueError(f"{entries} thresholds need {entries + PADDING} entries of upper halves, not {upper.shape[0]}")
    if cells < 2 or cells & (cells - 1) or cells > 1 << 30:
        raise ValueError(f"a guide of {guide.shape[0]} entries must have a power of two plus one entries")
    while (<Py_ssize_t>1 << bits) < cells:
        bits += 1
    shift = 64 - bits
    if size == 0:
        return 0
    # plain pointers stay in registers
    drawn, halves, guides, written = &words[0], &upper[0], &guide[0], &out[0]
    if entries:
        bounds = &thresholds[0]
    with nogil:
        i = 0
        while i < size:
            word = drawn[i]
            if i < fetching:
                FETCH(halves + guides[drawn[i + AHEAD] >> shift])
            if word + 1 <= 1:
                break
            half = <uint32_t>(word >> 32)
            rank = guides[word >> shift]
            if rank > entries:
                break
            # two steps without a branch, which would be mispredicted; more steps are rare
            rank += (halves[rank] < half) + (halves[rank + 1] < half)
            if halves[rank] <= half:
                end = guides[(word >> shift) + 1]
                end = entries if end > entries else end
                while rank < end:
                    middle = (rank + end) >> 1
                    if bounds[middle] <= word:
                        rank = middle + 1
                    else:
                        end = middle
                if 0 < rank <= entries and bounds[rank - 1] == word:
                    break
            if unsure_count:
                j = 0
                while j < unsure_count and unsure[j] != word:
                    j += 1
                if j < unsure_count:
                    break
            if add:
                written[i] += first + rank
            else:
                written[i] = first + rank
            i += 1
    return i


def draw_halves(
    const uint32_t[::1] words not None,
    const uint32_t[::1] upper not None,
    const uint32_t[::1] guide not None,
    const uint32_t[::1] unsure not None,
    int64_t first,
    bint add,
    int64_t[::1] out not None,
):
    """The same with 32-bit words, which decide unless they equal the upper half of a threshold.

    ``upper`` and ``guide`` are those of ``draw``; ``unsure`` contains upper halves.
    """
    cdef Py_ssize_t size = words.shape[0]
    cdef Py_ssize_t entries = upper.shape[0] - PADDING
    cdef Py_ssize_t cells = guide.shape[0] - 1
    cdef Py_ssize_t unsure_count = unsure.shape[0]
    cdef Py_ssize_t i, j, rank, middle, end
    cdef int bits = 0
    cdef int shift
    cdef uint32_t half
    cdef const uint32_t* drawn
    cdef const uint32_t* halves
    cdef const uint32_t* guides
    cdef int64_t* written
    if out.shape[0] != size:
        raise ValueError(f"{size} words do not fit {out.shape[0]} entries of the output")
    if entries < 0:
        raise ValueError(f"{upper.shape[0]} entries of upper halves are fewer than the {PADDING} after the last one")
    if cells < 2 or cells & (cells - 1) or cells > 1 << 30:
        raise ValueError(f"a guide of {guide.shape[0]} entries must have a power of two plus one entries")
    while (<Py_ssize_t>1 << bits) < cells:
        bits += 1
    shift = 32 - bits
    if size == 0:
        return 0
    drawn, halves, guides, written = &words[0], &upper[0], &guide[0], &out[0]
    with nogil:
        i = 0
        while i < size:
            half = drawn[i]
            if <uint32_t>(half + 1) <= 1:
                break
            rank = guides[half >> shift]
            if rank > entries:
                break
            rank += (halves[rank] < half) + (halves[rank + 1] < half)
            if halves[rank] <= half:
                end = guides[(half >> shift) + 1]
                end = entries if end > entries else end
                while rank < end:
                    middle = (rank + end) >> 1
                    if halves[middle] < half:
                        rank = middle + 1
                    else:
                        end = middle
                if rank <= entries and halves[rank] == half:
                    break
            if unsure_count:
                j = 0
                while j < unsure_count and unsure[j] != half:
                    j += 1
                if j < unsure_count:
                    break
            if add:
                written[i] += first + rank
            else:
                written[i] = first + rank
            i += 1
    return i
