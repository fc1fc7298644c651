"""``shuffledp solve``: the paper's problems, solved with a private histogram."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from shuffledp.cli.options import (
    Calibration,
    CalibrationOption,
    ConfidenceOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    SeedOption,
    integer,
    takes_groups,
)
from shuffledp.cli.screen import print_json, print_table, progress_bar, say, waiting
from shuffledp.errors import ConditionError, InfeasibleError
from shuffledp.lab.problems import (
    MeasuredSampleSize,
    Method,
    PointerChasing,
    PointerJumping,
    Solution,
    SupportIdentification,
    central_rate,
    direct_sample_size,
    local_rate,
    local_rate_scope,
    measure_sample_size,
    paper_sample_size,
    shuffled_rate,
)
from shuffledp.lab.problems.identification import ROUTES, RULES
from shuffledp.lab.problems.problem import Problem, describe_domain_size
from shuffledp.lab.problems.solver import solve_with
from shuffledp.randomness import SYSTEM, InsecureSeededRandomness

_SHOWN_ITEMS = 6
_NEARLY_SURE = 0.9999


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """Options of every ``shuffledp solve`` command."""

    epsilon: EpsilonOption
    delta: DeltaOption
    users: Annotated[
        int | None,
        typer.Option(
            "--users", parser=integer, metavar="N", help="Number of users; by default as many as the theory requires."
        ),
    ] = None
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help="A histogram protocol of any trust, by name.")
    ] = "balcer-cheu"
    calibration: CalibrationOption = Calibration.tight
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help=f"Which items are reported: {', '.join(RULES)}; by default that of the protocol.",
        ),
    ] = None
    route: Annotated[
        str,
        typer.Option(
            "--route",
            metavar="ROUTE",
            help=f"How the round is simulated: {', '.join(ROUTES)}; the last two simulate all items of a small domain.",
        ),
    ] = "auto"
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Run even if success in 99 of 100 rounds is not proven for this number of users."
        ),
    ] = False
    search: Annotated[
        bool, typer.Option("--search", help="Also measure the fewest users who succeed in 99 of 100 rounds.")
    ] = False
    trials: Annotated[
        int,
        typer.Option("--trials", parser=integer, metavar="T", help="Rounds at each number of users of the search."),
    ] = 10_000
    confidence: ConfidenceOption = 0.95
    insecure_seed: SeedOption = None
    as_json: JsonOption = False


@takes_groups
def solve_support(
    support_size: Annotated[
        int, typer.Option("--support-size", parser=integer, metavar="H", help="Number of items that users hold, h.")
    ],
    domain_size: Annotated[
        int,
        typer.Option(
            "--domain-size", parser=integer, metavar="D", help="Number of possible items, d; as large as 1e30."
        ),
    ],
    options: SolveOptions,
) -> None:
    """Find which h of d items users hold (Definition 13 of Balcer and Cheu 2020).

    Example: shuffledp solve support --support-size 100 --domain-size 1e30 --epsilon 1 --delta 1e-6
    """
    _solve(SupportIdentification(support_size, domain_size), options)


@takes_groups
def solve_chasing(
    steps: Annotated[int, typer.Option("--steps", parser=integer, metavar="K", help="Index in the sequence, k.")],
    length: Annotated[
        int, typer.Option("--length", parser=integer, metavar="L", help="Length of the two permutations, l.")
    ],
    options: SolveOptions,
) -> None:
    """Follow two permutations in turn: pointer chasing PC(k, l) (Definition 15 of Balcer and Cheu 2020).

    Example: shuffledp solve pointer-chasing --steps 2 --length 1e6 --epsilon 1 --delta 1e-6
    """
    _solve(PointerChasing(steps, length), options)


@takes_groups
def solve_jumping(
    branching: Annotated[
        int, typer.Option("--branching", parser=integer, metavar="S", help="Children of every node, s.")
    ],
    height: Annotated[
        int, typer.Option("--height", parser=integer, metavar="H", help="Labelled levels of the tree, h.")
    ],
    options: SolveOptions,
) -> None:
    """Follow labels down a tree: multi-party pointer jumping MPJ(s, h) (Definition 16 of Balcer and Cheu 2020).

    Example: shuffledp solve pointer-jumping --branching 10000 --height 10 --epsilon 1 --delta 1e-6
    """
    _solve(PointerJumping(branching, height), options)


def _solve(problem: Problem, options: SolveOptions) -> None:
    method = Method(
        epsilon=options.epsilon,
        delta=options.delta,
        protocol=options.protocol,
        calibration=options.calibration.value,
        rule=options.rule or "",
        route=options.route,
    )
    source = SYSTEM if options.insecure_seed is None else InsecureSeededRandomness(options.insecure_seed)
    with waiting("Solving"):
        theory = _theory(problem, method, may_lack_users=options.users is not None and options.anyway)
        users = theory["users"] if options.users is None else options.users
        solution = solve_with(method, problem, users=users, anyway=options.anyway, source=source)
    measured = None
    if options.search:
        with progress_bar("searching") as progress:
            measured = measure_sample_size(
                problem,
                replace(method, route="auto"),
                trials=options.trials,
                confidence=options.confidence,
                source=source,
                progress=progress,
            )
    if options.as_json:
        print_json(solution.to_json() | {"theory": theory, "measured": measured.to_json() if measured else None})
    else:
        _show(solution, theory, measured)


def _theory(problem: Problem, method: Method, *, may_lack_users: bool) -> dict[str, Any]:
    """The sample size of this method, and what the paper says; null where a theorem does not apply."""
    try:
        users: int | None = direct_sample_size(problem, method)
    except InfeasibleError:
        if not may_lack_users:
            raise
        users = None
    paper = _if_it_applies(lambda: paper_sample_size(problem.support_size, method.epsilon, method.delta))
    return {
        "users": users,
        "users_paper": paper and paper.users,
        "users_paper_exact_coupon": paper and paper.users_exact_coupon,
        "shuffled_rate": _if_it_applies(lambda: shuffled_rate(problem, method.epsilon, method.delta)),
        "central_rate": _if_it_applies(lambda: central_rate(problem, method.epsilon, method.delta)),
        "local_rate": _if_it_applies(lambda: local_rate(problem, method.epsilon)),
    }


def _if_it_applies(compute: Any) -> Any:
    try:
        return compute()
    except ConditionError:
        return None


def _items(number: int, *, past: bool = False) -> str:
    if number == 1:
        return f"1 item {'was' if past else 'is'}"
    return f"{number:,} items {'were' if past else 'are'}"


def _show(solution: Solution, theory: dict[str, Any], measured: MeasuredSampleSize | None) -> None:
    problem, method = solution.problem, solution.method
    name, held = problem.describe(), _items(problem.support_size)
    say(f"{name[0].upper()}{name[1:]}: {held} held, of {describe_domain_size(problem)} possible ones.")
    say(
        f"{solution.users:,} users with {method.protocol} ({method.trust} model, {method.calibration} calibration) at "
        f"epsilon = {method.epsilon:g}, delta = {method.delta:g}; {_items(len(solution.reported), past=True)} reported."
    )
    say(f"Found: {_shortened(solution.answer)}.")
    say(f"Truth: {_shortened(solution.truth)}.")
    say(f"{'Right' if solution.success else 'WRONG'}, in {solution.seconds:.2f} seconds.")
    _show_samples(solution, theory, measured)
    if method.route != "auto":
        how = {"listed": "Their tally was drawn", "messages": "Every message was made, permuted and counted"}
        say(f"All {solution.simulated_items:,} items were simulated, empty ones included. {how[solution.route]}.")
    elif method.kind.grows_with_domain and not method.lists_domain:
        say(
            "The tally was drawn from its distribution. What users send grows with the domain, so this shows what "
            "the model can do, not what a network can carry."
        )
    say(solution.guarantee_sentence())


def _show_samples(solution: Solution, theory: dict[str, Any], measured: MeasuredSampleSize | None) -> None:
    rows = [["enough for 99/100, proven", theory["users"]], ["by the constants of Claim 14", theory["users_paper"]]]
    if measured is not None:
        rows.append(["enough for 99/100, measured", measured.users])
    print_table(
        ["samples", "users"],
        [[name, f"{number:,}" if number is not None else "none known"] for name, number in rows],
    )
    say(f"Success with probability {_at_least(solution.success_at_least)} is proven for {solution.users:,} users.")
    if measured is not None:
        say(measured.sentence())
    if theory["local_rate"] is not None:
        say(
            f"For {local_rate_scope(solution.problem)} Table 2 has a lower bound of {theory['local_rate']:,.0f}, "
            "up to a constant that it leaves open."
        )


def _at_least(probability: float) -> str:
    """Rounded down."""
    if probability > _NEARLY_SURE:
        return f"above {_NEARLY_SURE:g}"
    return f"{int(probability * 10_000) / 10_000:g}"


def _shortened(answer: Any) -> str:
    if answer is None:
        return "none"
    if not isinstance(answer, tuple):
        return f"{answer:,}"
    shown = ", ".join(str(item) for item in answer[:_SHOWN_ITEMS])
    return shown if len(answer) <= _SHOWN_ITEMS else f"{shown}, ... ({len(answer):,} in all)"


solve_app = typer.Typer(help="The problems that separate the models, solved privately.", no_args_is_help=True)
solve_app.command("support")(solve_support)
solve_app.command("pointer-chasing")(solve_chasing)
solve_app.command("pointer-jumping")(solve_jumping)
