# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""One level of the search for strings: extend prefixes by all values of new bits, score them, keep those not dropped."""

from libc.stdint cimport int8_t, int16_t, uint64_t

cdef enum:
    MAX_LIMBS = 8

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15ULL


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9ULL
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBULL
    return h ^ (h >> 31)


def extend(
    const uint64_t[:, ::1] parents not None,
    const int16_t[::1] scores not None,
    Py_ssize_t start,
    int bits,
    uint64_t key,
    const int8_t[::1] gains not None,
    int ceiling,
    uint64_t[:, ::1] kept not None,
    int16_t[::1] kept_scores not None,
):
    """Extend the parents from ``start`` on while all children of one more may fit into ``kept``.

    A child is the parent shifted left by ``bits``, with a value of these bits; its score is that of the parent plus the
    gain of its bucket, at most ``ceiling``, and it is kept if that is not negative. Returns the number of parents done
    and of children kept.
    """
    cdef Py_ssize_t count = parents.shape[0]
    cdef Py_ssize_t limbs = parents.shape[1]
    cdef Py_ssize_t room = kept.shape[0]
    cdef Py_ssize_t written = 0
    cdef Py_ssize_t parent = start
    cdef Py_ssize_t limb
    cdef uint64_t children, child, low, h
    cdef uint64_t buckets = <uint64_t>gains.shape[0]
    cdef uint64_t[MAX_LIMBS] shifted
    cdef int score, parent_score
    if not 1 <= limbs <= MAX_LIMBS or kept.shape[1] != limbs:
        raise ValueError(f"words of {limbs} limbs do not fit an output of {kept.shape[1]}")
    if scores.shape[0] != count or kept_scores.shape[0] != room:
        raise ValueError("every word needs a score")
    if not 0 <= bits < 32 or not 0 <= start <= count or not 1 <= buckets < (<uint64_t>1 << 32):
        raise ValueError(f"{bits} bits, start {start} or {buckets} buckets out of range")
    children = <uint64_t>1 << bits
    with nogil:
        while parent < count and <uint64_t>(room - written) >= children:
            shifted[0] = parents[parent, 0] << bits
            for limb in range(1, limbs):
                shifted[limb] = parents[parent, limb] << bits
                if bits:
                    shifted[limb] |= parents[parent, limb - 1] >> (64 - bits)
            parent_score = scores[parent]
            if limbs == 1:  # no branch in the loop: every child is written, and overwritten unless it is kept
                for child in range(children):
                    low = shifted[0] | child
                    h = mixed((key + GOLDEN) ^ low)
                    score = parent_score + gains[((h >> 32) * buckets) >> 32]
                    kept[written, 0] = low
                    kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
                    written += score >= 0
            elif limbs == 2:
                for child in range(children):
                    low = shifted[0] | child
                    h = mixed((mixed((key + GOLDEN) ^ low) + GOLDEN) ^ shifted[1])
                    score = parent_score + gains[((h >> 32) * buckets) >> 32]
                    kept[written, 0] = low
                    kept[written, 1] = shifted[1]
                    kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
                    written += score >= 0
            else:
                for child in range(children):
                    low = shifted[0] | child
                    h = mixed((key + GOLDEN) ^ low)
                    for limb in range(1, limbs):
                        h = mixed((h + GOLDEN) ^ shifted[limb])
                    score = parent_score + gains[((h >> 32) * buckets) >> 32]
                    kept[written, 0] = low
                    for limb in range(1, limbs):
                        kept[written, limb] = shifted[limb]
                    kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
                    written += score >= 0
            parent += 1
    return parent - start, written
