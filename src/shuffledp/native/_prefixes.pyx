# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""One level of the search for strings: extend prefixes by all values of new bits, score them, keep those not dropped."""

from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>

    /* The cell of each word of one limb, or of two if highs is not NULL; written so that compilers vectorize it. */
    #define SHUFFLEDP_MIX(h) \\
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9ULL; \\
        h = (h ^ (h >> 27)) * 0x94D049BB133111EBULL; \\
        h ^= h >> 31;
    #define SHUFFLEDP_HASH_WORDS \\
        Py_ssize_t i; \\
        if (highs == NULL) { \\
            for (i = 0; i < number; i++) { \\
                uint64_t h = start ^ lows[i]; \\
                SHUFFLEDP_MIX(h) \\
                cells[i] = (uint32_t)(((h >> 32) * buckets) >> 32); \\
            } \\
        } else { \\
            for (i = 0; i < number; i++) { \\
                uint64_t h = start ^ lows[i]; \\
                SHUFFLEDP_MIX(h) \\
                h = (h + 0x9E3779B97F4A7C15ULL) ^ highs[i]; \\
                SHUFFLEDP_MIX(h) \\
                cells[i] = (uint32_t)(((h >> 32) * buckets) >> 32); \\
            } \\
        }

    static void shuffledp_hash_words_anywhere(const uint64_t *lows, const uint64_t *highs, Py_ssize_t number,
                                              uint64_t start, uint64_t buckets, uint32_t *cells) {
        SHUFFLEDP_HASH_WORDS
    }

    #if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    __attribute__((target("avx512f,avx512dq,avx512vl")))
    static void shuffledp_hash_words_wide(const uint64_t *lows, const uint64_t *highs, Py_ssize_t number,
                                          uint64_t start, uint64_t buckets, uint32_t *cells) {
        SHUFFLEDP_HASH_WORDS
    }

    static int shuffledp_is_wide(void) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
            && __builtin_cpu_supports("avx512vl");
    }

    static void shuffledp_hash_words(const uint64_t *lows, const uint64_t *highs, Py_ssize_t number,
                                     uint64_t start, uint64_t buckets, uint32_t *cells, int portable) {
        if (!portable && shuffledp_is_wide())
            shuffledp_hash_words_wide(lows, highs, number, start, buckets, cells);
        else
            shuffledp_hash_words_anywhere(lows, highs, number, start, buckets, cells);
    }
    #else
    #define shuffledp_hash_words(lows, highs, number, start, buckets, cells, portable) \\
        shuffledp_hash_words_anywhere(lows, highs, number, start, buckets, cells)
    #endif
    """
    void hash_words "shuffledp_hash_words"(
        const uint64_t* lows, const uint64_t* highs, Py_ssize_t number, uint64_t start, uint64_t buckets,
        uint32_t* cells, int portable,
    ) noexcept nogil

cdef enum:
    TOGETHER = 512

ctypedef fused Symbol:
    uint8_t
    uint16_t

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15ULL


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9ULL
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBULL
    return h ^ (h >> 31)


cdef Py_ssize_t extend_some(
    const uint64_t* parents, Py_ssize_t limbs, const int16_t* scores, Py_ssize_t evaluations, int bits,
    uint64_t start_of_hash, const Symbol* symbols, uint64_t buckets, const int16_t* gains, int ceiling, uint64_t* kept,
    int16_t* kept_scores, int portable,
) noexcept nogil:
    """Words of one or two limbs: hash many at a time, then look up their cells.

    No branch depends on data: every child is written, and overwritten unless it is kept.
    """
    cdef uint64_t[TOGETHER] lows
    cdef uint64_t[TOGETHER] highs
    cdef uint32_t[TOGETHER] cells
    cdef Py_ssize_t done = 0, number, i, parent, written = 0
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1
    cdef int score
    while done < evaluations:
        number = min(<Py_ssize_t>TOGETHER, evaluations - done)
        if limbs == 1:
            for i in range(number):
                lows[i] = (parents[(done + i) >> bits] << bits) | (<uint64_t>(done + i) & mask)
            hash_words(lows, NULL, number, start_of_hash, buckets, cells, portable)
            for i in range(number):
                score = scores[(done + i) >> bits] + gains[symbols[cells[i]]]
                kept[written] = lows[i]
                kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
                written += score >= 0
        else:
            for i in range(number):
                parent = (done + i) >> bits
                lows[i] = (parents[2 * parent] << bits) | (<uint64_t>(done + i) & mask)
                highs[i] = (parents[2 * parent + 1] << bits) | ((parents[2 * parent] >> 1) >> (63 - bits))
            hash_words(lows, highs, number, start_of_hash, buckets, cells, portable)
            for i in range(number):
                score = scores[(done + i) >> bits] + gains[symbols[cells[i]]]
                kept[2 * written] = lows[i]
                kept[2 * written + 1] = highs[i]
                kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
                written += score >= 0
        done += number
    return written


cdef Py_ssize_t extend_long(
    const uint64_t* parents, Py_ssize_t limbs, const int16_t* scores, Py_ssize_t evaluations, int bits,
    uint64_t start_of_hash, const Symbol* symbols, uint64_t buckets, const int16_t* gains, int ceiling, uint64_t* kept,
    int16_t* kept_scores,
) noexcept nogil:
    """Words of any number of limbs."""
    cdef Py_ssize_t i, limb, written = 0
    cdef uint64_t h, mask = (<uint64_t>1 << bits) - 1
    cdef const uint64_t* parent
    cdef uint64_t* child
    cdef int score
    for i in range(evaluations):
        parent = parents + (i >> bits) * limbs
        child = kept + written * limbs
        child[0] = (parent[0] << bits) | (<uint64_t>i & mask)
        h = mixed(start_of_hash ^ child[0])
        for limb in range(1, limbs):
            child[limb] = (parent[limb] << bits) | ((parent[limb - 1] >> 1) >> (63 - bits))
            h = mixed((h + GOLDEN) ^ child[limb])
        score = scores[i >> bits] + gains[symbols[((h >> 32) * buckets) >> 32]]
        kept_scores[written] = <int16_t>(score if score < ceiling else ceiling)
        written += score >= 0
    return written


def extend(
    const uint64_t[:, ::1] parents not None,
    const int16_t[::1] scores not None,
    Py_ssize_t start,
    int bits,
    uint64_t key,
    const Symbol[::1] symbols not None,
    const int16_t[::1] gains not None,
    int ceiling,
    uint64_t[:, ::1] kept not None,
    int16_t[::1] kept_scores not None,
    bint portable=False,
):
    """Extend the parents from ``start`` on while all children of one more may fit into ``kept``.

    A child is the parent shifted left by ``bits``, with a value of these bits; its score is that of the parent plus the
    gain of the symbol of its bucket, at most ``ceiling``, and it is kept if that is not negative. Returns the number of
    parents done and of children kept. With ``portable``, no instructions are used that only some processors have.
    """
    cdef Py_ssize_t count = parents.shape[0]
    cdef Py_ssize_t limbs = parents.shape[1]
    cdef Py_ssize_t room = kept.shape[0]
    cdef Py_ssize_t written = 0
    cdef Py_ssize_t parent = start
    cdef Py_ssize_t some, evaluations
    cdef uint64_t buckets = <uint64_t>symbols.shape[0]
    cdef uint64_t hash_start = key + GOLDEN
    if limbs < 1 or kept.shape[1] != limbs:
        raise ValueError(f"words of {limbs} limbs do not fit an output of {kept.shape[1]}")
    if scores.shape[0] != count or kept_scores.shape[0] != room:
        raise ValueError("every word needs a score")
    if not 0 <= bits < 32 or not 0 <= start <= count or not 1 <= buckets < (<uint64_t>1 << 32):
        raise ValueError(f"{bits} bits, start {start} or {buckets} buckets out of range")
    if gains.shape[0] <= <Py_ssize_t>(<Symbol>-1):
        raise ValueError(f"{gains.shape[0]} gains are too few for the symbols")
    with nogil:
        while parent < count and (room - written) >> bits > 0:
            some = min((room - written) >> bits, count - parent)
            evaluations = some << bits
            if limbs <= 2:
                written += extend_some(
                    &parents[parent, 0], limbs, &scores[parent], evaluations, bits, hash_start, &symbols[0], buckets,
                    &gains[0], ceiling, &kept[written, 0], &kept_scores[written], portable,
                )
            else:
                written += extend_long(
                    &parents[parent, 0], limbs, &scores[parent], evaluations, bits, hash_start, &symbols[0], buckets,
                    &gains[0], ceiling, &kept[written, 0], &kept_scores[written],
                )
            parent += some
    return parent - start, written
