# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Uniform permutations in place: scattering by labels, settling the remaining items, and Fisher-Yates within a group.

Items have ``size`` bytes each and are contiguous. Every function leaves a permutation of its items, also if it stops
early. Items of 1, 2, 4 and 8 bytes are moved as numbers, others in pieces.
"""

from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define shuffledp_will_write(address) __builtin_prefetch((address), 1)
    #else
    #define shuffledp_will_write(address) ((void)(address))
    #endif
    """
    void shuffledp_will_write(const void *address) noexcept nogil

cdef enum:
    MAX_LABELS = 256
    LINE = 64  # bytes of a cache line
    MAX_AHEAD = 512  # bytes of a record that are prefetched; the hardware prefetches those after them
    PIECE = 16  # bytes of a record that are moved at once

ctypedef fused number_t:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

cdef struct Segments:
    Py_ssize_t count
    Py_ssize_t head[MAX_LABELS]
    Py_ssize_t end[MAX_LABELS]


def scatter(
    uint8_t[::1] items not None,
    Py_ssize_t size,
    int64_t[::1] heads not None,
    const int64_t[::1] ends not None,
    const uint8_t[::1] labels not None,
):
    """Assign labels to items and move them to the heads of their segments; returns the number of labels used.

    Segment k is heads[k]:ends[k] and contains unlabelled items; there are 1, 2, 4, ... or 256 segments in ascending
    order. An unlabelled item gets the next label (only its low bits are used) and is moved to the head of that segment,
    which advances; the item that was there is next. It stops when the labels are used up, or when a segment is full
    (the last one: all but one item); in that case before the next label is read.
    """
    cdef Py_ssize_t count = _count(items, size), before = 0, used, k
    cdef Segments segments
    cdef char *current
    segments.count = _label_count(heads.shape[0])
    if ends.shape[0] != segments.count:
        raise ValueError("there must be as many ends as heads")
    for k in range(segments.count):
        segments.head[k], segments.end[k] = heads[k], ends[k]
        if not before <= segments.head[k] <= segments.end[k] <= count:
            raise ValueError("the segments must be in ascending order and within the items")
        before = segments.end[k]
    k = segments.count - 1
    if labels.shape[0] == 0 or segments.head[k] == segments.end[k]:
        return 0
    segments.end[k] -= 1  # the origin of the first item, which receives the last one
    current = <char *> malloc(size)
    if current == NULL:
        raise MemoryError
    with nogil:
        used = _scatter(<char *> &items[0], size, &segments, &labels[0], labels.shape[0], current)
    free(current)
    for k in range(segments.count):
        heads[k] = segments.head[k]
    return used


def settle(
    uint8_t[::1] items not None,
    Py_ssize_t size,
    const int64_t[::1] begins not None,
    const int64_t[::1] heads not None,
    const uint8_t[::1] labels not None,
    int64_t[::1] bounds not None,
):
    """Assign labels to all other items and group the items by label: those of k become bounds[k]:bounds[k + 1].

    Items begins[s]:heads[s] are already labelled: with L = len(bounds) - 1 labels and L T segments in ascending order,
    their label is s // T. There must be exactly one new label per unlabelled item.
    """
    cdef Py_ssize_t count = _count(items, size), moved = begins.shape[0], label_count, parts, s
    cdef Py_ssize_t *offsets
    label_count = _label_count(bounds.shape[0] - 1)
    if heads.shape[0] != moved or moved == 0 or moved % label_count:
        raise ValueError("every label must have the same number of segments, each with a begin and a head")
    parts = moved // label_count
    offsets = <Py_ssize_t *> malloc(3 * moved * sizeof(Py_ssize_t))
    if offsets == NULL:
        raise MemoryError
    try:
        for s in range(moved):
            offsets[s], offsets[moved + s] = begins[s], heads[s]
        _settle(items, size, count, offsets, offsets + moved, offsets + 2 * moved, parts, labels, bounds)
    finally:
        free(offsets)


def fisher_yates(
    uint8_t[::1] items not None,
    Py_ssize_t size,
    Py_ssize_t index,
    const uint32_t[::1] words not None,
    Py_ssize_t used,
):
    """Continue a uniform permutation at ``index``, with the words from ``used`` on; returns both, advanced.

    It is complete when the index is the number of items, which must be below 2^32 - 1. The item at the index is swapped
    with one at a uniform index up to and including it: Lemire (2019), multiplication with rejection.
    """
    cdef Py_ssize_t count = _count(items, size)
    if not (0 <= index <= count < UINT32_MAX and 0 <= used <= words.shape[0]):
        raise ValueError("index and used must lie within fewer than 2^32 - 1 items and within the words")
    if index < count and used < words.shape[0]:
        with nogil:
            _fisher_yates(<char *> &items[0], size, count, &index, &words[0], words.shape[0], &used)
    return index, used


cdef Py_ssize_t _count(uint8_t[::1] items, Py_ssize_t size) except -1:
    if size < 1 or items.shape[0] % size:
        raise ValueError("the size must be at least 1 and divide the number of bytes")
    return items.shape[0] // size


cdef Py_ssize_t _label_count(Py_ssize_t count) except -1:
    if not 1 <= count <= MAX_LABELS or count & (count - 1):
        raise ValueError("there must be 1, 2, 4, ... or 256 labels")
    return count


cdef inline bint _is_number(const char *items, Py_ssize_t size) noexcept nogil:
    """Whether the items can be moved as numbers: by their size and alignment."""
    return (size == 1 or size == 2 or size == 4 or size == 8) and <uintptr_t> items % <uintptr_t> size == 0


cdef inline void _exchange(char *one, char *other, Py_ssize_t size) noexcept nogil:
    """Swap two records, which may be the same."""
    cdef char saved[PIECE]
    cdef char moved[PIECE]
    while size >= PIECE:
        memcpy(saved, one, PIECE)
        memcpy(moved, other, PIECE)
        memcpy(one, moved, PIECE)
        memcpy(other, saved, PIECE)
        one += PIECE
        other += PIECE
        size -= PIECE
    if size >= 8:
        memcpy(saved, one, 8)
        memcpy(moved, other, 8)
        memcpy(one, moved, 8)
        memcpy(other, saved, 8)
        one += 8
        other += 8
        size -= 8
    if size >= 4:
        memcpy(saved, one, 4)
        memcpy(moved, other, 4)
        memcpy(one, moved, 4)
        memcpy(other, saved, 4)
        one += 4
        other += 4
        size -= 4
    while size > 0:
        saved[0] = one[0]
        one[0] = other[0]
        other[0] = saved[0]
        one += 1
        other += 1
        size -= 1


cdef Py_ssize_t _scatter(
    char *items, Py_ssize_t size, Segments *segments, const uint8_t *labels, Py_ssize_t count, char *current
) noexcept nogil:
    """Scatter; the first item comes from the index after the end of the last segment."""
    cdef char *hole = items + segments.end[segments.count - 1] * size
    cdef Py_ssize_t done = 0, run, k
    memcpy(current, hole, size)
    while done < count:
        run = count - done
        for k in range(segments.count):
            run = min(run, segments.end[k] - segments.head[k])
        if run == 0:
            break
        if not _is_number(items, size):
            _scatter_records(items, size, segments, labels + done, run, current)
        elif size == 1:
            _scatter_numbers(<uint8_t *> items, segments, labels + done, run, <uint8_t *> current)
        elif size == 2:
            _scatter_numbers(<uint16_t *> items, segments, labels + done, run, <uint16_t *> current)
        elif size == 4:
            _scatter_numbers(<uint32_t *> items, segments, labels + done, run, <uint32_t *> current)
        else:
            _scatter_numbers(<uint64_t *> items, segments, labels + done, run, <uint64_t *> current)
        done += run
    memcpy(hole, current, size)
    return done


cdef void _scatter_numbers(
    number_t *items, Segments *segments, const uint8_t *labels, Py_ssize_t run, number_t *current
) noexcept nogil:
    """Scatter by ``run`` labels; every segment has capacity for that many items."""
    cdef Py_ssize_t mask = segments.count - 1, t, k, index
    cdef number_t moving = current[0], replaced
    for t in range(run):
        k = labels[t] & mask
        index = segments.head[k]
        segments.head[k] = index + 1
        shuffledp_will_write(<char *> (items + index) + LINE)
        replaced = items[index]
        items[index] = moving
        moving = replaced
    current[0] = moving


cdef void _scatter_records(
    char *items, Py_ssize_t size, Segments *segments, const uint8_t *labels, Py_ssize_t run, char *current
) noexcept nogil:
    cdef Py_ssize_t mask = segments.count - 1, prefetched = min(size, <Py_ssize_t> MAX_AHEAD), t, k, ahead
    cdef char *target
    for t in range(run):
        k = labels[t] & mask
        target = items + segments.head[k] * size
        segments.head[k] += 1
        ahead = 0
        while ahead < prefetched:
            shuffledp_will_write(target + 2 * size + ahead)
            ahead += LINE
        _exchange(target, current, size)


cdef int _settle(
    uint8_t[::1] items,
    Py_ssize_t size,
    Py_ssize_t count,
    Py_ssize_t *begins,
    Py_ssize_t *heads,
    Py_ssize_t *targets,
    Py_ssize_t parts,
    const uint8_t[::1] labels,
    int64_t[::1] bounds,
) except -1:
    cdef Segments free_slots
    cdef Py_ssize_t before = 0, missing = count, s, k, t
    free_slots.count = bounds.shape[0] - 1
    for s in range(free_slots.count * parts):
        if not before <= begins[s] <= heads[s] <= count:
            raise ValueError("the segments must be in ascending order and within the items")
        before = heads[s]
        missing -= heads[s] - begins[s]
    if labels.shape[0] != missing:
        raise ValueError("there must be a label for every item without one")
    for k in range(free_slots.count):
        free_slots.end[k] = 0
    for t in range(missing):
        free_slots.end[labels[t] & (free_slots.count - 1)] += 1
    before = 0
    for k in range(free_slots.count):
        bounds[k] = before
        for s in range(k * parts, (k + 1) * parts):
            targets[s] = before
            before += heads[s] - begins[s]
        free_slots.head[k] = before
        before += free_slots.end[k]
        free_slots.end[k] = before
    bounds[free_slots.count] = before
    if missing:
        with nogil:
            _shift(<char *> &items[0], size, begins, heads, targets, free_slots.count * parts)
            _fill(<char *> &items[0], size, &free_slots, &labels[0], missing)
    return 0


cdef void _shift(
    char *items, Py_ssize_t size, Py_ssize_t *begins, Py_ssize_t *heads, Py_ssize_t *targets, Py_ssize_t count
) noexcept nogil:
    """Move every segment to its target; the order within a segment may change.

    Targets are in the order of the segments and do not overlap. Segments that move up are moved first, from the last
    one on, then those that move down, from the first one on; so no target contains items of another segment.
    """
    cdef Py_ssize_t s, length, moved
    for s in range(count - 1, -1, -1):
        length = heads[s] - begins[s]
        moved = min(length, targets[s] - begins[s])
        if moved > 0:
            _exchange(items + begins[s] * size, items + (targets[s] + length - moved) * size, moved * size)
    for s in range(count):
        length = heads[s] - begins[s]
        moved = min(length, begins[s] - targets[s])
        if moved > 0:
            _exchange(items + targets[s] * size, items + (heads[s] - moved) * size, moved * size)


cdef void _fill(
    char *items, Py_ssize_t size, Segments *free_slots, const uint8_t *labels, Py_ssize_t count
) noexcept nogil:
    """Assign the next label to the first unlabelled item and swap it to a free slot of that label."""
    cdef Py_ssize_t first = 0, t, k
    for t in range(count):
        while free_slots.head[first] == free_slots.end[first]:
            first += 1
            if first == free_slots.count:
                return
        k = labels[t] & (free_slots.count - 1)
        if free_slots.head[k] == free_slots.end[k]:  # only if another thread changes the labels
            return
        _exchange(items + free_slots.head[first] * size, items + free_slots.head[k] * size, size)
        free_slots.head[k] += 1


cdef void _fisher_yates(
    char *items,
    Py_ssize_t size,
    Py_ssize_t count,
    Py_ssize_t *index,
    const uint32_t *words,
    Py_ssize_t word_count,
    Py_ssize_t *used,
) noexcept nogil:
    """Fisher-Yates until the items or the words are exhausted."""
    cdef Py_ssize_t run
    while index[0] < count and used[0] < word_count:
        run = min(count - index[0], word_count - used[0])
        if not _is_number(items, size):
            run = _swap_records(items, size, index[0], words + used[0], run)
        elif size == 1:
            run = _swap_numbers(<uint8_t *> items, index[0], words + used[0], run)
        elif size == 2:
            run = _swap_numbers(<uint16_t *> items, index[0], words + used[0], run)
        elif size == 4:
            run = _swap_numbers(<uint32_t *> items, index[0], words + used[0], run)
        else:
            run = _swap_numbers(<uint64_t *> items, index[0], words + used[0], run)
        if run < 0:  # the last word was rejected
            used[0] += 1
            run = ~run
        index[0] += run
        used[0] += run


cdef inline bint _is_rejected(uint64_t product, uint32_t bound) noexcept nogil:
    """Whether a word must be rejected so that all integers below the bound are equally likely."""
    cdef uint32_t low = <uint32_t> product
    return low < bound and low < (0 - bound) % bound


cdef Py_ssize_t _swap_numbers(
    number_t *items, Py_ssize_t index, const uint32_t *words, Py_ssize_t run
) noexcept nogil:
    """The number of items swapped from the index on: ``run``, or the bitwise complement if a word was rejected."""
    cdef Py_ssize_t t, target
    cdef uint64_t product
    cdef uint32_t bound
    cdef number_t saved
    for t in range(run):
        bound = <uint32_t> (index + t + 1)
        product = <uint64_t> words[t] * bound
        if _is_rejected(product, bound):
            return ~t
        target = <Py_ssize_t> (product >> 32)
        saved = items[index + t]
        items[index + t] = items[target]
        items[target] = saved
    return run


cdef Py_ssize_t _swap_records(
    char *items, Py_ssize_t size, Py_ssize_t index, const uint32_t *words, Py_ssize_t run
) noexcept nogil:
    cdef Py_ssize_t t
    cdef uint64_t product
    cdef uint32_t bound
    for t in range(run):
        bound = <uint32_t> (index + t + 1)
        product = <uint64_t> words[t] * bound
        if _is_rejected(product, bound):
            return ~t
        _exchange(items + (index + t) * size, items + <Py_ssize_t> (product >> 32) * size, size)
    return run
