"""``shuffledp task``: create, show and verify signed tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.domains import choose_domain
from shuffledp.cli.options import (
    BEST,
    AuthorOption,
    CaseFoldOption,
    DeltaOption,
    DomainFileOption,
    DomainOption,
    EpsilonOption,
    HonestFractionOption,
    JsonOption,
    NfcOption,
    OptionalAlphabetOption,
    OptionalBinsOption,
    OptionalDomainSizeOption,
    OptionalLowerOption,
    OptionalMaxDeltaOption,
    OptionalMaxEpsilonOption,
    OptionalMaxLengthOption,
    OptionalMaxMessagesOption,
    OptionalMinUsersOption,
    OptionalUpperOption,
    OtherStringsOption,
    ProtocolOption,
    TrimOption,
    WholeOption,
    integer,
    takes_groups,
)
from shuffledp.cli.screen import note, note_warnings, plain, print_json, print_list, print_table, say, waiting
from shuffledp.cli.task_files import (
    read_authentic,
    read_round_key,
    read_sealing_key,
    read_signing_key,
    read_task,
    read_verifying_key,
)
from shuffledp.cli.times import moment
from shuffledp.domain import DEFAULT_BINS, Bins, Categories, Domain, Interval, Numbered, Strings
from shuffledp.errors import InfeasibleError, OutputError, ParameterError
from shuffledp.output import check_writable, write_whole
from shuffledp.privacy.guarantee import target_warnings

if TYPE_CHECKING:
    from shuffledp.collection.task.task import Task
    from shuffledp.planning import Plan, Question
    from shuffledp.protocols.protocol import Protocol

_SHOWN_NAMES = 12

task_app = typer.Typer(help="Signed tasks: create, show and verify them.", no_args_is_help=True)

TaskArgument = Annotated[Path, typer.Argument(metavar="TASK", help="A file with a signed task.")]


class TrustName(StrEnum):
    """Whom a task trusts."""

    SHUFFLED = "shuffled"
    AUGMENTED = "augmented"


class QuestionName(StrEnum):
    """What is asked of the users."""

    COUNT = "count"
    HISTOGRAM = "histogram"
    SUM = "sum"
    QUANTILES = "quantiles"
    STRINGS = "strings"


@dataclass(frozen=True, kw_only=True)
class DomainOptions:
    """The public domain of the question."""

    domain: DomainOption = None
    domain_file: DomainFileOption = None
    domain_size: OptionalDomainSizeOption = None
    lower: OptionalLowerOption = None
    upper: OptionalUpperOption = None
    whole: WholeOption = False
    bins: OptionalBinsOption = None
    alphabet: OptionalAlphabetOption = None
    max_length: OptionalMaxLengthOption = None
    trim: TrimOption = False
    nfc: NfcOption = False
    case_fold: CaseFoldOption = False
    other: OtherStringsOption = False


@dataclass(frozen=True, kw_only=True)
class ProtocolOptions:
    """The privacy target, and which protocols may meet it."""

    epsilon: EpsilonOption
    delta: DeltaOption
    users: Annotated[
        int,
        typer.Option(
            "--users", parser=integer, metavar="N", help="Minimum number of reports; a smaller round is destroyed."
        ),
    ]
    protocol: ProtocolOption = BEST
    trust: Annotated[
        TrustName,
        typer.Option(
            "--trust",
            metavar="NAME",
            help="shuffled, or augmented: the shuffler also adds the noise, as sealed dummies; needs --round-key.",
        ),
    ] = TrustName.SHUFFLED
    max_messages: Annotated[
        int,
        typer.Option(
            "--max-messages",
            parser=integer,
            metavar="M",
            help="Maximum messages per report, including the dummies that hide their number; with carriers on average.",
        ),
    ] = 100
    honest_fraction: HonestFractionOption = 1.0


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """How the round is described, when it is open, and for how many users."""

    name: Annotated[str, typer.Option("--name", help="Name of the task, shown to people.")]
    population: Annotated[
        str, typer.Option("--population", metavar="NAME", help="Who is asked; releases about them share a budget.")
    ]
    closes: Annotated[
        str, typer.Option("--closes", metavar="TIME", help="An ISO time with its zone, or 30m, 2h, 7d after opening.")
    ]
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="What is asked, for the people who answer.")
    ] = ""
    opens: Annotated[
        str, typer.Option("--opens", metavar="TIME", help="now, an ISO time with its zone, or 30m, 2h, 7d from now.")
    ] = "now"
    max_users: Annotated[
        int | None,
        typer.Option(
            "--max-users", parser=integer, metavar="N", help="Maximum number of reports; by default 10 times --users."
        ),
    ] = None


NextShufflerOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--next-shuffler",
        metavar="KEY.pub",
        help="The public key of a further shuffler of a chain, in their order; may be repeated.",
    ),
]
TrapsOption = Annotated[
    int,
    typer.Option(
        "--traps",
        parser=integer,
        metavar="N",
        help="Number of reports of its own that each later shuffler sends, to detect that reports are dropped.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The keys of the three parties."""

    author: Annotated[Path, typer.Option("--author", metavar="KEY", help="The author's private key, which signs.")]
    analyzer: Annotated[
        Path,
        typer.Option("--analyzer", metavar="KEY.pub", help="The analyzer's public key: messages are sealed to it."),
    ]
    shuffler: Annotated[
        Path, typer.Option("--shuffler", metavar="KEY.pub", help="The shuffler's public key: batches are signed by it.")
    ]
    round_key: Annotated[
        Path | None,
        typer.Option(
            "--round-key",
            metavar="KEY.pub",
            help="The shuffler's public key of this round: the task has wire version 2, and reports get an outer seal.",
        ),
    ] = None
    next_shuffler: NextShufflerOption = None
    next_round_key: Annotated[
        list[Path] | None,
        typer.Option(
            "--next-round-key", metavar="KEY.pub", help="The public round key of a further shuffler, in the same order."
        ),
    ] = None
    traps: TrapsOption = 0


@task_app.command("create")
@takes_groups
def create_task(
    question: Annotated[
        QuestionName, typer.Argument(metavar="QUESTION", help="count, histogram, sum, quantiles or strings.")
    ],
    protocol: ProtocolOptions,
    round_options: RoundOptions,
    keys: KeyOptions,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the signed task.")],
    domain: DomainOptions,
    as_json: JsonOption = False,
) -> None:
    """Choose a protocol, calibrate its noise, and sign the result for devices to verify.

    Example: shuffledp task create histogram --name Commuting --population city --domain bus,bike,car
    --epsilon 1 --delta 1e-8 --users 1000 --closes 2h --author author.key --analyzer analyzer.key.pub
    --shuffler shuffler.key.pub --out task.json
    """
    from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2

    if check_writable(out).exists():
        raise OutputError(f"{out} exists; a task never overwrites a file, which may be a key. Name another.")
    if protocol.trust is TrustName.AUGMENTED and keys.round_key is None:
        raise ParameterError("Tasks of the trust augmented have wire version 2: give the shuffler's --round-key.")
    chosen_question = question_of(question.value, protocol.users, domain)
    signing, shuffler = read_signing_key(keys.author), read_verifying_key(keys.shuffler)
    wire = None
    if len(keys.next_shuffler or ()) != len(keys.next_round_key or ()) or (keys.next_shuffler and not keys.round_key):
        raise ParameterError("Every shuffler of a chain needs its key and its round key: give both for each.")
    if keys.traps and keys.round_key is None:
        raise ParameterError("Traps are sent by later shufflers of a chain: give their keys, or no --traps.")
    if keys.round_key is not None:
        first = ShufflerKeys(shuffler, read_round_key(keys.round_key))
        pairs = zip(keys.next_shuffler or (), keys.next_round_key or (), strict=True)
        later = [ShufflerKeys(read_verifying_key(key), read_round_key(round_key)) for key, round_key in pairs]
        wire = WireVersion2((first, *later), traps=keys.traps)
        shuffler = wire.shufflers[-1].signing
    opens = moment(round_options.opens)
    closes = moment(round_options.closes, after=opens)
    if closes <= datetime.now(UTC):
        raise ParameterError(f"The round would be over: it closes at {closes:%Y-%m-%d %H:%M:%S} UTC.")
    with waiting("Trying every protocol"):
        task = choose_task(
            chosen_question,
            protocol,
            maximum_users=10 * protocol.users if round_options.max_users is None else round_options.max_users,
            name=round_options.name,
            description=round_options.description,
            population=round_options.population,
            opens=opens,
            closes=closes,
            analyzer=read_sealing_key(keys.analyzer),
            shuffler=shuffler,
            wire=wire,
        )
    signed = task.signed(signing)
    write_whole(out, signed.to_bytes() + b"\n")
    _show(task, signed.author, as_json)
    if chosen_question.settings().get("domain_size") == 2:
        note(
            "this task counts both categories. A task of the question count, where devices report 1 for one category "
            "and 0 for the other, usually needs less noise, since the number of users is public; shuffledp plan "
            "histogram --in-collection compares them."
        )
    note(f"wrote {out}")


def question_of(name: str, users: int, options: DomainOptions) -> Question:
    """The question with its public domain; options that belong to another question are refused."""
    from shuffledp.planning import Count, FrequentStrings, Histogram, Quantiles, Sum

    categories = [options.domain, options.domain_file, options.domain_size]
    if name != "histogram" and any(option is not None for option in categories):
        raise ParameterError(f"--domain, --domain-file and --domain-size belong to a histogram, not to a {name}.")
    if name not in ("sum", "quantiles") and (options.lower is not None or options.upper is not None):
        raise ParameterError(f"--lower and --upper belong to a sum or to quantiles, not to a {name}.")
    if name != "sum" and options.whole:
        raise ParameterError(f"--whole belongs to a sum, not to {name}.")
    if name != "quantiles" and options.bins is not None:
        raise ParameterError(f"--bins belongs to quantiles, not to a {name}.")
    normalized = options.trim or options.nfc or options.case_fold or options.other
    if name != "strings" and (options.alphabet is not None or options.max_length is not None or normalized):
        raise ParameterError(
            f"--alphabet, --max-length, --trim, --nfc, --case-fold and --other belong to strings, not to a {name}."
        )
    if name == "strings":
        if options.alphabet is None or options.max_length is None:
            raise ParameterError("Strings need their domain: give --alphabet and --max-length.")
        strings = Strings(
            options.alphabet,
            options.max_length,
            trim=options.trim,
            nfc=options.nfc,
            case_fold=options.case_fold,
            other=options.other,
        )
        return FrequentStrings(users, strings)
    if name == "count":
        return Count(users)
    if name in ("sum", "quantiles"):
        if options.lower is None or options.upper is None:
            need = "A sum needs its" if name == "sum" else "Quantiles need their"
            raise ParameterError(f"{need} bounds: give --lower and --upper.")
        if name == "sum":
            return Sum(users, options.lower, options.upper, options.whole)
        return Quantiles(users, options.lower, options.upper, DEFAULT_BINS if options.bins is None else options.bins)
    if sum(option is not None for option in categories) != 1:
        raise ParameterError(
            "A histogram needs its domain once: --domain a,b,c, --domain-file FILE or --domain-size D."
        )
    if options.domain_size is not None:
        return Histogram(users, options.domain_size)
    domain, _ = choose_domain(options.domain, options.domain_file)
    return Histogram(users, categories=domain)


def choose_task(question: Question, options: ProtocolOptions, **task_fields: Any) -> Task:
    """The task with the lowest error among those that meet the target with at most ``max_messages`` per report."""
    from shuffledp.collection.task.task import Task

    limit = options.max_messages
    if limit < 1:
        raise ParameterError(f"A report has at least one message; --max-messages {limit} allows none.")
    shortest: Task | None = None
    reason = ""
    wire = task_fields["wire"]
    has_carriers = wire is not None and len(wire.shufflers) == 1  # no chain carries them out
    for kind, calibration_options in _candidates(
        question, options, task_fields["maximum_users"], carriers=has_carriers
    ):
        given = {**kind.options_of_a_round(), **calibration_options}
        settings = {**question.settings(), "honest_fraction": options.honest_fraction, **given}
        try:
            task = Task.create(
                kind=kind, settings=settings, epsilon=options.epsilon, delta=options.delta, **task_fields
            )
        except ParameterError as error:
            if options.protocol != BEST:
                raise
            reason = reason or str(error)
            continue
        if task.messages_per_user <= limit:
            return task
        if shortest is None or task.messages_per_user < shortest.messages_per_user:
            shortest = task
    if shortest is None:
        raise ParameterError(reason or _only_fragile(question, options))
    raise InfeasibleError(
        f"A report of {shortest.protocol.name} has {shortest.messages_per_user:,.6g} messages, more than {limit:,}; "
        + "allow more with --max-messages"
        + (", and no protocol has fewer." if options.protocol == BEST else ", or use --protocol best.")
    )


def _candidates(
    question: Question, options: ProtocolOptions, maximum_users: int, *, carriers: bool
) -> Iterator[tuple[type[Protocol], dict[str, Any]]]:
    """Protocols and their calibration options, ranked by what a collection costs, without fragile ones.

    Those with carriers are among them if ``carriers`` is true; of a named protocol this form comes first.
    """
    from shuffledp.collection.task.task import best_carriers
    from shuffledp.protocols.registry import PROTOCOLS, find

    if options.protocol != BEST:
        kind = find(question.question, options.protocol)
        if (kind.trust == "augmented") != (options.trust is TrustName.AUGMENTED):
            needed = "augmented" if kind.trust == "augmented" else "shuffled"
            raise ParameterError(
                f"{kind.name} has the trust {kind.trust}, not {options.trust.value}; give --trust {needed} or another "
                "protocol."
            )
        if carriers:
            settings = {**question.settings(), "honest_fraction": options.honest_fraction, **kind.options_of_a_round()}
            probability = best_carriers(
                kind, settings, epsilon=options.epsilon, delta=options.delta, maximum_users=maximum_users
            )
            if probability is not None:
                yield kind, {"carriers": probability}
        yield kind, {}
        return
    if options.delta == 0 and options.trust is TrustName.AUGMENTED:  # plans need a delta
        kinds = PROTOCOLS[question.question].values()
        yield from ((kind, {}) for kind in kinds if kind.trust == "augmented")
        return
    for candidate in _ranked(question, options, maximum_users, carriers=carriers):
        if not candidate.protocol.fragile:
            yield type(candidate.protocol), {"calibration": candidate.calibration, **candidate.setting}


def _ranked(question: Question, options: ProtocolOptions, maximum_users: int, *, carriers: bool) -> list[Plan]:
    """The plans by their cost in a collection, those within the limit on messages first; the others as planned."""
    from shuffledp.collection.task.costs import CollectionCost, collection_cost, ranked_by_cost, with_carriers

    plans = [candidate for candidate in _plans(question, options) if not candidate.protocol.fragile]
    arguments: dict[str, Any] = {
        "delta": options.delta,
        "honest_fraction": options.honest_fraction,
        "maximum_users": maximum_users,
    }
    if carriers:
        carried = [with_carriers(candidate, question, **arguments) for candidate in plans]
        plans += [candidate for candidate in carried if candidate is not None]
    costs = [(candidate, collection_cost(candidate, question, **arguments)) for candidate in plans]
    fitting = [
        (candidate, cost)
        for candidate, cost in costs
        if isinstance(cost, CollectionCost) and cost.messages_per_user <= options.max_messages
    ]
    ranked = [candidate for candidate, _ in ranked_by_cost(fitting)]
    return ranked + [candidate for candidate in plans if candidate not in ranked]


def _only_fragile(question: Question, options: ProtocolOptions) -> str:
    names = dict.fromkeys(candidate.protocol.name for candidate in _plans(question, options))
    return (
        f"Only {' and '.join(names)} meets this target, with which a single device can change the sum arbitrarily; "
        "if you control every device, name it with --protocol."
    )


def _plans(question: Question, options: ProtocolOptions) -> list[Plan]:
    """Plans to choose from, lowest error first."""
    from shuffledp.planning import plan
    from shuffledp.planning.question import as_collected

    plans = plan(
        as_collected(question),
        epsilon=options.epsilon,
        delta=options.delta,
        honest_fraction=options.honest_fraction,
        trust=options.trust.value,
    )
    return [candidate for candidate in plans.plans if not candidate.reference]


@task_app.command("show")
def show_task(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Show a task without checking its signature or its guarantee; ``task verify`` checks them.

    Example: shuffledp task show task.json
    """
    signed = read_task(task)
    _show(signed.task, signed.author, as_json)
    if not as_json:
        note("the signature was not checked; task verify does.")


@task_app.command("verify")
def verify_task(
    task: TaskArgument,
    author: AuthorOption,
    max_epsilon: OptionalMaxEpsilonOption = None,
    max_delta: OptionalMaxDeltaOption = None,
    min_users: OptionalMinUsersOption = None,
    max_messages: OptionalMaxMessagesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a task as a device does: who signed it, and what its parameters really guarantee.

    Example: shuffledp task verify task.json --author author.key.pub --max-epsilon 1 --min-users 1000
    """
    from shuffledp.collection.device.policy import Policy

    verified = read_authentic(task, author)
    Policy(
        max_epsilon=verified.epsilon if max_epsilon is None else max_epsilon,
        max_delta=verified.delta if max_delta is None else max_delta,
        min_users=1 if min_users is None else min_users,
        max_messages=verified.max_messages_per_report if max_messages is None else max_messages,
        max_report_bytes=1 << 62,
        allow_augmented=True,
    ).check(verified)
    guarantee = verified.guarantee
    epsilon = guarantee.epsilon_at(verified.delta) if verified.delta > 0 else guarantee.pure_epsilon
    achieved = {"epsilon": epsilon, "delta": guarantee.delta_at(verified.epsilon)}
    if as_json:
        print_json(
            {
                "id": verified.id.hex(),
                "name": verified.name,
                "author": read_verifying_key(author).id,
                "claimed": {"epsilon": verified.epsilon, "delta": verified.delta},
                "recomputed": achieved,
                "guarantee": guarantee.to_json(),
            }
        )
        note_warnings(guarantee.warnings)
        return
    say(f"The key {read_verifying_key(author).id} signed the task {plain(verified.name)}, and its guarantee holds.")
    print_table(
        ["", "claimed", "recomputed"],
        [
            [f"epsilon, at delta = {verified.delta:g}", f"{verified.epsilon:.6g}", f"{achieved['epsilon']:.6g}"],
            [f"delta, at epsilon = {verified.epsilon:g}", f"{verified.delta:.4g}", f"{achieved['delta']:.4g}"],
        ],
    )
    say(guarantee.sentence())


def _show(task: Task, author: str, as_json: bool) -> None:
    from shuffledp.collection.wire.outer_suites import X25519_SUITE

    if as_json:
        warnings = list(_warnings(task))
        print_json(
            {
                "id": task.id.hex(),
                "author": author,
                "trust": task.protocol.trust,
                "dummies_per_round": task.protocol.mean_dummies,
                "task": task.to_document(),
                "warnings": warnings,
            }
        )
        note_warnings(warnings)
        return
    from shuffledp.collection.task.costs import sealing_time
    from shuffledp.collection.wire.formats import ReportFormat

    guarantee, dummies = task.protocol.guarantee, task.protocol.mean_dummies
    honest = "none of them needs to be" if guarantee.trust == "augmented" else f"{guarantee.honest_users:,} of them"
    local = guarantee.local_epsilon
    size = ReportFormat.of(task).size
    rows = [
        ("id", task.id.hex()),
        ("author's key", author),
        ("population", task.population),
        ("question", f"{task.protocol.question} {_domain(task.protocol.domain)}".strip()),
        ("protocol", f"{task.protocol.question}/{task.protocol.name}"),
        ("claim", f"epsilon = {task.epsilon:g}, delta = {task.delta:g}"),
        ("if colluding", f"epsilon = {local:.4g} remains" if math.isfinite(local) else "no guarantee"),
        ("users", f"{task.minimum_users:,} to {task.maximum_users:,}, {honest} honest"),
        ("open", f"{task.opens:%Y-%m-%d %H:%M:%S} to {task.closes:%Y-%m-%d %H:%M:%S} UTC"),
        ("report", f"{task.messages_per_report:,} messages, {size:,} bytes"),
        ("analyzer's key", task.analyzer.id),
        ("shuffler's key", task.shuffler.id),
    ]
    if task.wire is not None:
        hops = ", ".join(keys.sealing.id for keys in task.wire.shufflers)
        if task.hops > 1:
            rows += [("chain", " -> ".join(keys.signing.id for keys in task.wire.shufflers))]
        seal = "an outer seal" if task.wire.outer_suite is X25519_SUITE else "a hybrid outer seal (MLKEM768-X25519)"
        rows += [("wire version", f"2, with {seal}"), ("round key", hops)]
    roles, carriers = task.protocol.carrier_roles, task.carriers
    if roles is not None and carriers is not None:
        longer = f"{carriers.messages_per_report:,} messages, {ReportFormat.of(task).max_size:,} bytes"
        chance = f"with probability {float(roles.carrier_probability):.4g}"
        rows.append(("carriers", f"{chance}, {longer}; a round has at least {carriers.minimum:,}"))
    if guarantee.trust == "augmented":
        each_shuffler = "the shuffler" if task.hops == 1 else "each shuffler"
        rows += [
            ("trust", "augmented: the shuffler adds all noise, and learns the counts from the published estimate"),
            ("dummies", f"about {dummies:,.0f} per round, which take {each_shuffler} {sealing_time(dummies)} to seal"),
        ]
    say(plain(f"{task.name}: {task.description}" if task.description else task.name))
    print_list([(label, plain(content)) for label, content in rows])
    note_warnings(_warnings(task))
    if task.protocol.fragile:
        note(
            f"with {task.protocol.name} a device that violates the protocol can change the result arbitrarily; "
            "use it only if you control every device."
        )


def _warnings(task: Task) -> tuple[str, ...]:
    """Warnings about the claimed target, which ``task show`` does not verify."""
    return target_warnings(task.epsilon, task.delta, task.minimum_users)


def _domain(domain: Domain) -> str:
    match domain:
        case Interval(lower, upper, whole):
            return f"of {'integers' if whole else 'numbers'} from {lower:g} to {upper:g}"
        case Bins(lower, upper, bins):
            return f"of numbers from {lower:g} to {upper:g}, in {bins:,} bins"
        case Strings():
            return _described_strings(domain)
        case Numbered():
            return f"of {len(domain):,} categories, numbered"
        case Categories():
            names = [f'"{name}"' if "," in name else name for name in domain.names[:_SHOWN_NAMES]]
            more = ", ..." if len(domain) > _SHOWN_NAMES else ""
            return f"of {len(domain):,} categories: {', '.join(names)}{more}"
    return ""


def _described_strings(domain: Strings) -> str:
    """The strings of the domain, and what devices do with one before anything else."""
    steps = {"trimmed": domain.trim, "composed (NFC)": domain.nfc, "case-folded": domain.case_fold}
    done = [step for step, applied in steps.items() if applied]
    normalized = f", {' and '.join(done)}" if done else ""
    outside = "; others count as the empty string" if domain.other else ""
    return f"in {domain.description}{normalized}{outside}"
