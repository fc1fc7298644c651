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

    #include <immintrin.h>

    #define SHUFFLEDP_MIX_WIDE(h) \\
        h = _mm512_mullo_epi64(_mm512_xor_si512(h, _mm512_srli_epi64(h, 30)), first); \\
        h = _mm512_mullo_epi64(_mm512_xor_si512(h, _mm512_srli_epi64(h, 27)), second); \\
        h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 31));

    /* Eight children at a time, of words of one or two limbs with symbols of one byte.
       Returns the number of children kept of the first evaluations / 8 * 8. Eight are written at a time; there is
       room for them, since no more children were kept before than evaluated. */
    __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
    static Py_ssize_t shuffledp_extend_wide(const uint64_t *parents, Py_ssize_t limbs, const int16_t *scores,
                                            Py_ssize_t evaluations, int bits, uint64_t start, const uint8_t *symbols,
                                            uint64_t buckets, const int16_t *gains, int ceiling, uint64_t *kept,
                                            int16_t *kept_scores) {
        const __m512i first = _mm512_set1_epi64((long long)0xBF58476D1CE4E5B9ULL);
        const __m512i second = _mm512_set1_epi64((long long)0x94D049BB133111EBULL);
        const __m512i golden = _mm512_set1_epi64((long long)0x9E3779B97F4A7C15ULL);
        const __m512i starts = _mm512_set1_epi64((long long)start);
        const __m512i many = _mm512_set1_epi64((long long)buckets);
        const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
        const __m512i mask = _mm512_set1_epi64((long long)(((uint64_t)1 << bits) - 1));
        const __m512i even = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        const __m512i odd = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
        const __m128i shift = _mm_cvtsi32_si128(bits);
        const __m128i rest = _mm_cvtsi32_si128(63 - bits);
        const __m128i own = _mm_srl_epi16(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7), shift);
        const __m128i top = _mm_set1_epi16((short)ceiling);
        uint64_t lows[512], highs[512];
        uint32_t cells[512];
        int16_t added[512];
        Py_ssize_t done, number, i, written = 0;
        for (done = 0; done + 8 <= evaluations; done += number) {
            number = evaluations - done < 512 ? (evaluations - done) / 8 * 8 : 512;
            for (i = 0; i < number; i += 8) { /* the words and their cells */
                const uint64_t *from = parents + ((done + i) >> bits) * limbs;
                __m512i low, high, h;
                if (bits >= 3) {
                    low = _mm512_set1_epi64((long long)from[0]);
                    high = limbs == 2 ? _mm512_set1_epi64((long long)from[1]) : low;
                } else if (limbs == 1) {
                    low = _mm512_maskz_loadu_epi64((__mmask8)((1 << (8 >> bits)) - 1), from);
                    low = high = _mm512_permutexvar_epi64(_mm512_srl_epi64(lanes, shift), low);
                } else {
                    __m512i parent = _mm512_slli_epi64(_mm512_srl_epi64(lanes, shift), 1);
                    low = _mm512_i64gather_epi64(parent, (const long long *)from, 8);
                    high = _mm512_i64gather_epi64(parent, (const long long *)(from + 1), 8);
                }
                high = _mm512_or_si512(_mm512_sll_epi64(high, shift), _mm512_srl_epi64(_mm512_srli_epi64(low, 1), rest));
                low = _mm512_or_si512(_mm512_sll_epi64(low, shift),
                                      _mm512_and_si512(_mm512_add_epi64(_mm512_set1_epi64(done + i), lanes), mask));
                h = _mm512_xor_si512(starts, low);
                SHUFFLEDP_MIX_WIDE(h)
                if (limbs == 2) {
                    h = _mm512_xor_si512(_mm512_add_epi64(h, golden), high);
                    SHUFFLEDP_MIX_WIDE(h)
                    _mm512_storeu_si512(highs + i, high);
                }
                h = _mm512_srli_epi64(_mm512_mullo_epi64(_mm512_srli_epi64(h, 32), many), 32);
                _mm512_storeu_si512(lows + i, low);
                _mm256_storeu_si256((__m256i *)(cells + i), _mm512_cvtepi64_epi32(h));
            }
            for (i = 0; i < number; i++) added[i] = gains[symbols[cells[i]]]; /* faster than to gather */
            for (i = 0; i < number; i += 8) { /* the scores, and the children that are kept */
                const int16_t *known = scores + ((done + i) >> bits);
                __m512i low = _mm512_loadu_si512(lows + i);
                __m128i before, score;
                __mmask8 alive;
                if (bits >= 3) {
                    before = _mm_set1_epi16(known[0]);
                } else {
                    before = _mm_maskz_loadu_epi16((__mmask8)((1 << (8 >> bits)) - 1), known);
                    before = _mm_permutexvar_epi16(own, before);
                }
                score = _mm_add_epi16(before, _mm_loadu_si128((const __m128i *)(added + i)));
                alive = _mm_cmpge_epi16_mask(score, _mm_setzero_si128());
                score = _mm_min_epi16(score, top);
                score = _mm256_cvtepi32_epi16(_mm256_maskz_compress_epi32(alive, _mm256_cvtepi16_epi32(score)));
                _mm_storeu_si128((__m128i *)(kept_scores + written), score);
                low = _mm512_maskz_compress_epi64(alive, low);
                if (limbs == 1) {
                    _mm512_storeu_si512(kept + written, low);
                } else {
                    __m512i high = _mm512_maskz_compress_epi64(alive, _mm512_loadu_si512(highs + i));
                    _mm512_storeu_si512(kept + 2 * written, _mm512_permutex2var_epi64(low, even, high));
                    _mm512_storeu_si512(kept + 2 * written + 8, _mm512_permutex2var_epi64(low, odd, high));
                }
                written += __builtin_popcount(alive);
            }
        }
        return written;
    }

    static int shuffledp_is_wide(void) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
            && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    }

    static void shuffledp_hash_words(const uint64_t *lows, const uint64_t *highs, Py_ssize_t number,
                                     uint64_t start, uint64_t buckets, uint32_t *cells, int portable) {
        if (!portable && shuffledp_is_wide())
            shuffledp_hash_words_wide(lows, highs, number, start, buckets, cells);
        else
            shuffledp_hash_words_anywhere(lows, highs, number, start, buckets, cells);
    }
    #else
    #define shuffledp_is_wide() 0
    #define shuffledp_extend_wide(parents, limbs, scores, evaluations, bits, start, symbols, buckets, gains, ceiling, \\
                                  kept, kept_scores) 0
    #define shuffledp_hash_words(lows, highs, number, start, buckets, cells, portable) \\
        shuffledp_hash_words_anywhere(lows, highs, number, start, buckets, cells)
    #endif
    """
    bint is_wide "shuffledp_is_wide"() noexcept nogil
    Py_ssize_t extend_wide "shuffledp_extend_wide"(
        const uint64_t* parents, Py_ssize_t limbs, const int16_t* scores, Py_ssize_t evaluations, int bits,
        uint64_t start, const uint8_t* symbols, uint64_t buckets, const int16_t* gains, int ceiling, uint64_t* kept,
        int16_t* kept_scores,
    ) noexcept nogil
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
    if Symbol is uint8_t:
        if not portable and is_wide():
            written = extend_wide(
                parents, limbs, scores, evaluations, bits, start_of_hash, symbols, buckets, gains, ceiling, kept,
                kept_scores,
            )
            done = evaluations // 8 * 8
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
