"""``shuffledp plan``: protocols that meet a privacy target, ranked by error, with their costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import (
    AlphabetOption,
    BinsOption,
    ConfidenceOption,
    DeltaOption,
    DomainSizeOption,
    HonestFractionOption,
    JsonOption,
    LowerOption,
    MaxLengthOption,
    OptionalEpsilonOption,
    OptionalUsersOption,
    PlotOption,
    UpperOption,
    WholeOption,
    integer,
    number,
    takes_groups,
)
from shuffledp.cli.screen import note, note_warnings, print_json, print_table, say, waiting
from shuffledp.domain import DEFAULT_BINS, Strings
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.figures import check_figure_path
from shuffledp.output import write_whole
from shuffledp.planning import (
    Count,
    FrequentStrings,
    Histogram,
    Limits,
    Mean,
    Plan,
    Plans,
    Quantiles,
    Question,
    Sum,
    fewest_users_for,
    least_epsilon_for,
    plan,
)
from shuffledp.planning.listing import amounts_of, error_of, found_sentence, together, trust_of, units_of
from shuffledp.planning.planner import trust_asked
from shuffledp.planning.question import as_collected

if TYPE_CHECKING:
    from shuffledp.collection.task.costs import CollectionCost

_PLACEHOLDER_USERS = 2

ReleasesOption = Annotated[
    int,
    typer.Option(
        "--releases",
        parser=integer,
        metavar="K",
        help="Number of releases about the same users; epsilon and delta are those of all together.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of every ``shuffledp plan`` command."""

    delta: DeltaOption
    users: OptionalUsersOption = None
    epsilon: OptionalEpsilonOption = None
    accuracy: Annotated[
        float | None,
        typer.Option(
            "--accuracy",
            parser=number,
            metavar="A",
            help="Error to reach: find the smallest epsilon for --users, or the fewest users for --epsilon.",
        ),
    ] = None
    releases: ReleasesOption = 1
    trust: Annotated[str, typer.Option("--trust", help="Who is trusted: shuffled, augmented, local or central.")] = (
        "shuffled"
    )
    honest_fraction: HonestFractionOption = 1.0
    max_messages: Annotated[
        float | None, typer.Option("--max-messages", parser=number, metavar="M", help="Maximum messages per user.")
    ] = None
    max_bytes: Annotated[
        float | None, typer.Option("--max-bytes", parser=number, metavar="B", help="Maximum bytes per user.")
    ] = None
    max_local_epsilon: Annotated[
        float | None,
        typer.Option(
            "--max-local-epsilon",
            parser=number,
            metavar="E",
            help="Maximum epsilon of a single report, which remains if the shuffler and the analyzer collude.",
        ),
    ] = None
    in_collection: Annotated[
        bool,
        typer.Option(
            "--in-collection",
            help="Rank by what a collection costs: padded and sealed reports, and the influence of one device.",
        ),
    ] = False
    confidence: ConfidenceOption = 0.95
    plot: PlotOption = None
    as_json: JsonOption = False

    @property
    def planned_users(self) -> int:
        """The number of users, or a placeholder if it is to be computed."""
        return _PLACEHOLDER_USERS if self.users is None else self.users


@takes_groups
def plan_count(options: PlanOptions) -> None:
    """Plan a private count.

    Example: shuffledp plan count --users 20000 --epsilon 1 --delta 1e-8
    """
    _plan(Count(options.planned_users), options)


@takes_groups
def plan_histogram(domain_size: DomainSizeOption, options: PlanOptions) -> None:
    """Plan a private histogram.

    Example: shuffledp plan histogram --users 20000 --domain-size 10 --epsilon 1 --delta 1e-8
    """
    _plan(Histogram(options.planned_users, domain_size), options)


@takes_groups
def plan_sum(lower: LowerOption, upper: UpperOption, options: PlanOptions, whole: WholeOption = False) -> None:
    """Plan a private sum of numbers between two bounds.

    Example: shuffledp plan sum --users 20000 --lower 0 --upper 100 --epsilon 1 --delta 1e-8
    """
    _plan(Sum(options.planned_users, lower, upper, whole), options)


@takes_groups
def plan_mean(lower: LowerOption, upper: UpperOption, options: PlanOptions, whole: WholeOption = False) -> None:
    """Plan a private mean of numbers between two bounds.

    Example: shuffledp plan mean --users 20000 --lower 0 --upper 100 --epsilon 1 --delta 1e-8
    """
    _plan(Mean(options.planned_users, lower, upper, whole), options)


@takes_groups
def plan_quantiles(
    lower: LowerOption, upper: UpperOption, options: PlanOptions, bins: BinsOption = DEFAULT_BINS
) -> None:
    """Plan private quantiles of numbers between two bounds.

    Example: shuffledp plan quantiles --users 20000 --lower 0 --upper 120 --bins 64 --epsilon 1 --delta 1e-8
    """
    _plan(Quantiles(options.planned_users, lower, upper, bins), options)


@takes_groups
def plan_strings(alphabet: AlphabetOption, max_length: MaxLengthOption, options: PlanOptions) -> None:
    """Plan to find the strings that many users hold, which nobody lists.

    Example: shuffledp plan strings --users 1000000 --alphabet a-z --max-length 24 --epsilon 1 --delta 1e-6
    """
    _plan(FrequentStrings(options.planned_users, Strings(alphabet, max_length)), options)


def _plan(question: Question, options: PlanOptions) -> None:
    plot = options.plot
    if plot is not None:
        check_figure_path(plot)
    with waiting("Trying every protocol"):
        plans = _plans(as_collected(question) if options.in_collection else question, options)
    if plot is not None:
        write_whole(plot, plans.figure(plot.suffix.lower()))
        note(f"wrote {plot}")
    if options.in_collection:
        _show_in_collection(plans, options)
    elif options.as_json:
        print_json(plans.to_json())
        note_warnings(plans.warnings)
    else:
        _show(plans, options.accuracy)


def _plans(question: Question, options: PlanOptions) -> Plans:
    Limits(options.trust, max_messages=options.max_messages, max_bytes=options.max_bytes)  # checks them
    arguments: dict[str, Any] = {
        "delta": options.delta,
        "releases": options.releases,
        "trust": options.trust,
        "honest_fraction": options.honest_fraction,
        # in a collection these are limits on padded and sealed reports
        "max_messages": None if options.in_collection else options.max_messages,
        "max_bytes": None if options.in_collection else options.max_bytes,
        "max_local_epsilon": options.max_local_epsilon,
        "confidence": options.confidence,
    }
    if options.accuracy is None:
        if options.users is None or options.epsilon is None:
            raise ParameterError("Give --users and --epsilon, or --accuracy in place of one of them.")
        return plan(question, epsilon=options.epsilon, **arguments)
    if (options.users is None) == (options.epsilon is None):
        raise ParameterError(
            "With --accuracy give either --users, to find the least epsilon, or --epsilon, to find the fewest users."
        )
    if options.epsilon is None:
        return least_epsilon_for(question, accuracy=options.accuracy, **arguments)
    return fewest_users_for(question, accuracy=options.accuracy, epsilon=options.epsilon, **arguments)


def _show(plans: Plans, accuracy: float | None) -> None:
    question = plans.question
    if accuracy is not None:
        say(
            f"An error of {accuracy:g} {question.unit} is reached with {question.users:,} users "
            f"at epsilon = {plans.epsilon:.4g}."
        )
    chosen = [candidate for candidate in plans.plans if not candidate.reference]
    references = [candidate for candidate in plans.plans if candidate.reference]
    target = f"epsilon = {plans.epsilon:.4g}, delta = {plans.delta:g}{together(plans)}"
    _table(chosen, f"{question.name} of {question.users:,} users at {target}")
    best = chosen[0]
    say(units_of(question.unit, best))
    if isinstance(question, Quantiles):
        say(_about_trees(chosen))
    say(f"Best: {best.protocol.name} ({best.variant}): {best.why}.")
    if found := found_sentence(best.protocol):
        say(found)
    cheaper = [option for option in plans.frontier if option.cost.bytes_per_user < best.cost.bytes_per_user]
    for option in cheaper[:-4:-1]:
        say(f"Cheaper: {option.protocol.name} ({option.variant}): {option.why}.")
    if references:
        _table(references, "For comparison, with other trust:", trust=True)
    for reference in references:
        if reference.protocol.trusts_shuffler:
            say(f"With {reference.protocol.name}, {trust_asked(reference.protocol)}.")
    for rejection in plans.rejected:
        say(f"Rejected: {rejection.protocol} ({rejection.calibration}): {rejection.reason.rstrip('.')}.")
    once, all_releases = best.protocol.guarantee, best.composed
    if plans.releases > 1:
        say(f"Each release has epsilon = {once.epsilon:.4g} at delta = {once.delta:.3g}.")
    say(all_releases.sentence())
    note_warnings(warning for warning in plans.warnings if warning not in all_releases.warnings)


def _about_trees(chosen: list[Plan]) -> str:
    """What errors are of, and the trees of plans that do not list theirs."""
    best = chosen[0]
    usual = {
        plan.protocol.name: tuple(plan.protocol.parameters()["branching"])
        for plan in chosen
        if "branching" not in plan.setting
    }
    trees = " and ".join(f"{branching} for {name}" for name, branching in usual.items())
    rank = 100 * best.expected.rmse / best.protocol.users
    return (
        f"These are errors of the number of users below a value; in the best plan typically {rank:.2g}% of all users. "
        "Branching is the number of children of a node on each level of the tree in which values are counted; where it "
        f"is not listed, it is {trees}."
    )


def _why_too_long(cost: CollectionCost, options: PlanOptions) -> str:
    """The limit that a report exceeds, in words; empty if none."""
    for amount, limit, unit in (
        (cost.messages_per_user, options.max_messages, "messages"),
        (cost.bytes_per_user, options.max_bytes, "bytes"),
    ):
        if limit is not None and amount > limit:
            average = " on average" if cost.carriers else ""
            return f"a report has {amount:,.6g} {unit}{average}, more than {limit:g}"
    return ""


def _ranked_in_collection(
    plans: Plans, options: PlanOptions
) -> tuple[list[tuple[Plan, CollectionCost]], list[tuple[Plan, str]]]:
    """The plans that can be collected, ranked by what that costs, and the others with the reason."""
    from shuffledp.collection.task.costs import CollectionCost, collection_cost, ranked_by_cost, with_carriers

    costs: list[tuple[Plan, CollectionCost | str]] = []
    for listed in plans:
        if listed.reference:
            continue
        delta = listed.protocol.target.delta or plans.delta / plans.releases
        carried = with_carriers(listed, plans.question, delta=delta, honest_fraction=options.honest_fraction)
        costs += [
            (
                candidate,
                collection_cost(candidate, plans.question, delta=delta, honest_fraction=options.honest_fraction),
            )
            for candidate in (listed, carried)
            if candidate is not None
        ]
    ranked = ranked_by_cost((candidate, cost) for candidate, cost in costs if isinstance(cost, CollectionCost))
    refused = [(candidate, cost) for candidate, cost in costs if isinstance(cost, str)]
    for entry in list(ranked):
        if reason := _why_too_long(entry[1], options):
            ranked.remove(entry)
            refused.append((entry[0], reason))
    if not ranked:
        first, reason = refused[0]
        raise InfeasibleError(f"No plan can be collected. {first.protocol.name}: {reason}")
    return ranked, refused


def _as_count_in_collection(plans: Plans, options: PlanOptions) -> Plan | None:
    """The best plan of a task that counts one of two categories, if it has less error; None for other questions.

    A task of a histogram counts both: its document has no names for the values of a count.
    """
    question = plans.question
    if not (isinstance(question, Histogram) and question.domain_size == 2):
        return None
    count = replace(options, users=question.users, epsilon=plans.epsilon, accuracy=None)
    try:
        ranked, _ = _ranked_in_collection(_plans(Count(question.users), count), count)
    except InfeasibleError:
        return None
    return ranked[0][0]


def _show_in_collection(plans: Plans, options: PlanOptions) -> None:
    """The plans as tasks of a collection, the best first, and the reasons of those that cannot be tasks."""
    from shuffledp.collection.task.costs import sealing_time

    ranked, refused = _ranked_in_collection(plans, options)
    if options.as_json:
        document = plans.to_json()
        entries = [(candidate, cost.to_json()) for candidate, cost in ranked]
        entries += [(candidate, {"reason": reason}) for candidate, reason in refused]
        references = [each for each in document["plans"] if each["reference"]]
        document["plans"] = [candidate.to_json() | {"collection": cost} for candidate, cost in entries] + references
        print_json(document)
        note_warnings(plans.warnings)
        return
    question = plans.question
    target = f"epsilon = {plans.epsilon:.4g}, delta = {plans.delta:g}{together(plans)}"
    print_table(
        ["protocol", "noise", "error", "messages", "bytes", "one device"],
        [
            [
                candidate.protocol.name,
                candidate.variant,
                error_of(candidate.expected.rmse),
                f"{cost.messages_per_user:,.4g}",
                f"{cost.bytes_per_user:,.0f}",
                "anything" if math.isinf(cost.moved) else error_of(cost.moved),
            ]
            for candidate, cost in ranked
        ],
        title=f"{question.name} of {question.users:,} users in a collection at {target}",
        words=2,
    )
    say(
        f"Errors and what one dishonest device can move an estimate by are in {question.unit}. Messages and bytes are "
        "those of every report, padded and sealed. Plans are in groups of errors that differ by less than 10%; in a "
        "group, the fewest bytes come first."
    )
    best = ranked[0][0]
    error = f"{best.expected.rmse:.3g} {question.unit}"
    say(f"Best: {best.protocol.name} ({best.variant}), with a typical error of {error}.")
    counted = _as_count_in_collection(plans, options)
    if counted is not None and counted.expected.rmse < best.expected.rmse:
        say(
            "These tasks count both categories. A task of the question count, where devices report 1 for one category "
            f"and 0 for the other, needs less noise: {counted.protocol.name} ({counted.variant}) has a typical error "
            f"of {counted.expected.rmse:.3g}, of both, since the other category is the public number of users minus "
            "the count."
        )
    if any(cost.carriers for _, cost in ranked):
        say(
            "With carriers, which need wire version 2, messages and bytes are averages: each device adds noise, in a "
            "longer report, with the probability given."
        )
    for candidate, cost in ranked:
        if cost.dummies:
            say(
                f"{candidate.protocol.name}: the shuffler also seals about {cost.dummies:,.0f} dummies in every round, "
                f"which takes one core {sealing_time(cost.dummies)}."
            )
    for candidate, reason in refused:
        say(f"Not collected: {candidate.protocol.name} ({candidate.variant}): {reason.rstrip('.')}.")
    say(best.composed.sentence())
    note_warnings(warning for warning in plans.warnings if warning not in best.composed.warnings)


def _table(plans: list[Plan], title: str, *, trust: bool = False) -> None:
    print_table(
        ["protocol", "trust" if trust else "noise", "error", "largest", "messages", "bytes", "year"],
        [
            [
                candidate.protocol.name,
                trust_of(candidate.protocol) if trust else candidate.variant,
                *amounts_of(candidate),
            ]
            for candidate in plans
        ],
        title=title,
        words=1,
    )


plan_app = typer.Typer(
    help="Rank the protocols that meet a privacy target by error, with their costs.", no_args_is_help=True
)
plan_app.command("count")(plan_count)
plan_app.command("histogram")(plan_histogram)
plan_app.command("sum")(plan_sum)
plan_app.command("mean")(plan_mean)
plan_app.command("quantiles")(plan_quantiles)
plan_app.command("strings")(plan_strings)
