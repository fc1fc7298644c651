"""The study of bounds with explicit constants: means of bits, one shuffled message, Corollary 24, Theorem 11 (ii)."""

from __future__ import annotations

import math
from typing import Any

from shuffledp.lab.bounds.hyperbolic import crossing, least_m
from shuffledp.lab.bounds.single_message import count_users_least
from shuffledp.lab.studies.bounds import constants, means, one_message
from shuffledp.lab.studies.study import Outcome, ResultTable, Settings, Study

Row = dict[str, Any]


def _measure(settings: Settings) -> Outcome:
    bernoulli, checks = means.bernoulli(settings.part(0.0, 0.3))
    planned, new_checks = means.planned(settings.part(0.3, 0.5))
    checks += new_checks
    levels, new_checks = means.by_histogram_or_directly(settings.part(0.5, 0.6))
    checks += new_checks
    histograms, new_checks = one_message.histograms(settings.part(0.6, 0.85))
    checks += new_checks
    separated, new_checks = one_message.separation()
    checks += new_checks
    counts, new_checks = one_message.counts(settings.part(0.85, 0.95))
    checks += new_checks
    surplus, new_checks = constants.hyperbolic()
    checks += new_checks
    failures, new_checks = constants.theorem_11(settings)
    checks += new_checks
    return Outcome(
        _paragraphs(bernoulli, planned, levels, separated, counts),
        {
            "": ResultTable.of(bernoulli),
            "planned": ResultTable.of(planned),
            "histogram-or-mean": ResultTable.of(levels),
            "one-message": ResultTable.of(histograms),
            "separation": ResultTable.of(separated),
            "count": ResultTable.of(counts),
            "tanh": ResultTable.of(surplus),
            "theorem11": ResultTable.of(failures),
        },
        [
            means.mean_figure(bernoulli),
            one_message.histogram_figure(histograms, separated),
            one_message.count_figure(counts),
            means.histogram_figure(levels),
            constants.hyperbolic_figure(surplus),
        ],
        checks,
    )


def _paragraphs(
    bernoulli: list[Row], planned: list[Row], levels: list[Row], separated: list[Row], counts: list[Row]
) -> list[str]:
    finest = min(row["alpha"] for row in planned)
    users = {row["model"]: row for row in planned if row["alpha"] == finest}
    most_users = max(row["users"] for row in bernoulli)
    reached = {(row["epsilon"], row["model"]): row["alpha"] for row in bernoulli if row["users"] == most_users}
    passed = [row["log10_domain_size"] for row in separated if row["one_message_at_least"] > row["theorem_12"]]
    first, last = levels[0], levels[-1]
    factors = [row["rmse"] / row["at_least"] for row in counts]
    return [
        f"Means of bits. To know a population's mean within {finest:g} with probability {means.PROBABILITY:g} at "
        f"epsilon 1 and delta {means.DELTA:g}, the planner takes {users['local']['users_planned']:,} users in the "
        f"local model, {users['shuffled']['users_planned']:,} in the shuffled and "
        f"{users['central']['users_planned']:,} in the central one. Fewer than "
        f"{users['local']['users_at_least']:,} are not enough for any local protocol, fewer than "
        f"{users['central']['users_at_least']:,} for any protocol at all. With {most_users:,} users 95 of 100 rounds "
        f"stay within {reached[1.0, 'local']:.2g} locally and {reached[1.0, 'shuffled']:.2g} shuffled; at epsilon 0.1 "
        f"within {reached[0.1, 'local']:.2g} and {reached[0.1, 'shuffled']:.2g}: only the local model pays for "
        "epsilon there.",
        "One message. The lower bound for histograms of one message passes the error of Theorem 12, "
        f"{separated[0]['theorem_12']:.0f} users for a million, "
        + (f"by 10^{passed[0]} categories" if passed else "nowhere in this range")
        + ". In domains that can be listed it is weaker than the bound that holds in every model. A count of one "
        f"message errs {min(factors):.1f} to {max(factors):.1f} times as much as its lower bound, which tends to "
        f"sqrt(ln(1/delta) / 2) for many users; from {math.ceil(count_users_least(1.0, 1e-12)):,} users on it is at "
        "least 0.428 sqrt(ln(1/delta) - 1) at epsilon 1, for every delta down to 1e-12.",
        "Histograms and means. The sum of numbers on "
        f"{first['levels']} levels errs by {first['rmse_by_histogram']:.2f} from a histogram and by "
        f"{first['rmse_directly']:.2f} directly, on {last['levels']} levels by {last['rmse_by_histogram']:.2f} and "
        f"{last['rmse_directly']:.2f}. A histogram is the harder question: it answers the mean, too, and replacing a "
        "user changes two of its counts.",
        f"Corollary 24. tanh(epsilon/2) is at least epsilon/sqrt(5) up to epsilon {crossing(5, 9)[0]} and below "
        f"epsilon/sqrt(4) for every epsilon above 0; the least real constant up to epsilon 1 is {least_m(1.0):.4f}.",
    ]


STUDY = Study(
    name="bounds",
    title="Bounds with explicit constants: means, one message, and the constants of two proofs",
    source="Balcer and Cheu (2020), sections 1.2 and 3.2, Theorem 11, Corollary 24; study notes and survey notes",
    claimed=[
        "Section 1.2: a Bernoulli mean takes O(1/alpha² + log(1/delta)/(alpha epsilon)) users in the shuffled model "
        "and Omega(1/(alpha epsilon)²) in the local one.",
        "Section 3.2: the largest error of a single-message histogram is at least polylog(d)/(epsilon n). The survey: "
        "a binary sum of one message has error Omega(sqrt(log(1/delta))).",
        "The notes ask whether histograms are easier than means, plot tanh(epsilon/2) against epsilon/sqrt(5) and "
        "epsilon/sqrt(4), and leave the proof of Theorem 11 (ii) open.",
    ],
    reading=[
        "Rates become numbers here: each dashed line is a lower bound with its constant, derived on the pages of the "
        "theory. Measured and computed errors must lie on its right side.",
        "In the first figure, further left is more exact and lower is cheaper. In the second, the left panel has "
        "domains that can be run, the right one larger domains by the number of digits of their size.",
    ],
    measure=_measure,
)
