# cython: boundscheck=False, wraparound=False, cdivision=True, language_level=3
"""Writing of the reports of many users, given the messages that are randomly omitted."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

ctypedef fused Message:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


def write_reports(
    const int64_t[::1] absent not None,
    const Message[::1] row not None,
    const int64_t[::1] owned not None,
    int64_t dummy,
    Message[::1] out not None,
    int64_t[::1] ends not None,
):
    """Write the row for each user without the absent cells, then the entry ``owned[user]`` of the row.

    A cell is ``user * len(row) + column``; absent cells are in increasing order. If ``dummy`` is at least 0, it is
    written instead of absent entries. ``ends`` receives the number of entries written up to the end of each user's
    report; the last one is returned.
    """
    cdef Py_ssize_t users = owned.shape[0]
    cdef Py_ssize_t size = row.shape[0]
    cdef Py_ssize_t missing = absent.shape[0]
    cdef Py_ssize_t user, begin, column, at = 0, next_absent = 0
    cdef int64_t cell = 0, absent_cell, own
    cdef bint wrong = False
    if size < 1:
        raise ValueError("a row has at least one entry")
    if ends.shape[0] != users:
        raise ValueError(f"{users} users do not have {ends.shape[0]} ends")
    if users > out.shape[0] // (size + 1):
        raise ValueError(f"{out.shape[0]} entries are too few for {users} rows of {size + 1}")
    if dummy >= 0 and sizeof(Message) < 8 and dummy >> (8 * sizeof(Message)) % 64:
        raise ValueError(f"the dummy {dummy} does not fit the type of the messages")
    if users == 0:
        if missing:
            raise ValueError("cells are absent, but there are no users")
        return 0
    with nogil:
        for user in range(users):
            begin = 0
            while next_absent < missing:
                absent_cell = absent[next_absent]
                if absent_cell >= cell + size:
                    break
                if absent_cell < cell + begin:
                    wrong = True
                    break
                column = absent_cell - cell
                memcpy(&out[0] + at, &row[0] + begin, (column - begin) * sizeof(Message))
                at += column - begin
                if dummy >= 0:
                    out[at] = <Message>dummy
                    at += 1
                begin = column + 1
                next_absent += 1
            own = owned[user]
            if wrong or not 0 <= own < size:
                wrong = True
                break
            memcpy(&out[0] + at, &row[0] + begin, (size - begin) * sizeof(Message))
            at += size - begin
            out[at] = row[own]
            at += 1
            ends[user] = at
            cell += size
    if wrong or next_absent < missing:
        raise ValueError("absent cells are not in increasing order, or an entry lies outside the row")
    return at
