"""How estimates are written: digits follow the error, estimates lie in their interval, withheld counts say so."""

import math

import pytest

from shuffledp.display import decimals_of, error_sentence, percent, show_counts, show_number, withheld_sentence


@pytest.mark.parametrize(
    ("error", "decimals"),
    [
        (1234.5, 0), (10.0, 0), (9.96, 0), (9.94, 1), (7.1, 1), (1.0, 1), (0.996, 1), (0.5, 2), (0.0999, 2),
        (0.00003, 6), (0.0, 0), (math.inf, 0), (math.nan, 0), (-1.0, 0),
    ],
)  # fmt: skip
def test_two_digits_of_the_error(error, decimals):
    assert decimals_of(error) == decimals


def test_digits_never_hide_the_interval():
    """The reproduction: a mean of "49.9989, between 49.9989 and 49.999"."""
    number = show_number(49.99892, 0.000031, (49.998861, 49.998979))
    assert (number.text, number.interval) == ("49.998920", "49.998861 to 49.998979")
    assert number.error == "0.000031"


@pytest.mark.parametrize("value", [0.0, 1.5, -3.25, 49.99892, 12345.678, -9.9e14, 3e20, -2e-18, 1e300])
@pytest.mark.parametrize("error", [1e-300, 1e-20, 3.1e-7, 0.04, 0.996, 7.1, 4321.0, 1e12, 1e200])
def test_the_shown_interval_holds_the_interval_and_the_estimate(value, error):
    low, high = value - 2 * error, value + 2 * error
    number = show_number(value, error, (low, high))
    shown_low, text, shown_high = (float(part.replace(",", "")) for part in (number.low, number.text, number.high))
    slack = 1e-9 * max(abs(value), error) + (error if abs(value) > 1e15 or error < 1e-11 or error > 1e14 else 0)
    assert shown_low <= low + slack
    assert shown_high >= high - slack
    assert shown_low <= text <= shown_high
    if low + 1e-13 * abs(low) < high:
        assert number.low != number.high
    assert all(len(part) <= 60 for part in (number.low, number.text, number.high, number.error))


def test_an_estimate_is_clipped_to_its_interval():
    """The reproduction: "ferry -6, interval 0 to 6"."""
    (ferry, bus) = show_counts([-6.2, 410.4], [5.9, 5.9], [(0.0, 6.1), (398.7, 421.2)], users=1000)
    assert (ferry.text, ferry.value, ferry.interval, ferry.share) == ("0", 0.0, "0 to 7", "0.00%")
    assert (bus.text, bus.interval, bus.share) == ("410", "398 to 422", "41.04%")
    assert show_number(-6.0, 5.0, (0.0, 6.0)).text == "0.0"
    assert show_number(-0.001, 0.3, (-1.0, 1.0)).text == "0.00"


def test_a_withheld_count_is_below_its_threshold():
    (hidden, seen) = show_counts([0.0, 70.0], [50.0, 7.2], [(0, 63), (56, 84)], users=891, withheld_below=64)
    assert (hidden.text, hidden.value, hidden.interval, hidden.share) == ("< 64", 0.0, "0 to 63", "< 7.19%")
    assert (seen.text, seen.error) == ("70", "7.2")
    (zero,) = show_counts([0.0], [7.2], [(0, 14)], users=891)
    assert zero.text == "0"
    assert withheld_sentence(None, 0.95) == ""
    assert "64" in withheld_sentence(64, 0.95)
    assert "2.5%" in withheld_sentence(64, 0.95)


def test_errors_in_words():
    assert error_sentence([7.21, 7.22], [70.0, 0.0], None) == "The standard error of each count is 7.2 users."
    several = error_sentence([7.2, 12.8, 50.1], [70.0, 60.0, 0.0], 64)
    assert several == "The standard error of each count is 7.2 to 13 users, of a withheld one up to 50."
    assert error_sentence([50.1], [0.0], 64) == "The standard error of a withheld count is up to 50."


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_shown_without_failing(bad):
    assert show_number(bad, 1.0, (0.0, 1.0)).low == "0.0"
    assert show_number(1.0, bad, (0.0, 2.0)).text
    assert show_number(1.0, 1.0, (bad, bad)).text
    assert show_counts([bad], [bad], [(bad, bad)], users=0)[0].text


@pytest.mark.parametrize(
    ("confidence", "text"), [(0.95, "95%"), (0.999, "99.9%"), (0.995, "99.5%"), (0.29, "29%"), (1 - 1e-6, "99.9999%")]
)
def test_a_confidence_below_1_is_never_100_percent(confidence, text):
    assert percent(confidence) == text
