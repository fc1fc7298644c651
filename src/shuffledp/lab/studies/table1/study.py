"""The study of Table 1 of Balcer and Cheu (2020): the largest error of a histogram against the size of the domain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.lab.studies.checks import (
    Check,
    at_most,
    equals,
    exceeded_rarely,
    frequency,
    mean_square_agrees,
    quantile,
)
from shuffledp.lab.studies.integer_accountant import exponential_bounds
from shuffledp.lab.studies.largest_errors import EmptyErrors, held_quantile
from shuffledp.lab.studies.study import Outcome, ResultTable, Settings, Study, span
from shuffledp.lab.studies.table1.figures import large_figure, main_figure, message_figure, row_figure
from shuffledp.lab.studies.table1.messages import message_checks, message_row
from shuffledp.lab.studies.table1.rows import (
    BETA,
    DELTA,
    EPSILON,
    NUMBER_OF_LARGE,
    ROWS,
    Row,
    calibrated,
    drawn_round,
    empty_errors,
    estimator_of,
    held_counts,
    likelihood_ratio,
    with_new_hashes,
)
from shuffledp.lab.studies.token_checks import (
    audit_check,
    constant_check,
    largest_error_check,
    message_tally,
    noise_check,
    privacy_checks,
    zero_checks,
)
from shuffledp.messages import Tally
from shuffledp.privacy.binomial import Binomial
from shuffledp.protocols.histogram.balcer_cheu import BalcerCheuHistogram
from shuffledp.protocols.histogram.protocol import HistogramProtocol
from shuffledp.protocols.parts.postprocessing import SurplusAnalysis
from shuffledp.search import bisect

_LARGE_USERS = 1_000_000
_LARGEST_EXPONENT = 40
_MESSAGE_USERS, _MESSAGE_SIZE = 10_000, 20
"""The users and categories of the rounds in which every message is made."""
_CATEGORIES_CHECKED = 1000
"""The number of categories of a large domain whose noise is checked."""
_LARGE = {
    "cheu": ("cheu", "tight"),
    "discrete-laplace": ("discrete-laplace", "tight"),
    "balcer-cheu": ("balcer-cheu", "tight"),
    "balcer-cheu without threshold": ("balcer-cheu", "tight"),
    "stability": ("stability", "tight"),
}

Rows = list[dict[str, Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _measure(settings: Settings) -> Outcome:
    sizes = settings.pick((10, 300, 10_000), tuple(10**exponent for exponent in range(1, 7)))
    slow_paper = settings.pick(1000, 10_000)
    cases = [
        (row, users, size, calibration)
        for users in settings.pick((10_000, 100_000), (10_000, 1_000_000))
        for size in sizes
        for row in ROWS.values()
        for calibration in row.calibrations
        if not row.slow or size <= (slow_paper if calibration == "paper" else _largest_slow(users))
    ]
    rows: Rows = []
    checks: list[Check] = []
    weights = [_rounds(settings, *case) * _seconds(*case) for case in cases]
    for case in settings.part(0.0, 0.95).steps(cases, weights):
        row, case_checks = _case(settings, *case)
        rows += row
        checks += case_checks
    large, large_checks = _large(settings.part(0.95, 0.98))
    whole, whole_checks = _whole_rounds(settings.part(0.98, 1.0))
    checks += [
        *large_checks,
        *whole_checks,
        *_message_checks(rows),
        *_privacy_checks({row["users"] for row in rows}),
        audit_check("Theorem 12", BalcerCheuHistogram, settings),
        *zero_checks("Theorem 12", BalcerCheuHistogram, settings),
    ]
    return Outcome(
        measured=_paragraphs(rows, large, whole),
        tables={"": ResultTable.of(rows), "large": ResultTable.of(large), "messages": ResultTable.of(whole)},
        figures=[
            main_figure(rows, EPSILON, DELTA),
            row_figure(rows, max(row["users"] for row in rows)),
            large_figure(large, _LARGE_USERS),
            message_figure(rows),
        ],
        checks=checks,
    )


def _largest_slow(users: int) -> int:
    """The largest domain for protocols whose rounds take seconds there."""
    return 1_000_000 if users <= 100_000 else 100_000


def _seconds(row: Row, users: int, size: int, calibration: str) -> float:
    """The approximate duration of one round; not measured, so that the number of rounds is reproducible."""
    of_users = {"bassily-smith": 1.2e-7, "hadamard-blanket": 1e-7}
    of_categories = {"cheu": 3e-7, "unary": 4e-7, "bassily-smith": 2.5e-7, "count-min": 6e-6, "hadamard-blanket": 4e-6}
    base = {"hadamard-blanket": 0.02}
    more = 4 if calibration == "paper" and row.slow else 1
    return (
        base.get(row.protocol, 1e-3)
        + of_users.get(row.protocol, 0.0) * users
        + more * of_categories.get(row.protocol, 1e-7) * size
    )


def _rounds(settings: Settings, row: Row, users: int, size: int, calibration: str) -> int:
    budget, least, most = settings.pick((0.1, row.least_rounds // 3, 40), (2.0, row.least_rounds, 200))
    if row.slow:
        budget, most = budget / 2, most // 4
    return int(min(max(budget / _seconds(row, users, size, calibration), least), most))


def _case(settings: Settings, row: Row, users: int, size: int, calibration: str) -> tuple[Rows, list[Check]]:
    protocol = calibrated(row.protocol, users, size, calibration)
    if protocol is None:
        return [], []
    held = held_counts(users)
    counts = np.zeros(size, dtype=np.int64)
    counts[: len(held)] = held
    rounds = _rounds(settings, row, users, size, calibration)
    measured = [drawn_round(protocol, counts, settings.source) for _ in range(rounds)]
    errors = np.array([float(of_round.max()) for _, of_round in measured])
    formula = row.formula(protocol, users, size)
    estimator = "minimum" if (row.protocol, calibration) == ("count-min", "paper") else ""
    predicted = protocol.expected_error(confidence=1 - BETA, estimator=estimator).max_error
    where = f"{users:,} users, {size:,} categories, {calibration} noise"
    checks = [
        exceeded_rarely(f"{row.label}: error within the formula", where, errors, formula, at_most=BETA),
        exceeded_rarely(f"{row.label}: error within what is predicted", where, errors, predicted, at_most=BETA),
    ]
    if isinstance(protocol, BalcerCheuHistogram):
        checks += _theorem_12_checks(where, protocol, counts, measured)
    else:
        checks += _as_predicted(row, where, protocol, counts, np.stack([off for _, off in measured]))
    error, low, high = quantile(errors, 1 - BETA)
    return [
        {
            "model": row.model,
            "protocol": row.protocol,
            "source": row.source,
            "users": users,
            "domain_size": size,
            "calibration": calibration,
            "rounds": rounds,
            "error": error,
            "error_low": low,
            "error_high": high,
            "formula": formula,
            "predicted": predicted,
            "rate_constant_1": row.rate(users, size),
            "messages_per_user": protocol.cost.messages_per_user,
            "bits_per_message": protocol.cost.bits_per_message,
            **message_row(protocol, size),
        }
    ], checks + message_checks(protocol, users, size, settings.source)


def _theorem_12_checks(
    where: str, protocol: BalcerCheuHistogram, counts: Ints, measured: Sequence[tuple[Tally, Floats]]
) -> list[Check]:
    """Noise and errors have their exact distribution in every domain, and categories without users have no error."""
    held = held_counts(protocol.users)
    errors = np.array([float(of_round.max()) for _, of_round in measured])
    empty = max(float(of_round[len(held) :].max(initial=0.0)) for _, of_round in measured)
    exact = held_quantile(Binomial(protocol.users, protocol.absence), held, 1 - BETA)
    shortened = [Tally(tally.counts[:_CATEGORIES_CHECKED], tally.users) for tally, _ in measured]
    evidence = f"{len(measured)} rounds"
    checks = [
        exceeded_rarely("Theorem 12: the same error in every domain", where, errors, exact, at_most=BETA),
        largest_error_check("Theorem 12: largest error as computed", where, errors, protocol, held),
        noise_check("Theorem 12: noise", where, protocol, counts[:_CATEGORIES_CHECKED], shortened),
        at_most("Theorem 12: categories without users are exactly 0", where, empty, 0.0, evidence=evidence),
    ]
    if protocol.target.calibration == "paper":
        checks.append(constant_check("Theorem 12", where, protocol, EPSILON, DELTA))
    return checks


def _as_predicted(row: Row, where: str, protocol: HistogramProtocol, counts: Ints, errors: Floats) -> list[Check]:
    """Errors are as the protocol predicts for these data, two-sided.

    With a threshold, only counts that it never hides are compared; how often it hides each other count is a check of
    its own.
    """
    claim = f"{row.label}: error as predicted"
    estimator = estimator_of(protocol)
    if not protocol.exact_zeros:
        expected = protocol.expected_error(counts=counts, estimator=estimator).rmse
        return [mean_square_agrees(claim, where, errors, expected, allowance=row.allowance)]
    expected = protocol.expected_error(counts=counts[:NUMBER_OF_LARGE], estimator=estimator).rmse
    checks = [mean_square_agrees(claim, where, errors[:, :NUMBER_OF_LARGE], expected)]
    hidden = 1 - protocol.chance_shown(counts)
    for index in range(NUMBER_OF_LARGE, len(held_counts(protocol.users))):
        checks.append(
            frequency(
                f"{row.label}: a count of {counts[index]:,} is hidden",
                where,
                hits=int(np.count_nonzero(errors[:, index] == counts[index])),
                trials=len(errors),
                probability=float(hidden[index]),
            )
        )
    return checks


def _whole_rounds(settings: Settings) -> tuple[Rows, list[Check]]:
    """Rounds of the shuffled rows in which every message goes through randomizer, permutation and analyzer."""
    held = held_counts(_MESSAGE_USERS)
    counts = np.zeros(_MESSAGE_SIZE, dtype=np.int64)
    counts[: len(held)] = held
    values = np.repeat(np.arange(_MESSAGE_SIZE), counts)
    rows: Rows = []
    checks: list[Check] = []
    cases = [
        (row, calibration)
        for row in ROWS.values()
        for calibration in row.calibrations
        if row.model == "shuffled"
        and row.message_rounds[not settings.quick]
        and (calibration == "tight" or not row.slow)
    ]
    for row, calibration in settings.steps(cases):
        rounds = row.message_rounds[not settings.quick]
        protocol = calibrated(row.protocol, _MESSAGE_USERS, _MESSAGE_SIZE, calibration)
        if protocol is None:
            continue
        where = f"{_MESSAGE_USERS:,} users, {_MESSAGE_SIZE} categories, {calibration} noise, messages"
        tallies, errors = [], np.empty((rounds, _MESSAGE_SIZE))
        for number in range(rounds):
            hashed = with_new_hashes(protocol, settings.source)
            tallies.append(message_tally(hashed, values, settings.source))
            estimate = hashed.estimate(tallies[-1], estimator=estimator_of(protocol))
            errors[number] = np.abs(estimate.counts - counts)
        expected = protocol.expected_error(counts=counts, estimator=estimator_of(protocol)).rmse
        if isinstance(protocol, BalcerCheuHistogram):
            largest = errors.max(axis=1)
            singly = [message_tally(protocol, values[:: len(values) // 500], settings.source, singly=True)]
            few = protocol.summary(values[:: len(values) // 500])
            checks += [
                noise_check("Theorem 12, whole rounds: noise", where, protocol, counts, tallies),
                noise_check("Theorem 12, reports made one by one: noise", where, protocol, few, singly),
                largest_error_check("Theorem 12, whole rounds: error as computed", where, largest, protocol, held),
            ]
        else:
            claim = f"{row.label}, whole rounds: error as predicted"
            checks.append(mean_square_agrees(claim, where, errors, expected, allowance=row.allowance))
        rows.append(
            {
                "protocol": row.protocol,
                "calibration": calibration,
                "users": _MESSAGE_USERS,
                "domain_size": _MESSAGE_SIZE,
                "rounds": rounds,
                "rmse": float(np.sqrt(np.mean(errors**2))),
                "predicted_rmse": expected,
            }
        )
    return rows, checks


def _privacy_checks(users: Iterable[int]) -> list[Check]:
    """Privacy from the probabilities that are drawn, where it follows from few integers."""
    checks = []
    for number in sorted(users):
        for calibration in ROWS["balcer-cheu"].calibrations:
            protocol = calibrated("balcer-cheu", number, 10, calibration)
            assert isinstance(protocol, BalcerCheuHistogram)  # noqa: S101
            where = f"{number:,} users, {calibration} noise"
            checks += privacy_checks("Theorem 12", where, protocol, EPSILON, DELTA)
        for row in ROWS.values():
            ratio = likelihood_ratio(calibrated(row.protocol, number, 10, "tight"))
            if ratio is not None:
                bound = Fraction(exponential_bounds(EPSILON)[0], 1 << 128)
                claim = f"{row.label}: the largest likelihood ratio is at most e^epsilon"
                checks.append(
                    Check(
                        claim,
                        f"{number:,} users",
                        float(ratio),
                        "<=",
                        float(bound),
                        ratio <= bound,
                        "rational arithmetic on the probabilities drawn",
                    )
                )
    return checks


def _large(settings: Settings) -> tuple[Rows, list[Check]]:
    """Domains too large to enumerate: held categories are drawn one by one, of the others only the largest error."""
    rounds = settings.pick(100, 1000)
    exponents = settings.pick((1, 6, 20, 40), tuple(range(2, _LARGEST_EXPONENT + 1, 2)))
    held = np.array(held_counts(_LARGE_USERS), dtype=np.int64)
    rows: Rows = []
    checks: list[Check] = []
    for name, (protocol_name, calibration) in settings.steps(list(_LARGE.items())):
        protocol = calibrated(protocol_name, _LARGE_USERS, len(held), calibration)
        assert protocol is not None  # noqa: S101
        estimator = "unbiased" if name.endswith("without threshold") else protocol.estimators[0]
        pmf = empty_errors(protocol)
        if estimator == "unbiased" and isinstance(protocol, BalcerCheuHistogram):
            pmf = EmptyErrors.of_binomial(Binomial(_LARGE_USERS, protocol.absence))
        held_errors = np.array([_largest_held(protocol, held, estimator, settings) for _ in range(rounds)])
        for exponent in exponents:
            size = 10**exponent
            empty = pmf.largest(size - len(held), rounds, settings.source) if pmf else np.zeros(rounds)
            errors = np.maximum(held_errors, empty)
            error, low, high = quantile(errors, 1 - BETA)
            formula = ROWS[protocol_name].formula(protocol, _LARGE_USERS, size)
            row = {"protocol": name, "users": _LARGE_USERS, "domain_size": float(size), "rounds": rounds}
            row |= {"error": error, "error_low": low, "error_high": high}
            if not name.endswith("without threshold"):
                row["formula"] = formula
                where = f"{_LARGE_USERS:,} users, 10^{exponent} categories, {calibration} noise"
                claim = f"{ROWS[protocol_name].label}: error within the formula"
                checks.append(exceeded_rarely(claim, where, errors, formula, at_most=BETA))
            rows.append(row)
    return rows, checks


def _largest_held(protocol: HistogramProtocol, held: Any, estimator: str, settings: Settings) -> float:
    tally = protocol.sample_tally(held, source=settings.source)
    return float(np.abs(protocol.estimate(tally, estimator=estimator).counts - held).max())


def _message_checks(rows: Rows) -> list[Check]:
    """Checks of the column of messages, where the constant of the table's rate is known."""
    checks = []
    for row in rows:
        where = f"{row['users']:,} users, {row['domain_size']:,} categories, {row['calibration']} noise"
        sent = row["messages_per_user"]
        if row["protocol"] == "balcer-cheu":
            checks.append(at_most("Theorem 12: messages per user, at most 1 + d", where, sent, 1 + row["domain_size"]))
        if row["protocol"] == "cheu":
            checks.append(at_most("cheu [8]: messages per user, at most d", where, sent, row["domain_size"]))
        if row["protocol"] == "hadamard-blanket":
            same = [candidate for candidate in rows if _same_but_size(candidate, row)]
            checks.append(
                equals(
                    "hadamard-blanket [13]: as many messages in every domain", where, sent, same[0]["messages_per_user"]
                )
            )
        if row["model"] == "local":
            checks.append(equals("local: one message per user", where, sent, 1.0))
    return checks


def _same_but_size(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(first[key] == second[key] for key in ("protocol", "users", "calibration"))


def crossover(users: int = _LARGE_USERS) -> float:
    """The exponent of ten of the domain size from which on the threshold reduces the guaranteed error."""
    protocol = calibrated("balcer-cheu", users, 10, "tight")
    assert isinstance(protocol, BalcerCheuHistogram)  # noqa: S101
    noise = Binomial(users, protocol.absence)

    def reduces_error(exponent: float) -> bool:
        thresholded, unbiased = (
            SurplusAnalysis(noise, int(10**exponent), estimator, BETA).radius()
            for estimator in ("threshold", "unbiased")
        )
        return thresholded <= unbiased

    return bisect(reduces_error, math.log10(users), 100.0, absolute=0.02)


def _paragraphs(rows: Rows, large: Rows, whole: Rows) -> list[str]:
    few, many = sorted({row["users"] for row in rows})
    held = ", ".join(f"{count:,}" for count in held_counts(many))
    sizes, rounds = [row["domain_size"] for row in rows], [row["rounds"] for row in rows]
    run = [row["domain_size"] for row in rows if _is(row, "count-min", many, "paper")]
    where = f"up to {max(run):,} categories, with twice as many buckets" if run else "nowhere here"
    local, cheu = ([_errors(rows, name, users)[-1] for users in (few, many)] for name in ("unary", "cheu"))
    return [
        f"Rounds of {few:,} and {many:,} users, {min(rounds)} to {max(rounds)} of them (fewer where a round takes "
        f"seconds), at epsilon = {EPSILON:g}, delta = {DELTA:g}; with the noise of each paper (paper) and with the "
        "least noise that meets the same target by exact accounting (tight). Tallies are drawn from the distribution "
        f"that they have in a whole round. In {sum(row['rounds'] for row in whole):,} whole rounds of "
        f"{_MESSAGE_USERS:,} users and {_MESSAGE_SIZE} categories every message of the shuffled protocols is made, "
        "permuted with all others and counted; errors are as predicted there, too.",
        f"The same data for all: ten categories are held, of {many:,} users by {held}. The last four are hard for "
        "protocols with a threshold: each is the largest count that Theorem 12 or the central stability-based "
        "histogram, with its paper's or with tight noise, hides in one round of five. The domain around these ten "
        "grows.",
        f"From {min(sizes):,} to {max(sizes):,} categories and with {many:,} users, the error of Theorem 12 stays at "
        f"{span(_errors(rows, 'balcer-cheu', many))} users with tight noise and at "
        f"{span(_errors(rows, 'balcer-cheu', many, 'paper'))} with the theorem's. That of cheu grows from "
        f"{_growth(_errors(rows, 'cheu', many))}, of central discrete Laplace noise from "
        f"{_growth(_errors(rows, 'discrete-laplace', many))}, of the best local protocol from "
        f"{_growth(_errors(rows, 'unary', many))}.",
        f"With {many // few} times the users the local error is {local[1] / local[0]:.1f} times as large, that of cheu "
        f"{cheu[1] / cheu[0]:.2f} times: this is the advantage of the shuffled model.",
        "An error that does not grow is not the smallest error: in domains where it can be run, the protocol of "
        "Theorem 12 is not the most accurate one. Its error bound for any data is below that of the same noise without "
        f"the threshold only from 10^{crossover():.1f} categories on{_crossing(large)}, while every user sends a "
        "message for nearly each category.",
        "The constants of the sketch of [13] mostly require more noise than is possible; it was run with them "
        f"{where}. With tight noise it has at least 1,000 buckets, so that hashing does not matter. Where a round "
        "takes seconds, as with the protocols of [13] in large domains, there are only the sizes that the figures "
        "show.",
    ]


def _errors(rows: Rows, protocol: str, users: int, calibration: str = "tight") -> list[float]:
    """The errors of one protocol, by the size of the domain."""
    return [row["error"] for row in rows if _is(row, protocol, users, calibration)]


def _crossing(large: Rows) -> str:
    """From where on the measured errors cross, if they do."""
    shown, plain = (
        [row for row in large if row["protocol"] == name] for name in ("balcer-cheu", "balcer-cheu without threshold")
    )
    pairs = zip(shown, plain, strict=True)
    crossed = [math.log10(one["domain_size"]) for one, other in pairs if other["error"] > one["error"]]
    return f" (for the data here from 10^{min(crossed):.0f} on)" if crossed else ""


def _growth(errors: list[float]) -> str:
    return f"{errors[0]:,.0f} to {errors[-1]:,.0f}"


def _is(row: dict[str, Any], protocol: str, users: int, calibration: str) -> bool:
    return bool((row["protocol"], row["users"], row["calibration"]) == (protocol, users, calibration))


STUDY = Study(
    name="table1",
    title="Table 1: the largest error of a histogram, against the size of the domain",
    source="Balcer and Cheu (2020), Separating Local & Shuffled Differential Privacy via Histograms, Table 1",
    claimed=[
        "Many users hold one category each; how far off is the worst of all d estimated counts? In the local model "
        "about sqrt(n log d) / epsilon users. With a shuffler the error no longer grows with the users: it is about "
        "sqrt(log d log(1/delta)) / epsilon for Cheu et al. [8], and a factor of log d more, or log d more, for the "
        "two protocols of Ghazi et al. [13], which send far fewer messages.",
        "Theorem 12 has log(1/delta) / epsilon², in which the domain does not occur at all. So far only a trusted "
        "party could do that; it reaches the smaller of log d and log(1/delta), over epsilon. (The paper counts in "
        "shares of the users. Here everything is in users, n times as much.)",
    ],
    reading=[
        "First figure: the 95 % quantile of the error, with tight noise. Flat lines do not depend on the domain.",
        "Second figure, a panel for each row of the table: solid what is measured, dashed the formula of the row "
        "with its constants, at the noise that was used. These are proven for a risk of 5 %: measured errors must "
        "lie below. The bare rate of the table, with 1 as its constant, is the column `rate_constant_1`; it is "
        "not a bound.",
        "Third figure: domains too large to enumerate. Of the categories that nobody holds the largest error is drawn, "
        "which has a known distribution. There the growing lines cross the flat ones.",
        "Fourth figure: messages per user. cheu is shown in two forms: with all bits, as in the table, "
        "and with the ones alone.",
    ],
    measure=_measure,
)
