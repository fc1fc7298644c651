"""The kernel of whole numbers below a bound: every word by its definition, and input that is wrong."""

import numpy as np
import pytest

from shuffledp.native import ACTIVE

if not ACTIVE:
    pytest.skip("the kernels are not built", allow_module_level=True)

from shuffledp.native import _numbers

TOP = (1 << 64) - 1
WORDS = np.zeros(64, dtype=np.uint64)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 100, (1 << 32) + 1, 3 << 62, (1 << 63) + 1, TOP])
def test_numbers_below_a_bound_are_exact(bound):
    """The upper half of the product; words are passed over where the lower half is in the part left over."""
    words = np.frombuffer(np.random.default_rng().bytes(4000), dtype=np.uint64).copy()
    words[:6] = [0, 1, 2, TOP, TOP - 1, 1 << 63]
    expected = [int(w) * bound >> 64 for w in words if int(w) * bound % (1 << 64) >= (1 << 64) % bound]
    out = np.zeros(500, dtype=np.uint64)
    assert _numbers.draw_below(words, bound, out) == len(expected)
    assert out[: len(expected)].tolist() == expected
    assert _numbers.draw_below(words, bound, out[:3]) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: _numbers.draw_below(WORDS, 0, WORDS),
        lambda: _numbers.draw_below(WORDS, -1, WORDS),
        lambda: _numbers.draw_below(WORDS, 1 << 64, WORDS),
        lambda: _numbers.draw_below(WORDS, 3, WORDS.view(np.int64)),
    ],
)
def test_wrong_input_is_refused(call):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        call()


def test_nothing_to_do_is_done():
    assert _numbers.draw_below(WORDS[:0], 5, WORDS.copy()) == 0
    assert _numbers.draw_below(WORDS, 5, WORDS[:0]) == 0
