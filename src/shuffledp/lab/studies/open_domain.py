"""The study of open domains: how often a string is found, by the number of users who hold it, in all models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shuffledp.domain import Strings
from shuffledp.estimate import StringsEstimate
from shuffledp.figures.curves import Curve, Panel
from shuffledp.lab.studies.checks import FALSE_ALARM, Check, agrees, at_least, at_most, frequency
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure
from shuffledp.privacy.sample_and_threshold import SampleAndThreshold
from shuffledp.protocols.registry import find
from shuffledp.protocols.strings.protocol import StringsProtocol
from shuffledp.protocols.strings.search_plan import SearchSettings
from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic, RandomSource, integers

_EPSILON, _DELTA = 1.0, 1e-6
_COUNTS = (30, 60, 80, 100, 150, 250)
_LARGE_COUNTS = (1_000, 3_000, 10_000, 20_000, 30_000, 50_000, 100_000)
"""Numbers of users at which the local model is evaluated, too."""
_MODEL_USERS = 1_000_000
_RARE_COUNT = 10
"""Users of every other string: far too few to be found."""
_SIBLINGS = 3e-4
"""Expected number of wrong words found per planted string, with a prefix of that string; about 1e-4 were measured."""
_ALWAYS_FOUND = 0.999
"""Predicted recall from which on the counts of found strings have no selection bias."""

_SAMPLING = 0.25
"""Of sample-and-threshold: good for strings of about a hundred users."""
_SEALED_SAMPLING, _SEALED_THRESHOLD, _SEALED_DUMMIES = 0.2, 14, 19.8
"""Parameters of a sealed threshold at epsilon 1 and delta 1e-6; the dummies of a round are counted per group size."""
_PEM_GROUPS, _PEM_FIRST_BITS, _PEM_STEP_BITS, _PEM_KEPT_BITS = 7, 16, 8, 10
_PEM_FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class _Setting:
    """A round: users, the lengths of planted strings, and how many have each length and count."""

    users: int
    lengths: tuple[int, ...]
    strings: int

    @property
    def domain(self) -> Strings:
        return Strings("a-z", max(self.lengths))


_QUICK = _Setting(60_000, (4, 8), 30)
_FULL = _Setting(1_000_000, (4, 8, 12, 16), 60)


def _measure(settings: Settings) -> Outcome:
    setting = settings.pick(_QUICK, _FULL)
    planted, data = _population(setting, settings.source)
    rounds = [_run(name, setting, planted, data, settings.source) for name in settings.steps(_NAMES, (1.0, 1.0, 8.0))]
    rows = [row for measured in rounds for row in measured.rows]
    tree = rounds[-1]
    checks = [check for measured in rounds for check in measured.recall_checks(len(rows))]
    checks += [*tree.count_checks(), *_readings(rounds), *_sealed_checks()]
    return Outcome(
        measured=_paragraphs(setting, rounds),
        tables={"": ResultTable.of(rows), "models": ResultTable.of(_models())},
        figures=[_figure(setting, rounds), _models_figure()],
        checks=checks,
    )


_NAMES = ("stability", "sample-and-threshold", "tree-blanket")


@dataclass(frozen=True)
class _Planted:
    """A string of the population, and how many users hold it."""

    text: str
    count: int


def _population(setting: _Setting, source: RandomSource) -> tuple[list[_Planted], NDArray[Any]]:
    """The strings to find, and the (index, count) rows of all users: everybody else holds a rare string."""
    domain = setting.domain
    planted: dict[int, _Planted] = {}
    for length in setting.lengths:
        for count in _COUNTS:
            for text in _texts(setting.strings, length, source):
                planted.setdefault(domain.encode(text), _Planted(text, count))
    left = setting.users - sum(string.count for string in planted.values())
    rare = dict.fromkeys(map(domain.encode, _texts(left // _RARE_COUNT, max(setting.lengths), source)), _RARE_COUNT)
    counts = {index: string.count for index, string in planted.items()}
    counts |= {index: count for index, count in rare.items() if index not in planted}
    counts[0] = setting.users - sum(counts.values())  # the empty string is held by the remaining users
    data = np.empty((len(counts), 2), dtype=domain.index_type)
    data[:, 0], data[:, 1] = list(counts), list(counts.values())
    return list(planted.values()), data


def _texts(number: int, length: int, source: RandomSource) -> list[str]:
    """Random strings of lowercase letters."""
    letters = (integers(26, number * length, source) + ord("a")).astype(np.uint8).tobytes().decode()
    return [letters[start : start + length] for start in range(0, number * length, length)]


@dataclass(frozen=True, eq=False)
class _Round:
    """What a protocol found of the planted strings."""

    protocol: StringsProtocol
    setting: _Setting
    estimate: StringsEstimate
    found: Mapping[str, float]
    """The estimated counts of the strings that were found."""
    planted: Sequence[_Planted]
    held: int
    """Number of strings that were found and that somebody holds."""

    def chosen(self, length: int, count: int) -> list[_Planted]:
        return [string for string in self.planted if (len(string.text), string.count) == (length, count)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Recall by length and count."""
        rows = []
        for length in self.setting.lengths:
            for count in _COUNTS:
                chosen = self.chosen(length, count)
                hits = sum(string.text in self.found for string in chosen)
                rows.append(
                    {
                        "protocol": self.protocol.name,
                        "trust": "counting shuffler" if self.protocol.trusts_shuffler else self.protocol.trust,
                        "users": self.setting.users,
                        "length": length,
                        "count": count,
                        "strings": len(chosen),
                        "found": hits,
                        "recall": hits / len(chosen),
                        "predicted": self.estimate.recall(length, count),
                    }
                )
        return rows

    def recall_checks(self, rows: int) -> list[Check]:
        return [
            frequency(
                "strings are found as often as predicted",
                f"{row['protocol']}, {row['length']} letters, {row['count']} users",
                hits=row["found"],
                trials=row["strings"],
                probability=row["predicted"],
                rows=rows,
                of="strings",
            )
            for row in self.rows
        ]

    def count_checks(self) -> list[Check]:
        """Errors of counts that are always found, and strings that nobody holds."""
        always = [
            string
            for string in self.planted
            if string.text in self.found and self.estimate.recall(len(string.text), string.count) >= _ALWAYS_FOUND
        ]
        errors = [self.found[string.text] - string.count for string in always]
        predicted = dict(zip(self.estimate.strings, self.estimate.standard_errors.tolist(), strict=True))
        scales = [predicted[string.text] for string in always]
        expected = SearchSettings().false_strings * (max(self.setting.lengths) + 1)
        allowed = _most_false(expected + _SIBLINGS * len(self.planted))
        where = f"{self.protocol.name}, {self.setting.users:,} users"
        false = len(self.estimate) - self.held
        evidence = (
            f"expected number by the plan of the search, and {_SIBLINGS:g} siblings of each planted string; "
            f"false alarm {FALSE_ALARM:g}"
        )
        return [
            at_least("strings that are always found", where, len(always), 2, evidence="counted"),
            *(
                [agrees("errors of counts are as stated", where, errors, scales, kurtosis=3.5)]
                if len(always) > 1
                else []
            ),
            at_most("strings in the list that nobody holds", where, false, allowed, evidence=evidence),
        ]

    def found_from(self, length: int) -> float:
        least = self.estimate.found_from[length]
        return math.inf if least is None else least


def _most_false(expected: float) -> int:
    """The largest number of false strings that may occur by chance."""
    from scipy import stats

    return int(stats.poisson.isf(FALSE_ALARM, expected))


def _run(name: str, setting: _Setting, planted: Sequence[_Planted], data: NDArray[Any], source: RandomSource) -> _Round:
    kind = find("strings", name)
    options: dict[str, Any] = {"sampling": _SAMPLING} if name == "sample-and-threshold" else {}
    if kind is TreeBlanketStrings:
        options["seed"] = int(integers(1 << 62, 1, source)[0])
    target = Target(setting.users, _EPSILON, _DELTA)
    protocol = kind.calibrate(target=target, domain=setting.domain, **options)
    assert isinstance(protocol, StringsProtocol)  # noqa: S101 - the question is strings
    estimate = protocol.estimate(protocol.sample_tally(data, source=source))
    found = dict(zip(estimate.strings, estimate.counts.tolist(), strict=True))
    indices = set(map(int, data[data[:, 1] > 0, 0]))
    held = sum(setting.domain.encode(text) in indices for text in found)
    return _Round(protocol, setting, estimate, found, planted, held)


def _readings(rounds: Sequence[_Round]) -> list[Check]:
    """Check what the page states about the models."""
    stability, _, tree = rounds
    length = 8
    ratio = tree.found_from(length) / stability.found_from(length)
    local = _least_count(_pem)
    where = f"{length} letters, {tree.setting.users:,} users"
    return [
        at_most("times as many users as the central model needs", where, ratio, 5.0),
        at_least("times fewer users than the local model needs", where, local / tree.found_from(length), 100.0),
    ]


def _pem(count: float) -> float:
    """The probability that the local prefix extending method finds a string, by the normal approximation.

    Wang and others (2021): the users are divided among groups, one per level, which report by optimized local hashing.
    The best prefixes of each level are extended; a string of the last level is accepted if noise alone exceeds its
    estimate with probability at most ``_PEM_FALSE_ALARM``.
    """
    from scipy import stats

    group = _MODEL_USERS / _PEM_GROUPS
    error = math.sqrt(group * 4 * math.exp(_EPSILON)) / math.expm1(_EPSILON)
    signal = count / _PEM_GROUPS / error
    first = stats.norm.isf(2.0 ** (_PEM_KEPT_BITS - _PEM_FIRST_BITS))
    later = stats.norm.isf(2.0**-_PEM_STEP_BITS)
    last = stats.norm.isf(_PEM_FALSE_ALARM)
    chances = [stats.norm.cdf(signal - first), *[stats.norm.cdf(signal - later)] * (_PEM_GROUPS - 2)]
    return float(np.prod(chances) * stats.norm.cdf(signal - last))


def _sealed(count: float) -> float:
    """The probability that a sealed threshold opens a string: enough of its holders are sampled."""
    from scipy import stats

    return float(stats.binom.sf(_SEALED_THRESHOLD - 1, round(count), _SEALED_SAMPLING))


def _least_count(probability: Any) -> float:
    """The least of the large counts that is found with probability 95 %."""
    return next((count for count in _LARGE_COUNTS if probability(count) >= 0.95), math.inf)


def _sealed_checks() -> list[Check]:
    """The privacy of the parameters: a threshold on sampled counts, and Poisson dummies for each smaller group size.

    Replacing a user is a removal and an addition; the latter costs ln(1/(1 - sampling)), the former the delta of the
    threshold and that of the sizes of hidden groups.
    """
    from scipy import stats

    threshold = SampleAndThreshold(Dyadic.at_least(_SEALED_SAMPLING), _SEALED_THRESHOLD)
    epsilon = _EPSILON - threshold.shrinkage
    sizes = np.arange(400)
    alone = stats.poisson.pmf(sizes, _SEALED_DUMMIES)
    shifted = np.concatenate(([0.0], alone[:-1]))
    without = np.outer(shifted, alone)  # one group more of size j
    moved = np.outer(alone, shifted)  # one group more of size j + 1
    mixed = (1 - _SEALED_SAMPLING) * without + _SEALED_SAMPLING * moved
    hidden = float(np.maximum(mixed - math.exp(epsilon) * without, 0.0).sum())
    total = threshold.delta_add_or_remove(epsilon) + hidden
    where = f"sampling {_SEALED_SAMPLING:g}, threshold {_SEALED_THRESHOLD}, {_SEALED_DUMMIES:g} dummies per size"
    return [at_most("delta of the sealed threshold at epsilon 1", where, total, _DELTA, evidence="summed in doubles")]


def _models() -> list[dict[str, Any]]:
    """The probabilities that are computed only."""
    return [
        {"count": count, "sealed_threshold": _sealed(count), "local_pem": _pem(count)}
        for count in (*_COUNTS, *_LARGE_COUNTS)
    ]


def _figure(setting: _Setting, rounds: Sequence[_Round]) -> Figure:
    curves = []
    grid = np.unique(np.geomspace(20, 300, 60).astype(np.int64)).tolist()
    middle = setting.lengths[len(setting.lengths) // 2]
    for measured in rounds:
        lengths = setting.lengths if isinstance(measured.protocol, TreeBlanketStrings) else (middle,)
        for length in lengths:
            name = measured.protocol.name + (f", {length} letters" if len(lengths) > 1 else "")
            points = [(row["count"], row["recall"]) for row in measured.rows if row["length"] == length]
            predicted = [(count, measured.estimate.recall(length, count)) for count in grid]
            curves.append(Curve(name, predicted, kind="computed", group=name))
            curves.append(Curve(name, points, kind="mark", group=name, labelled=False))
    sealed = [(count, _sealed(count)) for count in grid]
    curves.append(Curve("sealed threshold (computed)", sealed, kind="formula"))
    return curve_figure(
        "Probability that a string is found against the number of users who hold it, for three protocols, measured and "
        "predicted; the central one finds strings of about 30 users, tree-blanket those of 60 to 150.",
        panels_shown=[Panel("", curves)],
        title="From how many users on is a string found?",
        x_title="users who hold the string",
        y_title="share of such strings that are found",
        caption=[
            f"{setting.users:,} users, epsilon {_EPSILON:g}, delta {_DELTA:g}; diamonds are measured, lines predicted.",
        ],
        y_log=False,
        size=(620, 380),
    )


def _models_figure() -> Figure:
    counts = np.geomspace(20, 100_000, 120).tolist()
    lines = [
        Curve("sealed threshold", [(count, _sealed(count)) for count in counts], kind="computed"),
        Curve("local PEM", [(count, _pem(count)) for count in counts], kind="computed"),
    ]
    return curve_figure(
        "Computed probability that a string is found by a sealed threshold and by the local prefix extending method, "
        "against the number of users who hold it: about 100 and 33,000 for 95%.",
        panels_shown=[Panel("", lines)],
        title="Models that are only computed",
        x_title="users who hold the string, of 1,000,000",
        y_title="probability that it is found",
        caption=["The local model: normal approximation of optimized local hashing in 7 groups, strings of 64 bits."],
        name="models",
        y_log=False,
        size=(620, 320),
    )


def _paragraphs(setting: _Setting, rounds: Sequence[_Round]) -> list[str]:
    stability, sampled, tree = rounds
    per_length = ", ".join(f"{tree.found_from(length):.0f} for {length} letters" for length in setting.lengths)
    false = len(tree.estimate) - tree.held
    return [
        f"{setting.users:,} users; for every length and count, {setting.strings} random strings are held by that many "
        f"users each, and everybody else holds a string of {_RARE_COUNT} users. Tallies are drawn from their "
        "distribution, and no list is given to the analyzer.",
        f"`tree-blanket` found {len(tree.estimate):,} strings, {false} of them held by nobody. It finds a string with "
        f"probability 95 % from this number of users on: {per_length}. The central `stability` needs "
        f"{stability.found_from(0):.0f}, `sample-and-threshold`, whose shuffler sees every string, "
        f"{sampled.found_from(0):.0f}.",
        "A sealed threshold (a shuffler that opens what enough users sampled, with cryptography and a third party) is "
        "not a protocol of the library; its probabilities are exact, computed from its parameters, as is a bound on "
        f"its delta. The local model is a normal approximation: it finds strings of 20,000 users with probability "
        f"{_pem(20_000):.2f} and of 30,000 with {_pem(30_000):.2f}.",
    ]


STUDY = Study(
    name="open-domain",
    title="Open domains: strings that nobody listed",
    source="Luo, Wang and Yi (2022) for prefixes of one level per user; Bharadwaj and Cormode (2022); Bun and others "
    "(2016); Wang and others (2021) for the local model",
    claimed=[
        "In the shuffled model, strings that nobody listed are found in one round, if some dozens to hundreds of users "
        "hold them, whatever the number of users in all. The shuffler only shuffles.",
        "That is within a factor of five of a trusted party, which adds noise to the count of every string and "
        "withholds small ones, and hundreds of times fewer users than the local model needs.",
    ],
    reading=[
        "Each diamond is the share of planted strings that were found, by the number of users who hold each. Lines are "
        "predicted before: exactly for the thresholds, by the plan of the search for `tree-blanket`. Longer strings "
        "need more users, since more wrong ones have to be ruled out.",
        "A string that is missing is probably held by fewer users than the 95 % mark. It is not known to be rare.",
    ],
    measure=_measure,
)
