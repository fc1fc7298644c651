"""The study of section 4 of Balcer and Cheu (2020): Theorem 17 and Claims 18 to 20, exactly on finite channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from shuffledp.figures import Curve, Panel
from shuffledp.lab.structure import (
    Channel,
    LocalProtocol,
    RandomizerCurve,
    ShuffledCurve,
    ShuffledProtocol,
    compare_theorem_6_2,
    r_gap,
    r_infinity,
    to_local,
)
from shuffledp.lab.structure.channels import Output, Value
from shuffledp.lab.structure.exact_ratios import Ratio, epsilon_above
from shuffledp.lab.structure.message_overlap import (
    channel_overlap_lower,
    least_overlap,
    overlap_lower,
    report_overlap,
    tilted_ratio,
)
from shuffledp.lab.structure.sampled_response import (
    filled_sample_pmf,
    pure_ratio,
    response_pmf,
    sample_with_coins_pmf,
    thresholded_sample_pmf,
)
from shuffledp.lab.studies.checks import Check, at_least, at_most, equals
from shuffledp.lab.studies.study import Figure, Outcome, ResultTable, Settings, Study, curve_figure
from shuffledp.randomness.samplers import uniform_below
from shuffledp.search import bisect

_EXACT = "exact fractions"
_MAX_WEIGHT = 9
_GAP_RATIOS: dict[int, Ratio] = {1: math.inf, 2: Fraction(5, 2), 3: Fraction(125, 64)}
"""The e^epsilon of shuffling the randomizer of Claim 20, by the number of users; 8/5 from four users on."""
_RATIO = Fraction(19, 7)
"""The e^epsilon at which least overlaps are searched for; close to e."""
_SHOWN_DELTA = Fraction(1, 100)

Row = dict[str, Any]


def _measure(settings: Settings) -> Outcome:
    channels = [Channel.randomized_response(2, 3), *(_random_channel(settings) for _ in range(settings.pick(4, 20)))]
    parts = settings.steps(("theorem 17", "claim 18", "claims 19 and 20", "overlap", "sampling"), [2, 4, 1, 5, 1])
    rows: list[Row] = []
    checks: list[Check] = []
    overlaps: list[Row] = []
    for part in parts:
        if part == "theorem 17":
            checks += _theorem_17(channels[: settings.pick(3, 8)])
        elif part == "claim 18":
            more, part_checks = _claim_18(channels, settings.pick((1, 2, 3), (1, 2, 3, 4, 5)))
            rows += more
            checks += part_checks
        elif part == "claims 19 and 20":
            more, part_checks = _claims_19_and_20(settings.pick(6, 24))
            rows += more
            checks += part_checks
        elif part == "overlap":
            overlaps, part_checks = _overlaps(settings)
            checks += part_checks
        else:
            checks += _sampling(settings.pick(4, 6))
    return Outcome(
        _paragraphs(rows, overlaps, checks),
        {"": ResultTable.of(rows), "overlap": ResultTable.of(overlaps)},
        [_epsilon_figure(settings), _overlap_figure(overlaps)],
        checks,
    )


def _random_channel(settings: Settings, values: int = 2) -> Channel:
    """A single-message channel of two or three messages with random rational probabilities, none of them 0."""
    messages = 2 + uniform_below(2, settings.source)
    weights = [[1 + uniform_below(_MAX_WEIGHT, settings.source) for _ in range(messages)] for _ in range(values)]
    return Channel.from_matrix([[Fraction(weight, sum(row)) for weight in row] for row in weights])


def _first_and_last(messages: tuple[Any, ...]) -> tuple[Any, Any]:
    """An analyzer that depends on the order of the messages."""
    return messages[0], messages[-1]


def _theorem_17(channels: Sequence[Channel]) -> list[Check]:
    """The local protocol has the output distribution of the shuffled one on every data set, and its pure epsilon."""
    different, order_dependent, ratios = 0, 0, 0
    sizes = (1, 2, 3)
    for channel in channels:
        shuffled = ShuffledProtocol(channel, _first_and_last)
        local, unpermuted = to_local(shuffled), LocalProtocol(channel, _first_and_last)
        for users in sizes:
            ratios += shuffled.privacy(users).ratio != local.privacy.ratio
            for data in product(channel.values, repeat=users):
                distribution = shuffled.output_pmf(data)
                different += distribution != local.output_pmf(data)
                order_dependent += distribution != unpermuted.output_pmf(data)
    where = f"{len(channels)} channels, all data of {sizes[0]} to {sizes[-1]} users"
    return [
        equals("Theorem 17: data sets with another output distribution", where, different, 0, evidence=_EXACT),
        equals("Theorem 17: channels with another pure epsilon", where, ratios, 0, evidence=_EXACT),
        at_least(
            "Theorem 17: without the random order the distribution does change",
            where,
            order_dependent,
            1,
            evidence=_EXACT,
        ),
    ]


def _claim_18(channels: Sequence[Channel], users: Sequence[int]) -> tuple[list[Row], list[Check]]:
    """Shuffling one message changes no pure epsilon; with a delta it can reduce epsilon, by at most ln(users)."""
    rows: list[Row] = []
    unequal, violated, amplified = 0, 0, 0
    for number, channel in enumerate(channels):
        local = RandomizerCurve(channel).ratio
        for count in users:
            shuffled = ShuffledCurve(channel, count).ratio
            unequal += shuffled != local
            rows.append(_row(f"single message {number}", count, local, shuffled))
            for ratio in (Fraction(1), Fraction(5, 4), Fraction(2)):
                both = compare_theorem_6_2(channel, count, ratio)
                violated += not both.holds
                amplified += count > 1 and both.shuffled_delta < RandomizerCurve(channel).delta_at_ratio(ratio)
    where = f"{len(channels)} channels, {users[0]} to {users[-1]} users"
    return rows, [
        equals("Claim 18: pure epsilons that shuffling changed", where, unequal, 0, evidence=_EXACT),
        equals("Theorem 6.2 of [8]: (epsilon + ln n, delta) violated", where, violated, 0, evidence=_EXACT),
        at_least("With a delta shuffling does help", where, amplified, 1, evidence=_EXACT),
    ]


def _claims_19_and_20(max_users: int) -> tuple[list[Row], list[Check]]:
    rows: list[Row] = []
    checks: list[Check] = []
    infinity, gap = r_infinity(), r_gap()
    for users in (1, 2, 5):
        shuffled = ShuffledCurve(infinity, users).ratio
        rows.append(_row("Claim 19", users, RandomizerCurve(infinity).ratio, shuffled))
        checks.append(equals("Claim 19: shuffled e^epsilon", f"{users} users", float(shuffled), 1, evidence=_EXACT))
    checks += [
        _infinite("Claim 19: randomizer", RandomizerCurve(infinity).ratio),
        equals("Claim 19: pre-shuffled e^epsilon", "1 user", float(RandomizerCurve(infinity.preshuffled).ratio), 1),
        _infinite("Claim 20: pre-shuffled randomizer", RandomizerCurve(gap.preshuffled).ratio),
    ]
    for users in range(1, max_users + 1):
        shuffled = ShuffledCurve(gap, users).ratio
        expected: Ratio = _GAP_RATIOS.get(users, Fraction(8, 5))
        rows.append(_row("Claim 20", users, math.inf, shuffled))
        where = f"{users} users"
        if expected == math.inf:
            checks.append(_infinite("Claim 20: shuffled", shuffled, where))
        else:
            checks.append(
                equals("Claim 20: shuffled e^epsilon", where, float(shuffled), float(expected), evidence=_EXACT)
            )
    return rows, checks


def _infinite(claim: str, ratio: Ratio, where: str = "1 user") -> Check:
    return equals(f"{claim}: e^epsilon is infinite", where, float(ratio == math.inf), 1, evidence=_EXACT)


def _row(protocol: str, users: int, local: Ratio, shuffled: Ratio) -> Row:
    return {
        "protocol": protocol,
        "users": users,
        "randomizer_ratio": str(local),
        "shuffled_ratio": str(shuffled),
        "randomizer_epsilon": epsilon_above(local),
        "shuffled_epsilon": epsilon_above(shuffled),
    }


def _overlaps(settings: Settings) -> tuple[list[Row], list[Check]]:
    """Overlaps by the lemma of Ghazi and others (2020b), least overlaps by linear programs, and those of channels."""
    rows: list[Row] = []
    checks: list[Check] = []
    for messages in range(1, settings.pick(4, 6) + 1):
        least, proven = least_overlap(messages, float(_RATIO)).overlap, overlap_lower(_RATIO, messages, 2)
        rows.append({"messages": messages, "least_overlap": least, "proven_overlap": float(proven)})
        where = f"{messages} one-bit messages, e^epsilon {_RATIO}"
        checks.append(at_least("Lemma of [12]: overlap of two values' messages", where, least, float(proven)))
    gap = r_gap()
    private = [("Claim 20", gap, 4)]
    private += [(f"random channel {number}", _random_bits(settings), 2) for number in range(settings.pick(5, 40))]
    for name, channel, users in private:
        ratio = ShuffledCurve(channel, users).ratio
        if isinstance(ratio, float):
            continue
        tilts = max(
            tilted_ratio(channel, *pair, {0: 1, 1: Fraction(weight, 8)})
            for pair in ((0, 1), (1, 0))
            for weight in (1, 4, 8, 16, 64)
        )
        where = f"{name}, {users} users"
        overlap = report_overlap(channel, 0, 1)
        checks += [
            at_most("Generating functions are within e^epsilon", where, float(tilts / ratio), 1.0, evidence=_EXACT),
            at_least(
                "Lemma of [12]: overlap of two values' messages, over its bound",
                where,
                float(overlap / channel_overlap_lower(channel, ratio)),
                1.0,
                evidence=_EXACT,
            ),
        ]
    return rows, checks


def _random_bits(settings: Settings) -> Channel:
    """Two or three one-bit messages whose number of ones has random distributions; some counts may be impossible."""
    messages = 2 + uniform_below(2, settings.source)
    pmfs: dict[Value, dict[Output, Fraction]] = {}
    for value in (0, 1):
        weights = [uniform_below(_MAX_WEIGHT, settings.source) for _ in range(messages + 1)]
        weights[0], weights[-1] = weights[0] + 1, weights[-1] + 1
        pmfs[value] = {
            (0,) * (messages - ones) + (1,) * ones: Fraction(weight, sum(weights))
            for ones, weight in enumerate(weights)
        }
    return Channel.of(pmfs)


def _sampling(users: int) -> list[Check]:
    """Randomized response is a sample filled with coins, and is not equivalent to sample-and-threshold."""
    shares = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
    different = sum(
        response_pmf(users, ones, share) != filled_sample_pmf(users, ones, share)
        for share in shares
        for ones in range(users + 1)
    )
    coined = sum(
        response_pmf(users, ones, share) != sample_with_coins_pmf(users, ones, (1 - share) / (1 - share / 2), share)
        for share in shares
        for ones in range(users + 1)
    )
    where = f"{users} users, all counts, shares {', '.join(map(str, shares))}"
    checks = [
        equals("Randomized response is a sample filled with fair coins", where, different, 0, evidence=_EXACT),
        equals("Without a threshold it is computed from a larger sample", where, coined, 0, evidence=_EXACT),
    ]
    for share in shares:
        setting = f"{users} users, share {share}"
        responses = [response_pmf(users, ones, share) for ones in range(users + 1)]
        samples = [thresholded_sample_pmf(users, ones, 1 - share, 2) for ones in range(users + 1)]
        checks += [
            equals(
                "Randomized response: e^epsilon is (2 - share)/share",
                setting,
                float(pure_ratio(responses)),
                float((2 - share) / share),
                evidence=_EXACT,
            ),
            _infinite("Sample and threshold", pure_ratio(samples), setting),
            equals("Threshold 2 hides one holder", setting, float(samples[0] == samples[1]), 1, evidence=_EXACT),
            equals("Randomized response does not", setting, float(responses[0] == responses[1]), 0, evidence=_EXACT),
        ]
    return checks


def _paragraphs(rows: list[Row], overlaps: list[Row], checks: list[Check]) -> list[str]:
    single = {row["protocol"] for row in rows if row["protocol"].startswith("single")}
    gap = [row for row in rows if row["protocol"] == "Claim 20"]
    last = overlaps[-1]
    return [
        f"Everything is decided in exact fractions: {len(single)} single-message channels, of which all but the first "
        "were drawn at random, and the two counterexamples. Pure epsilons that shuffling changed: "
        f"{_count(checks, 'Claim 18')}; data sets whose output distribution the local protocol changed: "
        f"{_count(checks, 'Theorem 17')}.",
        f"e^epsilon of the randomizer with a gap is {gap[0]['shuffled_ratio']} for one user. Shuffled, it is "
        f"{gap[1]['shuffled_ratio']} for two users, {gap[2]['shuffled_ratio']} for three, "
        f"{gap[3]['shuffled_ratio']} for four and {gap[-1]['shuffled_ratio']} for {gap[-1]['users']}.",
        f"With {last['messages']} one-bit messages two values' reports have at least {last['least_overlap']:.2g} in "
        f"common at e^epsilon = {_RATIO} by linear programs, and {last['proven_overlap']:.2g} by the proof. The "
        "constant of the proof is not tight; the programs also show an exponent quadratic in the number of messages.",
        "Randomized response with parameter lambda has, for every count tried, exactly the distribution of a sample at "
        "rate 1 - lambda/n whose gaps are filled with fair coins. Sample-and-threshold starts with the same sample, "
        "but is not purely private, so it is not a post-processing of randomized response. From a threshold of 2 on it "
        "does not tell one holder from none, so randomized response is not a post-processing of it either.",
    ]


def _count(checks: list[Check], claim: str) -> int:
    """The number that the first check of a claim counted."""
    return int(next(check.measured for check in checks if check.claim.startswith(claim)))


def _epsilon_figure(settings: Settings) -> Figure:
    users = settings.pick((2, 3, 4, 6), (2, 3, 4, 6, 8, 12, 16, 24))
    warner, gap = Channel.randomized_response(2, 3), r_gap()

    def with_delta(count: int) -> float:
        """The least epsilon at the shown delta, by bisection on the exact curve."""
        curve = ShuffledCurve(warner, count)
        return bisect(lambda epsilon: curve.delta_at(epsilon) <= _SHOWN_DELTA, 0.0, math.log(3), absolute=1e-3)

    curves = [
        Curve(
            "one message, delta = 0",
            [(count, ShuffledCurve(warner, count).epsilon) for count in users],
            "computed",
        ),
        Curve(
            f"one message, delta = {float(_SHOWN_DELTA):g}",
            [(count, with_delta(count)) for count in users],
            "computed",
        ),
        Curve("four messages (Claim 20)", [(count, ShuffledCurve(gap, count).epsilon) for count in users], "computed"),
    ]
    return curve_figure(
        "Exact epsilon of shuffled messages against the number of users: a flat line for one message without a delta, "
        "a falling one with a delta, and one that falls to ln(8/5) for the randomizer of Claim 20.",
        panels_shown=[Panel("", curves)],
        title="Epsilon of shuffled messages",
        x_title="users",
        y_title="epsilon",
        caption=[
            "Exact. One message: randomized response whose truth is three times as likely, epsilon ln 3 alone.",
            "Four messages: the randomizer with a gap, not private for one user at any epsilon.",
        ],
        size=(520, 320),
        y_log=False,
    )


def _overlap_figure(overlaps: list[Row]) -> Figure:
    points = [(row["messages"], row["least_overlap"]) for row in overlaps]
    proven = [(row["messages"], row["proven_overlap"]) for row in overlaps]
    return curve_figure(
        "Least common mass of two values' reports against the number of one-bit messages: both lines decrease as two "
        "to the minus square of the number of messages.",
        panels_shown=[
            Panel("", [Curve("least, by linear programs", points, "computed"), Curve("proven", proven, "formula")])
        ],
        title="Pure privacy: what two values' messages must have in common",
        x_title="messages per user",
        y_title="1 - statistical distance",
        caption=[f"One-bit messages, e^epsilon = {_RATIO}. No shuffled protocol lies below the solid line."],
        name="overlap",
        x_log=False,
        size=(520, 320),
    )


STUDY = Study(
    name="structure",
    title="Theorem 17 and Claims 18 to 20: what shuffling can and cannot hide without a delta",
    source="Balcer and Cheu (2020), Separating Local & Shuffled Differential Privacy via Histograms, sections 1.2, 4",
    claimed=[
        "Theorem 17 (3): every single-message shuffled protocol with pure privacy has a local protocol with the same "
        "epsilon and the same output distribution on every data set. Claim 18: its randomizer alone has that epsilon.",
        "Claim 19: two messages can be perfectly private when shuffled although the randomizer is not private at all. "
        "Claim 20: four messages can be private when shuffled even though each user's own shuffled messages are not.",
        "Section 1.2, on Ghazi and others (2020b), [12]: with pure privacy and m messages of l bits, replacing a value "
        "changes the distribution of the user's messages by at most 1 - 2^(-O(m² l)).",
        "Study notes on binary sums: randomized response with parameter lambda and sample-and-threshold are said to be "
        "equivalent.",
    ],
    reading=[
        "First figure: for one message and no delta the line is flat, however many users there are. It falls if a "
        "delta is allowed, or if users send several messages.",
        "Second figure: the least that the reports of two values have in common. The solid line is the computed "
        "minimum over all protocols; the dashed one is the bound that is proved on the page of the lemma.",
    ],
    measure=_measure,
)
