# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Draws by table: 64 random bits against the thresholds of a distribution function, all in whole numbers."""

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
    AFTER = 3
    AHEAD = 16
    LONG = 1 << 15  # so many thresholds are not in the nearest caches: ask for them before they are needed


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

    ``upper`` holds the upper halves of the thresholds, which nearly always decide and take half the cache, and three
    entries of ones after them. ``guide[i]`` is the number of thresholds below the least word whose leading bits are
    i, for every such i and the one after them. Stops at a word that decides nothing: it equals a threshold, is all
    zeros or all ones, or is among ``unsure``. Returns how many words were decided before it.
    """
    cdef Py_ssize_t size = words.shape[0]
    cdef Py_ssize_t entries = thresholds.shape[0]
    cdef Py_ssize_t cells = guide.shape[0] - 1
    cdef Py_ssize_t doubtful = unsure.shape[0]
    cdef Py_ssize_t i, j, place, middle, end
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
        raise ValueError(f"{size} words cannot be drawn into {out.shape[0]} places")
    if upper.shape[0] != entries + AFTER:
        raise ValueError(f"{entries} thresholds do not have {upper.shape[0]} upper halves with {AFTER} after them")
    if cells < 2 or cells & (cells - 1) or cells > 1 << 30:
        raise ValueError(f"a guide of {guide.shape[0]} entries does not have a power of two and one of them")
    while (<Py_ssize_t>1 << bits) < cells:
        bits += 1
    shift = 64 - bits
    if size == 0:
        return 0
    # plain pointers, which stay in registers
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
            place = guides[word >> shift]
            if place > entries:
                break
            # two steps without a branch that would be guessed wrongly; more are rare
            place += (halves[place] < half) + (halves[place + 1] < half)
            if halves[place] <= half:
                end = guides[(word >> shift) + 1]
                end = entries if end > entries else end
                while place < end:
                    middle = (place + end) >> 1
                    if bounds[middle] <= word:
                        place = middle + 1
                    else:
                        end = middle
                if 0 < place <= entries and bounds[place - 1] == word:
                    break
            if doubtful:
                j = 0
                while j < doubtful and unsure[j] != word:
                    j += 1
                if j < doubtful:
                    break
            if add:
                written[i] += first + place
            else:
                written[i] = first + place
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
    """The same from half as many bits, which decide unless they equal the upper half of a threshold.

    ``upper`` and ``guide`` are those of ``draw``; ``unsure`` holds upper halves, too.
    """
    cdef Py_ssize_t size = words.shape[0]
    cdef Py_ssize_t entries = upper.shape[0] - AFTER
    cdef Py_ssize_t cells = guide.shape[0] - 1
    cdef Py_ssize_t doubtful = unsure.shape[0]
    cdef Py_ssize_t i, j, place, middle, end
    cdef int bits = 0
    cdef int shift
    cdef uint32_t half
    cdef const uint32_t* drawn
    cdef const uint32_t* halves
    cdef const uint32_t* guides
    cdef int64_t* written
    if out.shape[0] != size:
        raise ValueError(f"{size} words cannot be drawn into {out.shape[0]} places")
    if entries < 0:
        raise ValueError(f"{upper.shape[0]} upper halves do not have {AFTER} after the last")
    if cells < 2 or cells & (cells - 1) or cells > 1 << 30:
        raise ValueError(f"a guide of {guide.shape[0]} entries does not have a power of two and one of them")
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
            place = guides[half >> shift]
            if place > entries:
                break
            place += (halves[place] < half) + (halves[place + 1] < half)
            if halves[place] <= half:
                end = guides[(half >> shift) + 1]
                end = entries if end > entries else end
                while place < end:
                    middle = (place + end) >> 1
                    if halves[middle] < half:
                        place = middle + 1
                    else:
                        end = middle
                if place <= entries and halves[place] == half:
                    break
            if doubtful:
                j = 0
                while j < doubtful and unsure[j] != half:
                    j += 1
                if j < doubtful:
                    break
            if add:
                written[i] += first + place
            else:
                written[i] = first + place
            i += 1
    return i
