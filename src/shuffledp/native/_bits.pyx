# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Random bits with any probability, as bitmaps or as the indices of the ones.

The caller provides random words, and every kernel stops when they run out. Except where stated, the decision to stop
never depends on words that are then discarded, so every distribution is exact.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__) || defined(__clang__)
    #define LOWEST_BIT(word) __builtin_ctzll(word)
    #else
    static int LOWEST_BIT(uint64_t word) {
        int index = 0;
        while (!(word & 1)) { word >>= 1; index++; }
        return index;
    }
    #endif

    /* Bit i of a bitmap is bit i mod 8 of byte i / 8, for every byte order of the machine. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define LITTLE(word) __builtin_bswap64(word)
    #else
    #define LITTLE(word) (word)
    #endif
    static void STORE(uint8_t *bytes, uint64_t word) {
        word = LITTLE(word);
        memcpy(bytes, &word, 8);
    }
    static uint64_t LOAD(const uint8_t *bytes) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        return LITTLE(word);
    }

    #define GROUP 8  /* words of 64 lanes that are compared at once */
    #if defined(__GNUC__) || defined(__clang__)
    typedef uint64_t lanes_t __attribute__((vector_size(16), aligned(8), may_alias));
    #define WIDTH 2
    #define EMPTY(lanes) (((lanes)[0] | (lanes)[1]) == 0)
    #else
    typedef uint64_t lanes_t;
    #define WIDTH 1
    #define EMPTY(lanes) ((lanes) == 0)
    #endif
    #define PARTS (GROUP / WIDTH)
    #define LEAST 6  /* after fewer rounds two numbers of one column are nearly always still undecided */

    /* Compare 512 numbers with a probability, digit by digit; a word of a round holds one digit of 64 numbers.
       A number is less if its first different digit is 0, and equal if all digits agree. Once every column has at most
       one undecided number, one word per column suffices: no two numbers use the same bit. Returns the number of
       words. */
    static int SLICE(const uint64_t *words, const uint64_t *digits, int count, uint64_t *less, uint64_t *equal) {
        const uint64_t *start = words;
        lanes_t none = {0}, l[PARTS], e[PARTS], any = ~none, twice, below = none;
        int round = 0, i;
        for (i = 0; i < PARTS; i++) { l[i] = none; e[i] = ~none; }
        while (round < count) {
            lanes_t digit = digits[round] - none;
            for (i = 0; i < PARTS; i++) {
                lanes_t drawn = ((const lanes_t *)words)[i];
                l[i] |= e[i] & ~drawn & digit;
                e[i] &= ~(drawn ^ digit);
            }
            words += GROUP;
            round++;
            if (round >= LEAST) {
                any = e[0];
                twice = none;
                for (i = 1; i < PARTS; i++) { twice |= any & e[i]; any |= e[i]; }
                if (EMPTY(twice)) break;
            }
        }
        while (round < count && !EMPTY(any)) {
            lanes_t digit = digits[round] - none, drawn = *(const lanes_t *)words;
            below |= any & ~drawn & digit;
            any &= ~(drawn ^ digit);
            words += WIDTH;
            round++;
        }
        for (i = 0; i < PARTS; i++) {
            ((lanes_t *)less)[i] = l[i] | (e[i] & below);
            ((lanes_t *)equal)[i] = e[i] & any;
        }
        return (int)(words - start);
    }

    #define FEW 8

    /* Read eight numbers, replace those after the first ``count`` by larger ones, and compute the rank of each. Returns
       whether all are different. Without branches, which would be mispredicted. */
    #if defined(__GNUC__) || defined(__clang__)
    typedef int16_t few_t __attribute__((vector_size(16)));
    typedef uint8_t bytes_t __attribute__((vector_size(8)));

    static int RANK(const uint8_t *raw, int width, int mask, int count, int16_t *numbers, int16_t *ranks) {
        const few_t order = {0, 1, 2, 3, 4, 5, 6, 7}, none = {0};
        few_t mine, rank = none, same = none, counts = order < (int16_t)count - none;
        uint64_t halves[2];
        int j;
        if (width == 1) {
            bytes_t bytes;
            memcpy(&bytes, raw, sizeof bytes);
            mine = __builtin_convertvector(bytes, few_t);
        } else {
            memcpy(&mine, raw, sizeof mine);
        }
        mine = (mine & ((int16_t)mask - none) & counts) | (~counts & (order + (int16_t)0x7FF0));
        for (j = 0; j < FEW; j++) {
            few_t other = mine[j] - none;
            rank -= mine > other;
            same -= mine == other;
        }
        memcpy(numbers, &mine, sizeof mine);
        memcpy(ranks, &rank, sizeof rank);
        memcpy(halves, &same, sizeof same);
        return ((halves[0] ^ 0x0001000100010001ULL) | (halves[1] ^ 0x0001000100010001ULL)) == 0;
    }
    #else
    static int RANK(const uint8_t *raw, int width, int mask, int count, int16_t *numbers, int16_t *ranks) {
        int i, j, same = 0;
        for (i = 0; i < FEW; i++) {
            int drawn = width == 1 ? raw[i] : raw[2 * i] | raw[2 * i + 1] << 8;
            numbers[i] = (int16_t)(i < count ? drawn & mask : 0x7FF0 + i);
            ranks[i] = 0;
        }
        for (j = 0; j < FEW; j++)
            for (i = 0; i < FEW; i++) {
                ranks[i] += numbers[i] > numbers[j];
                same += numbers[i] == numbers[j];
            }
        return same == FEW;
    }
    #endif
    """
    int LOWEST_BIT(uint64_t word) noexcept nogil
    int RANK(
        const uint8_t* raw, int width, int mask, int count, int16_t* numbers, int16_t* ranks
    ) noexcept nogil
    enum: FEW
    void STORE(uint8_t* bytes, uint64_t word) noexcept nogil
    uint64_t LOAD(const uint8_t* bytes) noexcept nogil
    int SLICE(const uint64_t* words, const uint64_t* digits, int count, uint64_t* less, uint64_t* equal) noexcept nogil
    enum: GROUP

cdef enum:
    GROUP_BYTES = 64
    MAX_DIGITS = 64
    BLOCK_WORDS = 64
    MARKED_BITS = 12  # a block fits 64 words of marks
    RANKED_BITS = 14

ctypedef fused Index:
    uint32_t
    int64_t


def slice_bits(
    const uint64_t[::1] words not None,
    const uint8_t[::1] digits not None,
    bint ends,
    uint8_t[::1] bitmap not None,
    int64_t[::1] ties not None,
):
    """Fill a bitmap from its start: a bit is 1 if a uniform number lies below the probability.

    ``digits`` are the first binary digits of the probability; ``ends`` means that no others follow. Otherwise the
    indices of numbers that equal all of these digits are appended to ``ties``, and their bits are 0. A group of 512
    bits is started only if the words and the capacity of ``ties`` suffice for every outcome.

    Returns the number of bytes filled, a multiple of 64, and the number of ties.
    """
    cdef Py_ssize_t available = words.shape[0]
    cdef Py_ssize_t size = bitmap.shape[0]
    cdef Py_ssize_t capacity = ties.shape[0]
    cdef Py_ssize_t used = 0, filled = 0, written = 0
    cdef int count = <int>digits.shape[0]
    cdef int i
    cdef uint64_t masks[MAX_DIGITS]
    cdef uint64_t less[GROUP]
    cdef uint64_t equal[GROUP]
    if not 1 <= digits.shape[0] <= MAX_DIGITS:
        raise ValueError(f"from 1 to {MAX_DIGITS} digits are compared, not {digits.shape[0]}")
    if size % GROUP_BYTES:
        raise ValueError(f"a bitmap of {size} bytes is not a multiple of {GROUP_BYTES}")
    if size == 0 or available == 0:
        return 0, 0
    for i in range(count):
        masks[i] = ~<uint64_t>0 if digits[i] else 0
    with nogil:
        while filled < size and count * GROUP <= available - used and (ends or 8 * GROUP_BYTES <= capacity - written):
            used += SLICE(&words[0] + used, masks, count, less, equal)
            for i in range(GROUP):
                STORE(&bitmap[0] + filled + 8 * i, less[i])
            if not ends:
                for i in range(GROUP):
                    while equal[i]:
                        ties[written] = 8 * filled + 64 * i + LOWEST_BIT(equal[i])
                        written += 1
                        equal[i] &= equal[i] - 1
            filled += GROUP_BYTES
    return filled, written


def spread_bits(const uint8_t[::1] bitmap not None, uint8_t[::1] flags not None):
    """Write each bit of a bitmap as a byte that is 0 or 1."""
    cdef Py_ssize_t size = flags.shape[0]
    cdef Py_ssize_t full_bytes = size // 8
    cdef Py_ssize_t i
    cdef int bit
    cdef uint8_t table[256][8]
    if bitmap.shape[0] * 8 < size:
        raise ValueError(f"{bitmap.shape[0]} bytes do not hold {size} bits")
    if size == 0:
        return
    with nogil:
        for i in range(256):
            for bit in range(8):
                table[i][bit] = i >> bit & 1
        for i in range(full_bytes):
            memcpy(&flags[0] + 8 * i, table[bitmap[i]], 8)
        for i in range(8 * full_bytes, size):
            flags[i] = bitmap[i >> 3] >> (i & 7) & 1


def list_bits(const uint8_t[::1] bitmap not None, int64_t base, Index[::1] out not None):
    """Write ``base`` plus the index of every 1 in a bitmap of 64-bit words; returns their number."""
    cdef Py_ssize_t size = bitmap.shape[0]
    cdef Py_ssize_t capacity = out.shape[0]
    cdef Py_ssize_t written = 0, i = 0
    cdef int j
    cdef uint64_t left
    if size % 8:
        raise ValueError(f"a bitmap of {size} bytes is not a multiple of 8")
    with nogil:
        while i < size and written + 68 <= capacity:
            left = LOAD(&bitmap[i])
            while True:
                for j in range(4):  # four at a time without a branch, which would be mispredicted
                    out[written] = <Index>(base + 8 * i + LOWEST_BIT(left | <uint64_t>1 << 63))
                    written += left != 0
                    left &= left - 1
                if not left:
                    break
            i += 8
        while i < size and written <= capacity:  # near the end of the buffer one at a time
            left = LOAD(&bitmap[i])
            while left and written < capacity:
                out[written] = <Index>(base + 8 * i + LOWEST_BIT(left))
                written += 1
                left &= left - 1
            if left:
                written = capacity + 1
            i += 8
    if written > capacity:
        raise ValueError(f"there are more ones than the {capacity} entries of the output")
    return written


def scatter_places(
    const int64_t[::1] counts not None,
    int bits,
    int64_t base,
    const uint64_t[::1] words not None,
    Index[::1] out not None,
):
    """Write a sorted uniform subset of ``counts[i]`` indices of block i of 2^bits; the first index is ``base``.

    An index that is drawn twice is drawn again. Stops if the words or the output do not suffice for a block. That
    depends on the number of repeated draws, which is independent of the subset: given the earlier draws, all other
    indices are equally likely. So an incomplete block may be drawn again.

    Returns the number of complete blocks and the number of indices written.
    """
    cdef Py_ssize_t blocks = counts.shape[0]
    cdef Py_ssize_t capacity = out.shape[0]
    cdef Py_ssize_t width = width_of(bits)
    cdef Py_ssize_t available = words.shape[0] * 8 // width
    cdef Py_ssize_t used = 0, written = 0, block = 0, drawn, i, at
    cdef int64_t largest = 0x7FFFFFFFFFFFFFFF
    cdef int64_t count, next_index
    cdef uint64_t mask, index, left, summary
    cdef uint64_t marks[BLOCK_WORDS]
    cdef int16_t numbers[FEW]
    cdef int16_t ranks[FEW]
    cdef const uint8_t* raw
    if not 1 <= bits <= 62:
        raise ValueError(f"blocks of 2^{bits} indices are too small or too large")
    if Index is uint32_t:
        largest = 0x100000000
    if not 0 <= base <= largest or blocks > (largest - base) >> bits:
        raise ValueError(f"{blocks} blocks of 2^{bits} indices from {base} on exceed the type of the output")
    check_counts(counts, bits)
    if blocks == 0:
        return 0, 0
    raw = <const uint8_t*>&words[0] if words.shape[0] else NULL
    mask = (<uint64_t>1 << bits) - 1
    memset(marks, 0, sizeof(marks))
    with nogil:
        while block < blocks:
            count = counts[block]
            if not 0 <= count <= capacity - written or count > available - used:
                break
            drawn = 0
            if count <= FEW and bits <= RANKED_BITS and capacity - written >= FEW and available - used >= FEW:
                if RANK(raw + used * width, <int>width, <int>mask, <int>count, numbers, ranks):
                    for i in range(FEW):  # entries beyond the count are overwritten by the next block
                        out[written + ranks[i]] = <Index>(base + numbers[i])
                    used += count
                    written += count
                    base += <int64_t>1 << bits
                    block += 1
                    continue
            if bits <= MARKED_BITS:  # mark the indices, then read the marks in order
                summary = 0
                while drawn < count and used < available:
                    index = read(raw, used, width) & mask
                    used += 1
                    left = <uint64_t>1 << (index & 63)
                    drawn += (marks[index >> 6] & left) == 0
                    marks[index >> 6] |= left
                    summary |= <uint64_t>1 << (index >> 6)
                if drawn < count:
                    break
                while summary:
                    i = LOWEST_BIT(summary)
                    summary &= summary - 1
                    left = marks[i]
                    marks[i] = 0
                    while left:
                        out[written] = <Index>(base + 64 * i + LOWEST_BIT(left))
                        written += 1
                        left &= left - 1
            else:  # few among very many: insertion sort
                while drawn < count and used < available:
                    next_index = base + <int64_t>(read(raw, used, width) & mask)
                    used += 1
                    at = written + drawn
                    while at > written and <int64_t>out[at - 1] > next_index:
                        at -= 1
                    if at > written and <int64_t>out[at - 1] == next_index:
                        continue
                    i = written + drawn
                    while i > at:
                        out[i] = out[i - 1]
                        i -= 1
                    out[at] = <Index>next_index
                    drawn += 1
                if drawn < count:
                    break
                written += count
            base += <int64_t>1 << bits
            block += 1
    return block, written


def scatter_bits(
    const int64_t[::1] counts not None, int bits, const uint64_t[::1] words not None, uint8_t[::1] bitmap not None
):
    """Set a uniform subset of ``counts[i]`` bits in block i of 2^bits bits of a bitmap, which must be zero.

    Stops if the words do not suffice for a block, like ``scatter_places``, and leaves that block zero. Returns the
    number of complete blocks.
    """
    cdef Py_ssize_t blocks = counts.shape[0]
    cdef Py_ssize_t width = width_of(bits)
    cdef Py_ssize_t available = words.shape[0] * 8 // width
    cdef Py_ssize_t used = 0, block = 0, drawn, step, i
    cdef int64_t count
    cdef uint64_t mask, index
    cdef uint8_t bit
    cdef uint8_t* marks
    cdef const uint8_t* raw
    if not 3 <= bits <= MARKED_BITS:
        raise ValueError(f"blocks of 2^{bits} bits are too small or too large")
    step = <Py_ssize_t>1 << (bits - 3)
    if blocks > bitmap.shape[0] // step:
        raise ValueError(f"{bitmap.shape[0]} bytes do not hold {blocks} blocks of 2^{bits} bits")
    check_counts(counts, bits)
    if blocks == 0:
        return 0
    raw = <const uint8_t*>&words[0] if words.shape[0] else NULL
    mask = (<uint64_t>1 << bits) - 1
    with nogil:
        while block < blocks:
            count = counts[block]
            if not 0 <= count <= available - used:
                break
            marks = &bitmap[0] + block * step
            drawn = 0
            if available - used >= FEW:
                for i in range(FEW):  # without a branch, which would be mispredicted
                    index = read(raw, used + i, width) & mask
                    bit = <uint8_t>((i < count) << (index & 7))
                    drawn += (bit & ~marks[index >> 3]) != 0
                    marks[index >> 3] |= bit
                used += FEW if count > FEW else count
            while drawn < count and used < available:
                index = read(raw, used, width) & mask
                used += 1
                bit = <uint8_t>(1 << (index & 7))
                drawn += (marks[index >> 3] & bit) == 0
                marks[index >> 3] |= bit
            if drawn < count:
                memset(marks, 0, step)
                break
            block += 1
    return block


cdef int check_counts(const int64_t[::1] counts, int bits) except -1:
    """Reject counts below 0 or above the size of a block."""
    cdef Py_ssize_t i
    cdef int64_t least = 0, largest = 0
    for i in range(counts.shape[0]):
        least = counts[i] if counts[i] < least else least
        largest = counts[i] if counts[i] > largest else largest
    if least < 0 or largest > <int64_t>1 << bits:
        raise ValueError(f"counts must lie between 0 and 2^{bits}, not between {least} and {largest}")
    return 0


cdef inline Py_ssize_t width_of(int bits) noexcept nogil:
    """Number of bytes that are drawn for a number of this many bits."""
    return 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8


cdef inline uint64_t read(const uint8_t* raw, Py_ssize_t index, Py_ssize_t width) noexcept nogil:
    """The number of ``width`` bytes at this index."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if width == 1:
        return raw[index]
    if width == 2:
        memcpy(&two, raw + 2 * index, 2)
        return two
    if width == 4:
        memcpy(&four, raw + 4 * index, 4)
        return four
    memcpy(&eight, raw + 8 * index, 8)
    return eight
