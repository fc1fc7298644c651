"""Messages as bits: every format survives packing, and bytes that packing never makes are refused; and their counts."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp import messages
from shuffledp.errors import DomainError, ParameterError
from shuffledp.messages import MessageFormat, Messages, count_values

pytestmark = pytest.mark.kernels

BOUNDS = st.one_of(
    st.integers(1, 40), st.integers(1, 64).map(lambda bits: 1 << bits), st.integers(1, 1 << 64), st.just(1 << 64)
)
FORMATS = st.builds(MessageFormat, st.lists(BOUNDS, max_size=4).map(tuple), st.integers(1, 20))


def drawn(data, form, length):
    limits = [*form.bounds, *[2] * form.flags]
    rows = [[data.draw(st.sampled_from([0, limit - 1, limit // 2])) for limit in limits] for _ in range(length)]
    values = np.array(rows, dtype=np.uint64).reshape(length, form.columns).astype(form.dtype)
    return values[:, 0] if form.columns == 1 else values


@given(st.data(), FORMATS, st.integers(0, 3))
def test_packing_and_back(data, form, length):
    values = drawn(data, form, length)
    packed = form.pack(values)
    assert packed.shape == (length, form.size)
    back = form.unpack(packed)
    assert back.dtype == form.dtype
    assert back.tolist() == values.tolist()


@given(st.data(), FORMATS)
def test_any_bytes_are_a_message_or_refused(data, form):
    content = data.draw(st.binary(min_size=form.size, max_size=form.size))
    packed = np.frombuffer(content, dtype=np.uint8).reshape(1, -1)
    try:
        values = form.unpack(packed)
    except DomainError:
        return
    assert form.pack(values).tobytes() == content


SMALL_FORMATS = st.builds(MessageFormat, st.lists(st.integers(1, 1 << 14), max_size=4).map(tuple), st.integers(1, 8))


@given(st.data(), SMALL_FORMATS, st.integers(0, 3))
def test_packing_as_integers_and_bit_by_bit_agree(data, form, length):
    """On messages, and on arbitrary bytes: the same values, or both refuse them."""
    values = drawn(data, form, length)
    content = data.draw(st.binary(min_size=form.size, max_size=form.size))
    arbitrary = np.frombuffer(content, dtype=np.uint8).reshape(1, -1)
    as_integers = form.pack(values), unpacked(form, arbitrary)
    with mock.patch.object(messages, "_WORD_BITS", ()):
        bit_by_bit = form.pack(values), unpacked(form, arbitrary)
    assert np.array_equal(as_integers[0], bit_by_bit[0])
    assert as_integers[1] == bit_by_bit[1]


def unpacked(form, packed):
    try:
        return form.unpack(packed).tolist()
    except DomainError as error:
        return str(error)


def test_bits_by_hand():
    """Five bits for 19 of 0 .. 20, two for 2 of 0 .. 2, then the flags 1, 0, 1, then zeros."""
    form = MessageFormat((21, 3), 3)
    assert (form.bits, form.size, form.columns, form.codes) == (10, 2, 5, 21 * 3 * 8)
    assert form.pack(np.array([[19, 2, 1, 0, 1]])).tolist() == [[0b10011_10_1, 0b01_000000]]


def test_the_largest_numbers_keep_every_digit():
    form = MessageFormat((1 << 64, 1 << 64))
    values = np.array([[2**64 - 1, 2**63 + 1], [0, 1]], dtype=np.uint64)
    assert form.dtype == np.uint64
    assert form.unpack(form.pack(values)).tolist() == values.tolist()
    with pytest.raises(ParameterError):
        form.code(values)


@pytest.mark.parametrize(("bounds", "bits"), [((1,), 1), ((1, 1), 1), ((2,), 1), ((3,), 2), ((256,), 8), ((257,), 9)])
def test_sizes(bounds, bits):
    assert MessageFormat(bounds).bits == bits


def test_messages_that_say_nothing():
    form = MessageFormat((1,))
    assert form.unpack(form.pack(np.zeros(3, dtype=np.uint8))).tolist() == [0, 0, 0]
    with pytest.raises(DomainError):
        form.unpack(np.array([[128]], dtype=np.uint8))


@pytest.mark.parametrize(
    ("bounds", "flags"), [((), 0), ((0,), 0), ((-1,), 0), (((1 << 64) + 1,), 0), ((2,), -1), ((3, 0), 1)]
)
def test_formats_that_cannot_be_sent(bounds, flags):
    with pytest.raises(ParameterError):
        MessageFormat(bounds, flags)


@pytest.mark.parametrize(
    "packed",
    [
        np.array([[0b11100000]], dtype=np.uint8),  # 7 of 0 .. 5
        np.array([[0b00000001]], dtype=np.uint8),  # a bit after the end
        np.array([[0b00001000]], dtype=np.uint8),  # the first bit after the end
        np.array([[0, 0]], dtype=np.uint8),
        np.array([0], dtype=np.uint8),
        np.array([[0]], dtype=np.int64),
        np.zeros((2, 0), dtype=np.uint8),
    ],
)
def test_bytes_that_packing_never_makes(packed):
    with pytest.raises(DomainError):
        MessageFormat((6,), 1).unpack(packed)


def test_one_bad_message_among_many_is_found():
    form = MessageFormat((5,), 2)
    packed = form.pack(np.tile([[4, 1, 1]], (1000, 1)))
    packed[777] = 0b101_00_000
    with pytest.raises(DomainError):
        form.unpack(packed)


def test_more_than_one_chunk():
    form = MessageFormat((1 << 40,), 100)
    assert form._chunk < 60_000
    values = np.random.default_rng().integers(0, 2, (60_000, 101), dtype=np.uint64)
    values[:, 0] = np.arange(60_000) << 20
    assert np.array_equal(form.unpack(form.pack(values)), values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0, 6, 0]]),
        np.array([[-1, 0, 0]]),
        np.array([[0, 0, 2]]),
        np.array([[0.0, 0.0, 0.0]]),
        np.array([[0, 0]]),
        np.array([0, 0, 0]),
        np.array(0),
        np.zeros((1, 1, 3), dtype=int),
        np.array([["0", "0", "0"]]),
    ],
)
def test_messages_of_another_format(values):
    form = MessageFormat((5, 6), 1)
    with pytest.raises(DomainError):
        form.check(values)
    with pytest.raises(DomainError):
        form.pack(values)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), st.integers(0, 3))
def test_codes_number_every_message_once(bounds, flags):
    form = MessageFormat(bounds, flags)
    codes = np.arange(form.codes)
    messages = form.message(codes)
    form.check(messages)
    assert form.code(messages).tolist() == codes.tolist()
    assert len({row.tobytes() for row in form.pack(messages)}) == form.codes


def test_mixing_forgets_who_sent_what():
    messages = Messages(np.array([3, 1, 2]), 2, np.array([0, 1, 3]), secure=False)
    shuffled = messages.shuffled(lambda values: values.sort())
    assert len(shuffled) == 3
    assert shuffled.offsets is None
    assert (shuffled.users, shuffled.secure, shuffled.values.tolist()) == (2, False, [1, 2, 3])


@pytest.fixture(params=["native", "numpy"])
def path(request, monkeypatch) -> str:
    """Whether the compiled kernel counts, or numpy."""
    if request.param == "native" and not messages.ACTIVE:
        pytest.skip("the compiled kernels are not built")
    monkeypatch.setattr(messages, "ACTIVE", request.param == "native")
    return request.param


TYPES = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, ">u4", ">i2"]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("length", "bound"), [(0, 1), (1, 2), (999, 2), (999, 100), (30, 127), (50_000, 127)])
def test_counts_are_those_of_numpy(dtype, length, bound):
    """Few and many values against the width of the table; as they are, apart, read-only and misaligned."""
    largest = 2 if dtype is np.bool_ else bound
    values = np.random.default_rng().integers(largest, size=length).astype(dtype)
    expected = np.bincount(values.astype(np.int64), minlength=bound).tolist()
    values.flags.writeable = False
    counts = count_values(values, bound)
    assert counts.dtype == np.int64
    assert counts.tolist() == expected
    assert count_values(np.repeat(values, 3)[::3], bound).tolist() == expected
    assert count_values(values[::-1], bound).tolist() == expected
    room = np.zeros(values.nbytes + 1, dtype=np.uint8)
    room[1:] = values.view(np.uint8)
    assert count_values(room[1:].view(dtype), bound).tolist() == expected


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
@pytest.mark.parametrize("length", [1, 7, 5_000])
def test_a_value_outside_is_never_counted(dtype, length):
    """At the bound, the largest and the least of the type: -1 as an unsigned number is below no bound."""
    limits = np.iinfo(np.dtype(dtype))
    for bound in (1, 100, int(limits.max)):
        if bound > 1 << 17:
            continue
        for place in {0, length // 2, length - 1}:
            for value in {bound, limits.max, limits.min, -1}:
                if limits.min <= value <= limits.max and not 0 <= value < bound:
                    values = np.zeros(length, dtype=dtype)
                    values[place] = value
                    with pytest.raises(DomainError, match="outside its bounds"):
                        count_values(values, bound)


@pytest.mark.usefixtures("path")
def test_negative_numbers_below_a_bound_that_their_type_does_not_reach():
    for values in (np.array([-1, 5], dtype=np.int8), np.array([-1, 5], dtype=np.int16), np.array([-(2**63), 5])):
        for bound in (128, 256, 1 << 16, 1 << 17):
            with pytest.raises(DomainError, match="outside its bounds"):
                count_values(values, bound)
            assert count_values(values[1:], bound).sum() == 1


@pytest.mark.parametrize("bound", [3, 1_000, 5_000])
def test_threads_count_together(path, monkeypatch, bound):
    """Three threads with tables of their own, several rounds, and tables that are too large for that."""
    values = np.random.default_rng().integers(bound, size=40_003, dtype=np.uint16)
    expected = np.bincount(values, minlength=bound).tolist()
    monkeypatch.setattr(messages, "available_cores", lambda: 3)
    monkeypatch.setattr(messages, "_MIN_VALUES_PER_THREAD", 100)
    monkeypatch.setattr(messages, "_CHUNK_VALUES", 10_000)
    assert count_values(values, bound).tolist() == expected
    monkeypatch.setattr(messages, "_MAX_COUNTED", 10_000)
    assert count_values(values, bound).tolist() == expected
    monkeypatch.setattr(messages, "_NARROW_TABLE", 2)
    assert count_values(values, bound).tolist() == expected
    monkeypatch.setattr(messages, "_TABLE_BYTES", 2)
    assert count_values(values, bound).tolist() == expected
    for place in (0, 9_999, 20_000, 40_002):
        wrong = values.copy()
        wrong[place] = bound
        with pytest.raises(DomainError, match="outside its bounds"):
            count_values(wrong, bound)


@pytest.mark.usefixtures("path")
def test_only_flat_integers_are_counted():
    for values in (
        np.zeros((2, 2), dtype=np.uint8),
        np.zeros(2),
        np.array(["a"]),
        np.array([None]),
        np.array(1),
        np.zeros(2, "m8[s]"),
    ):
        with pytest.raises(DomainError, match="not a flat array of integers"):
            count_values(values, 5)
    assert count_values(np.empty(0, dtype=np.uint8), 0).tolist() == []
    with pytest.raises(DomainError, match="outside its bounds"):
        count_values(np.zeros(1, dtype=np.uint8), 0)
    with pytest.raises(ParameterError, match="must not be negative; got -1"):
        count_values(np.zeros(1, dtype=np.uint8), -1)
