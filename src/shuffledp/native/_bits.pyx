# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Random bits with any probability, and the places of few ones among many.

Random words come in, and every kernel stops where they run low. Whether it stops never depends on words that
are then thrown away, except where said; so every distribution is met exactly.
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
        int place = 0;
        while (!(word & 1)) { word >>= 1; place++; }
        return place;
    }
    #endif

    /* Bit i of a bitmap is bit i mod 8 of byte i / 8, whatever the machine's order of bytes is. */
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
    #define LEAST 6  /* after fewer rounds some numbers in the same column are equal, nearly always */

    /* Compare 512 numbers with a probability, digit by digit; a word of a round holds one digit of 64 numbers.
       A number is less where its first digit that differs is 0, and equal where all digits agree. Once no two of
       the numbers that are still equal lie in the same column, one word a column is enough: no two numbers use the
       same bit. Returns the number of words. */
    static int SLICE(const uint64_t *words, const uint64_t *digits, int most, uint64_t *less, uint64_t *equal) {
        const uint64_t *start = words;
        lanes_t none = {0}, l[PARTS], e[PARTS], any = ~none, twice, below = none;
        int round = 0, i;
        for (i = 0; i < PARTS; i++) { l[i] = none; e[i] = ~none; }
        while (round < most) {
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
        while (round < most && !EMPTY(any)) {
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

    /* The next eight numbers, of which the first few count and the others are larger than all; and how many of
       them are less than each. Returns whether all are different. Without branches that would be guessed wrongly. */
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
    int SLICE(const uint64_t* words, const uint64_t* digits, int most, uint64_t* less, uint64_t* equal) noexcept nogil
    enum: GROUP

cdef enum:
    GROUP_BYTES = 64
    MOST_DIGITS = 64
    BLOCK_WORDS = 64
    MARKED_BITS = 12  # a block of 64 words is marked in place
    RANKED_BITS = 14

ctypedef fused Place:
    uint32_t
    int64_t


def slice_bits(
    const uint64_t[::1] words not None,
    const uint8_t[::1] digits not None,
    bint ends,
    uint8_t[::1] bitmap not None,
    int64_t[::1] ties not None,
):
    """Fill a bitmap from its start with bits that say whether a uniform number lies below a probability.

    ``digits`` are the first binary digits of the probability; ``ends`` says that no others follow. Where they do,
    numbers that equal all of these digits go to ``ties`` as places in the bitmap, with a 0 there. A group of 512 bits
    is begun only where words and room suffice for it whatever the words are.

    Returns how many bytes are filled, a multiple of 64, and how many ties there are.
    """
    cdef Py_ssize_t available = words.shape[0]
    cdef Py_ssize_t size = bitmap.shape[0]
    cdef Py_ssize_t room = ties.shape[0]
    cdef Py_ssize_t used = 0, filled = 0, found = 0
    cdef int most = <int>digits.shape[0]
    cdef int i
    cdef uint64_t masks[MOST_DIGITS]
    cdef uint64_t less[GROUP]
    cdef uint64_t equal[GROUP]
    if not 1 <= digits.shape[0] <= MOST_DIGITS:
        raise ValueError(f"from 1 to {MOST_DIGITS} digits are compared, not {digits.shape[0]}")
    if size % GROUP_BYTES:
        raise ValueError(f"a bitmap of {size} bytes is not a multiple of {GROUP_BYTES}")
    if size == 0 or available == 0:
        return 0, 0
    for i in range(most):
        masks[i] = ~<uint64_t>0 if digits[i] else 0
    with nogil:
        while filled < size and most * GROUP <= available - used and (ends or 8 * GROUP_BYTES <= room - found):
            used += SLICE(&words[0] + used, masks, most, less, equal)
            for i in range(GROUP):
                STORE(&bitmap[0] + filled + 8 * i, less[i])
            if not ends:
                for i in range(GROUP):
                    while equal[i]:
                        ties[found] = 8 * filled + 64 * i + LOWEST_BIT(equal[i])
                        found += 1
                        equal[i] &= equal[i] - 1
            filled += GROUP_BYTES
    return filled, found


def spread_bits(const uint8_t[::1] bitmap not None, uint8_t[::1] flags not None):
    """Write each bit of a bitmap as a byte that is 0 or 1."""
    cdef Py_ssize_t size = flags.shape[0]
    cdef Py_ssize_t whole = size // 8
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
        for i in range(whole):
            memcpy(&flags[0] + 8 * i, table[bitmap[i]], 8)
        for i in range(8 * whole, size):
            flags[i] = bitmap[i >> 3] >> (i & 7) & 1


def list_bits(const uint8_t[::1] bitmap not None, int64_t base, Place[::1] out not None):
    """Write ``base`` plus the place of every one in a bitmap of whole words; returns how many there are."""
    cdef Py_ssize_t size = bitmap.shape[0]
    cdef Py_ssize_t room = out.shape[0]
    cdef Py_ssize_t found = 0, i = 0
    cdef int j
    cdef uint64_t left
    if size % 8:
        raise ValueError(f"a bitmap of {size} bytes is not a multiple of 8")
    with nogil:
        while i < size and found + 68 <= room:
            left = LOAD(&bitmap[i])
            while True:
                for j in range(4):  # a few at a time without a branch that would be guessed wrongly
                    out[found] = <Place>(base + 8 * i + LOWEST_BIT(left | <uint64_t>1 << 63))
                    found += left != 0
                    left &= left - 1
                if not left:
                    break
            i += 8
        while i < size and found <= room:  # near the end of the room one at a time
            left = LOAD(&bitmap[i])
            while left and found < room:
                out[found] = <Place>(base + 8 * i + LOWEST_BIT(left))
                found += 1
                left &= left - 1
            if left:
                found = room + 1
            i += 8
    if found > room:
        raise ValueError(f"there are more ones than the {room} places for them")
    return found


def scatter_places(
    const int64_t[::1] counts not None,
    int bits,
    int64_t base,
    const uint64_t[::1] words not None,
    Place[::1] out not None,
):
    """For each block of 2^bits places a uniform set of so many of them, in order; the first place is ``base``.

    A place that is drawn twice is drawn again. Stops where the words do not suffice for a block, or the room. That
    depends on how many places were drawn twice, which says nothing about the places: whatever was drawn before, all
    others are equally likely. So a block that was begun may be drawn anew.

    Returns how many blocks are done and how many places are written.
    """
    cdef Py_ssize_t blocks = counts.shape[0]
    cdef Py_ssize_t room = out.shape[0]
    cdef Py_ssize_t width = width_of(bits)
    cdef Py_ssize_t available = words.shape[0] * 8 // width
    cdef Py_ssize_t used = 0, found = 0, block = 0, drawn, i, at
    cdef int64_t largest = 0x7FFFFFFFFFFFFFFF
    cdef int64_t count, next_place
    cdef uint64_t mask, place, left, summary
    cdef uint64_t marks[BLOCK_WORDS]
    cdef int16_t numbers[FEW]
    cdef int16_t ranks[FEW]
    cdef const uint8_t* raw
    if not 1 <= bits <= 62:
        raise ValueError(f"blocks of 2^{bits} places are too small or too large")
    if Place is uint32_t:
        largest = 0x100000000
    if not 0 <= base <= largest or blocks > (largest - base) >> bits:
        raise ValueError(f"{blocks} blocks of 2^{bits} places from {base} on cannot be numbered")
    check_counts(counts, bits)
    if blocks == 0:
        return 0, 0
    raw = <const uint8_t*>&words[0] if words.shape[0] else NULL
    mask = (<uint64_t>1 << bits) - 1
    memset(marks, 0, sizeof(marks))
    with nogil:
        while block < blocks:
            count = counts[block]
            if not 0 <= count <= room - found or count > available - used:
                break
            drawn = 0
            if count <= FEW and bits <= RANKED_BITS and room - found >= FEW and available - used >= FEW:
                if RANK(raw + used * width, <int>width, <int>mask, <int>count, numbers, ranks):
                    for i in range(FEW):  # what is past the count is overwritten by the next block
                        out[found + ranks[i]] = <Place>(base + numbers[i])
                    used += count
                    found += count
                    base += <int64_t>1 << bits
                    block += 1
                    continue
            if bits <= MARKED_BITS:  # mark the places, then read the marks
                summary = 0
                while drawn < count and used < available:
                    place = read(raw, used, width) & mask
                    used += 1
                    left = <uint64_t>1 << (place & 63)
                    drawn += (marks[place >> 6] & left) == 0
                    marks[place >> 6] |= left
                    summary |= <uint64_t>1 << (place >> 6)
                if drawn < count:
                    break
                while summary:
                    i = LOWEST_BIT(summary)
                    summary &= summary - 1
                    left = marks[i]
                    marks[i] = 0
                    while left:
                        out[found] = <Place>(base + 64 * i + LOWEST_BIT(left))
                        found += 1
                        left &= left - 1
            else:  # few among very many: put each into its place among those before
                while drawn < count and used < available:
                    next_place = base + <int64_t>(read(raw, used, width) & mask)
                    used += 1
                    at = found + drawn
                    while at > found and <int64_t>out[at - 1] > next_place:
                        at -= 1
                    if at > found and <int64_t>out[at - 1] == next_place:
                        continue
                    i = found + drawn
                    while i > at:
                        out[i] = out[i - 1]
                        i -= 1
                    out[at] = <Place>next_place
                    drawn += 1
                if drawn < count:
                    break
                found += count
            base += <int64_t>1 << bits
            block += 1
    return block, found


def scatter_bits(
    const int64_t[::1] counts not None, int bits, const uint64_t[::1] words not None, uint8_t[::1] bitmap not None
):
    """Set a uniform set of so many bits in each block of 2^bits of a bitmap, whose bits there are all zero.

    Stops where the words do not suffice for a block, as ``scatter_places`` does, and leaves that block zero.
    Returns how many blocks are done.
    """
    cdef Py_ssize_t blocks = counts.shape[0]
    cdef Py_ssize_t width = width_of(bits)
    cdef Py_ssize_t available = words.shape[0] * 8 // width
    cdef Py_ssize_t used = 0, block = 0, drawn, step, i
    cdef int64_t count
    cdef uint64_t mask, place
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
                for i in range(FEW):  # without a branch that would be guessed wrongly
                    place = read(raw, used + i, width) & mask
                    bit = <uint8_t>((i < count) << (place & 7))
                    drawn += (bit & ~marks[place >> 3]) != 0
                    marks[place >> 3] |= bit
                used += FEW if count > FEW else count
            while drawn < count and used < available:
                place = read(raw, used, width) & mask
                used += 1
                bit = <uint8_t>(1 << (place & 7))
                drawn += (marks[place >> 3] & bit) == 0
                marks[place >> 3] |= bit
            if drawn < count:
                memset(marks, 0, step)
                break
            block += 1
    return block


cdef int check_counts(const int64_t[::1] counts, int bits) except -1:
    """Refuse more or fewer places than a block has."""
    cdef Py_ssize_t i
    cdef int64_t least = 0, most = 0
    for i in range(counts.shape[0]):
        least = counts[i] if counts[i] < least else least
        most = counts[i] if counts[i] > most else most
    if least < 0 or most > <int64_t>1 << bits:
        raise ValueError(f"from {least} to {most} of 2^{bits} places cannot be chosen")
    return 0


cdef inline Py_ssize_t width_of(int bits) noexcept nogil:
    """Bytes of a number that is drawn for so many bits."""
    return 1 if bits <= 8 else 2 if bits <= 16 else 4 if bits <= 32 else 8


cdef inline uint64_t read(const uint8_t* raw, Py_ssize_t place, Py_ssize_t width) noexcept nogil:
    """The number of so many bytes at a place."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if width == 1:
        return raw[place]
    if width == 2:
        memcpy(&two, raw + 2 * place, 2)
        return two
    if width == 4:
        memcpy(&four, raw + 4 * place, 4)
        return four
    memcpy(&eight, raw + 8 * place, 8)
    return eight
