"""The study of a survey's table of private sums, corrected and measured: error and messages per user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shuffledp.figures import Curve, Panel
from shuffledp.lab.studies.checks import rmse
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure
from shuffledp.lab.studies.survey.checks import RISK, checks_of_protocol, checks_of_rounds, hoeffding
from shuffledp.lab.studies.survey.entries import BITS, DELTA, ENTRIES, EPSILON, NUMBERS, Entry, Measured, measured

_ROUNDS = {10**3: 1000, 5000: 1000, 30_000: 500, 200_000: 150, 10**6: 80}
_QUICK_ROUNDS = {10**3: 120, 10**4: 60, 30_000: 40}
"""The number of rounds for sums of numbers, by the number of users."""
_LEAST_ROUNDS = 10
_BIT_ROUNDS = {10**3: 2000, 10**4: 2000, 10**5: 2000, 10**6: 500, 10**7: 150}
_QUICK_BIT_ROUNDS = {10**3: 150, 10**4: 150, 10**5: 150, 10**6: 100}
_SWEEP_USERS = 100_000
_FIT_FROM = 10**4


def _measure(settings: Settings) -> Outcome:
    cases = [(entry, users, rounds) for entry in ENTRIES for users, rounds in _rounds(entry, settings).items()]
    weights = [_seconds(*case) for case in cases]
    measurements = [
        measured(entry, users, count, settings.source)
        for entry, users, count in settings.part(0.0, 0.95).steps(cases, weights)
    ]
    deltas = settings.pick((1e-2, 1e-6, 1e-10), (1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12))
    swept = [(entry, delta) for entry in ENTRIES if entry.swept for delta in deltas]
    sweep = [
        measured(entry, _SWEEP_USERS, settings.pick(150, 1000), settings.source, delta=delta)
        for entry, delta in settings.part(0.95, 1.0).steps(swept)
    ]
    responses, checks = hoeffding([measurement for measurement in measurements if measurement.entry.hoeffding])
    checks += [check for measurement in (*measurements, *sweep) for check in checks_of_rounds(measurement)]
    checks += [check for entry in ENTRIES for check in checks_of_protocol(_of(entry, measurements))]
    summary = [_summary(_of(entry, measurements)) for entry in ENTRIES]
    return Outcome(
        measured=_paragraphs(measurements, sweep, responses),
        tables={
            "": ResultTable.of(summary),
            "points": ResultTable.of([measurement.as_row() for measurement in measurements]),
            "delta": ResultTable.of([measurement.as_row() for measurement in sweep]),
            "hoeffding": ResultTable.of(responses),
        },
        figures=[_error_figure(measurements), _message_figure(measurements), _delta_figure(sweep)],
        checks=checks,
    )


def _rounds(entry: Entry, settings: Settings) -> dict[int, int]:
    """The number of rounds for an entry by the number of users; bits are faster, as only counts are drawn."""
    if entry.data is BITS:
        return settings.pick(_QUICK_BIT_ROUNDS, _BIT_ROUNDS)
    usual = settings.pick(_QUICK_ROUNDS, _ROUNDS)
    return {users: max(_LEAST_ROUNDS, round(entry.effort * rounds)) for users, rounds in usual.items()}


def _seconds(entry: Entry, users: int, rounds: int) -> float:
    """The approximate duration of a case, for the progress."""
    if entry.data is BITS:
        return 0.3 + rounds * users * (4e-9 if entry.group == "local" else 0)
    slow = entry.effort < 1
    return 0.5 + rounds * (users * (2e-7 if slow else 5e-8) + (0.02 if slow else 1e-3))


def _of(entry: Entry, measurements: Sequence[Measured]) -> list[Measured]:
    return [measurement for measurement in measurements if measurement.entry is entry]


def _named(name: str, measurements: Sequence[Measured]) -> list[Measured]:
    return [measurement for measurement in measurements if measurement.name == name]


def _growth(measurements: Sequence[Measured]) -> float:
    """The exponent with which the measured error grows with the users, by least squares from 10,000 users on."""
    chosen = [measurement for measurement in measurements if measurement.users >= _FIT_FROM]
    sizes = np.log([measurement.users for measurement in chosen])
    errors = np.log([rmse(measurement.errors)[0] for measurement in chosen])
    return float(np.polyfit(sizes, errors, 1, w=np.sqrt([len(measurement.errors) for measurement in chosen]))[0])


def _summary(measurements: Sequence[Measured]) -> dict[str, Any]:
    """A row of the notes' table: as noted, as corrected, and as measured with the largest number of users."""
    last = measurements[-1]
    low, high = (float(measurement.messages.mean()) for measurement in (measurements[0], last))
    return {
        "row_of_the_notes": last.entry.row or "(not in the notes)",
        "protocol": last.name,
        "noted": last.entry.noted or "-",
        "corrected": last.entry.corrected,
        "users": last.users,
        "rmse": rmse(last.errors)[0],
        "predicted_rmse": last.predicted,
        "power_of_users": _growth(measurements),
        "messages": high,
        "messages_of_fewest_users": low,
    }


def _paragraphs(
    measurements: Sequence[Measured], sweep: Sequence[Measured], responses: Sequence[dict[str, Any]]
) -> list[str]:
    def error(name: str) -> str:
        last = _named(name, measurements)[-1]
        digits = 0 if last.predicted > 100 else 2
        return f"{rmse(last.errors)[0]:,.{digits}f} ({last.predicted:,.{digits}f})"

    def sent(name: str, position: int) -> float:
        return float(_named(name, measurements)[position].messages.mean())

    numbers, bits = _named("sum/duchi", measurements)[-1].users, _named("count/cheu", measurements)[-1].users
    first = measurements[0].users
    almost = _named("sum/almost-central", measurements)[-1]
    one_message = {measurement.delta: rmse(measurement.errors)[0] for measurement in _named("count/cheu", sweep)}
    correlated = [rmse(measurement.errors)[0] for measurement in _named("count/correlated-noise", sweep)]
    last = responses[-1]
    rounds = sum(len(measurement.errors) for measurement in measurements)
    return [
        f"Root mean squared errors of the sum at epsilon {EPSILON:g} and delta {DELTA:g}. Numbers in [0, 1] follow "
        "the density 2 (1 - x): many small ones, few large, a mean of 1/3; a quarter of the bits are ones. The data "
        "are the quantiles of that distribution, so that only the protocols are random: "
        f"{rounds:,} rounds in all, drawn from the exact distribution of a round.",
        f"Measured errors, and the predicted ones in brackets. With {numbers:,} users and numbers: local, duchi "
        f"{error('sum/duchi')} and piecewise {error('sum/piecewise')}; privacy blanket "
        f"{error('sum/privacy-blanket')}, many bits by cheu {error('sum/cheu')}, almost central "
        f"{error('sum/almost-central')}, split and mix {error('sum/split-and-mix')}, central "
        f"{error('sum/discrete-laplace')}. From {_FIT_FROM:,} users on the local error grows as n to the power "
        f"{_growth(_named('sum/duchi', measurements)):.2f}, the privacy blanket's as "
        f"{_growth(_named('sum/privacy-blanket', measurements)):.2f} (1/6 is {1 / 6:.2f}), that of split and mix as "
        f"{_growth(_named('sum/split-and-mix', measurements)):.2f}.",
        f"With {bits:,} users and bits: randomized response {error('count/randomized-response')}, one shuffled "
        f"message {error('count/cheu')}, correlated noise {error('count/correlated-noise')}, central "
        f"{error('count/discrete-laplace')}.",
        f"The row that is empty in the notes, almost central: error {rmse(almost.errors)[0]:.2f} with "
        f"{float(almost.messages.mean()):.1f} messages of {almost.bits_per_message:g} bits per user at "
        f"{almost.users:,} users, but {sent('sum/almost-central', 0):.0f} messages at {first:,} users. Numbers are "
        f"rounded to as many levels as the root of the users, at most {almost.entry.options(almost.users)['levels']:,} "
        "here. Split and mix has "
        f"{sent('sum/split-and-mix', -1):.0f} messages at {numbers:,} users and {sent('sum/split-and-mix', 0):.0f} "
        f"at {first:,}: the number decreases as users increase.",
        f"Correlated noise sends {sent('count/correlated-noise', 0):.3f} messages per user at {first:,} users and "
        f"{sent('count/correlated-noise', -1):.6f} at {bits:,}. The notes count only the messages beyond the first.",
        f"One message compared with several, at {_SWEEP_USERS:,} users: from delta {max(one_message):g} to "
        f"{min(one_message):g} the error of one message grows from {one_message[max(one_message)]:.2f} to "
        f"{one_message[min(one_message)]:.2f}; that of correlated noise stays between {min(correlated):.2f} and "
        f"{max(correlated):.2f}.",
        f"Hoeffding's bound on randomized response, corrected, was exceeded in {last['exceeded']:.1%} of "
        f"{last['rounds']:,} rounds of {last['users']:,} users (at most {RISK:.0%} are allowed). The bound as the "
        f"notes state it, for the sum, was exceeded in {last['notes_exceeded_by_sum']:.1%}. Read as a bound on the "
        "mean it still lacks the factor 1/(2 gamma), and is exceeded with probability "
        f"{last['notes_exact_probability_of_mean']:.2f} instead of {RISK:g} (computed exactly; "
        f"{last['notes_exceeded_by_mean']:.1%} of the rounds).",
    ]


# --- figures ---------------------------------------------------------------------------------------------------------


def _curve(measurements: Sequence[Measured]) -> Curve:
    errors = [rmse(measurement.errors) for measurement in measurements]
    entry = measurements[0].entry
    return Curve(
        entry.name,
        [(measurement.users, error[0]) for measurement, error in zip(measurements, errors, strict=True)],
        spread=[(low, high) for _, low, high in errors],
        group=entry.group,
    )


def _error_figure(measurements: Sequence[Measured]) -> Figure:
    drawn = [entry for entry in ENTRIES if entry.drawn]
    numbers, bits = (
        [_curve(_of(entry, measurements)) for entry in drawn if entry.data is data] for data in (NUMBERS, BITS)
    )
    blanket = next(curve for curve in numbers if curve.name == "privacy blanket")
    (end, height) = blanket.points[-1]
    sixth = [(x, height * (x / end) ** (1 / 6)) for x, _ in blanket.points]
    numbers.insert(1, _rate("rate sqrt(n) / epsilon", numbers[0], lambda users: math.sqrt(users) / EPSILON))
    numbers.insert(3, Curve("rate n^(1/6), fitted", sixth, "formula", group=blanket.name))
    bits.insert(1, _rate("rate sqrt(n) / epsilon", bits[0], lambda users: math.sqrt(users) / EPSILON))
    bits.insert(3, _rate("rate sqrt(ln(1 / delta))", bits[2], lambda _: math.sqrt(math.log(1 / DELTA))))
    return curve_figure(
        "Error of a private sum against the number of users; it grows with the number of users to the power "
        + ", ".join(f"{_growth(_of(entry, measurements)):.2f} ({entry.name}, {entry.data.name})" for entry in drawn)
        + ".",
        panels_shown=[Panel(NUMBERS.name, numbers), Panel(BITS.name, bits)],
        title="Error of a private sum, by model",
        x_title="users",
        y_title="root mean squared error of the sum",
        caption=[
            f"epsilon = {EPSILON:g}, delta = {DELTA:g}. Dots: measured, with 95 % intervals. Dashed: rates, with "
            "constant 1 unless stated.",
        ],
    )


def _rate(name: str, beside: Curve, rate: Any) -> Curve:
    return Curve(name, [(x, rate(x)) for x, _ in beside.points], "formula", group=beside.group)


def _message_figure(measurements: Sequence[Measured]) -> Figure:
    shown = {
        "sum/cheu": "cheu, many bits",
        "sum/almost-central": "almost central",
        "sum/split-and-mix": "split and mix",
        "count/correlated-noise": "correlated noise (bits)",
        "sum/privacy-blanket": "central, local, privacy blanket",
    }
    max_users = _named("sum/cheu", measurements)[-1].users
    lines = [
        Curve(
            label,
            [
                (measurement.users, float(measurement.messages.mean()))
                for measurement in _named(name, measurements)
                if measurement.users <= max_users
            ],
        )
        for name, label in shown.items()
    ]
    return curve_figure(
        "Messages per user, from the fewest to the most users: "
        + ", ".join(f"{line.name} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}" for line in lines)
        + ".",
        panels_shown=[Panel("", lines)],
        title="Messages per user",
        x_title="users",
        y_title="messages per user",
        caption=[
            f"epsilon = {EPSILON:g}, delta = {DELTA:g}; counted in reports, or in whole rounds where it is random."
        ],
        name="messages",
        size=(560, 340),
    )


def _delta_figure(sweep: Sequence[Measured]) -> Figure:
    lines = []
    for entry in ENTRIES:
        chosen = _of(entry, sweep)
        if chosen:
            errors = [rmse(measurement.errors) for measurement in chosen]
            points = [(measurement.delta, error[0]) for measurement, error in zip(chosen, errors, strict=True)]
            spread = [(low, high) for _, low, high in errors]
            lines.append(Curve(entry.name, points[::-1], spread=spread[::-1], group=entry.group))
    lines.insert(1, _rate("rate sqrt(ln(1 / delta))", lines[0], lambda delta: math.sqrt(math.log(1 / delta))))
    return curve_figure(
        "Error of a binary sum, from the largest to the smallest delta: "
        + ", ".join(
            f"{line.name} from {line.points[-1][1]:.2f} to {line.points[0][1]:.2f}" for line in lines if line.spread
        )
        + ".",
        panels_shown=[Panel("", lines)],
        title="Bits: with one message the error grows as delta decreases",
        x_title="delta",
        y_title="root mean squared error of the sum",
        caption=[f"{_SWEEP_USERS:,} users, epsilon = {EPSILON:g}. Dashed: rate of the lower bound for one message."],
        name="delta",
        size=(560, 340),
    )


STUDY = Study(
    name="survey",
    title="The survey's table of private sums, corrected and measured",
    source="Survey notes on private mean estimation, with the papers that they list",
    claimed=[
        "The notes summarize results on private sums of n numbers, or bits: the error, and how many messages a user "
        "sends. Central: error O(1/epsilon). Local: one message, and an error that grows with the square root of n. "
        "Shuffled: several messages have central error, one message has not.",
        "Corrections. The notes' local error O(1/sqrt(n)) is that of a mean, and lacks 1/epsilon: of the sum it is "
        "O(sqrt(n)/epsilon). The row called Privacy Blanket has the numbers of split and mix, a protocol of several "
        "messages by the same authors (Balle, Bell, Gascon and Nissim 2020); the privacy blanket (2019) is one "
        "message with error Theta(n^(1/6)). Binary sums with vanishing overhead (Ghazi, Kumar, Manurangsi and Pagh "
        "2020) send 1 + O(log(1/delta)/(epsilon n)) messages: the notes leave out the first. The row Almost Central "
        "(Ghazi, Kumar, Manurangsi, Pagh and Sinha 2021) is empty there.",
        "For randomized response with truth probability 1/2 + gamma, the notes bound the error of the sum by "
        "sqrt(log(1/beta)/(2 n)), which is Hoeffding's bound for an average of n bits. The estimate is a sum, "
        "divided by 2 gamma: its error stays below sqrt(n ln(2/beta)/2)/(2 gamma), except with probability beta.",
    ],
    reading=[
        "Both axes are logarithmic: a power of n is a straight line, and its slope is the power. 1/2 is the local "
        "model, 1/6 one shuffled message of numbers, 0 the central model and several shuffled messages. A mean has "
        "the same error divided by n.",
        "Rates are dashed. The theorems do not state their constants: they are drawn with 1, or fitted where "
        "stated, and not checked. What is checked: that the measured errors are as predicted for these "
        "data, that 95 of 100 stay below the predicted largest error, that central-like errors stay below their "
        "explicit bound, and the noise's delta.",
        "The table below has one line per row of the notes and protocol; the further tables hold all points.",
    ],
    measure=_measure,
)
