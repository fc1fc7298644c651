"""``shuffledp task``: what is asked of whom, signed; shown, and verified as a device would."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shuffledp.cli.options import (
    DeltaOption,
    EpsilonOption,
    HonestFractionOption,
    JsonOption,
    WholeOption,
    number,
    whole_number,
)
from shuffledp.cli.screen import note, note_warnings, plain, print_json, print_list, print_table, say, waiting
from shuffledp.cli.tasks import (
    AuthorOption,
    MaxDeltaOption,
    MaxEpsilonOption,
    MaxMessagesOption,
    MinUsersOption,
    read_authentic,
    read_sealing_key,
    read_signing_key,
    read_task,
    read_verifying_key,
)
from shuffledp.cli.times import moment
from shuffledp.errors import OutputError, ParameterError
from shuffledp.output import check_writable, write_whole
from shuffledp.privacy.guarantee import target_warnings

if TYPE_CHECKING:
    from shuffledp.collection.task.task import Task

__all__ = ["AskedOf", "create_task", "show_task", "task_app", "verify_task"]

_SHOWN_NAMES = 12

task_app = typer.Typer(help="What is asked of whom: create, show and verify signed tasks.", no_args_is_help=True)

TaskArgument = Annotated[Path, typer.Argument(metavar="TASK", help="A file with a signed task.")]


class AskedOf(StrEnum):
    """What is asked of the users."""

    COUNT = "count"
    HISTOGRAM = "histogram"
    SUM = "sum"


@task_app.command("create")
def create_task(
    question: Annotated[AskedOf, typer.Argument(metavar="QUESTION", help="count, histogram or sum.")],
    name: Annotated[str, typer.Option("--name", help="What people call it.")],
    population: Annotated[
        str, typer.Option("--population", metavar="NAME", help="Whose privacy is spent; releases over it add up.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    users: Annotated[
        int,
        typer.Option("--users", parser=whole_number, metavar="N", help="Fewer reports are destroyed, not released."),
    ],
    closes: Annotated[
        str, typer.Option("--closes", metavar="TIME", help="An ISO time with its zone, or 30m, 2h, 7d after opening.")
    ],
    author: Annotated[Path, typer.Option("--author", metavar="KEY", help="The author's private key, which signs.")],
    analyzer: Annotated[
        Path,
        typer.Option("--analyzer", metavar="KEY.pub", help="The analyzer's public key: messages are sealed to it."),
    ],
    shuffler: Annotated[
        Path, typer.Option("--shuffler", metavar="KEY.pub", help="The shuffler's public key: batches are signed by it.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the signed task.")],
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="What is asked, for the people who answer.")
    ] = "",
    opens: Annotated[
        str, typer.Option("--opens", metavar="TIME", help="now, an ISO time with its zone, or 30m, 2h, 7d from now.")
    ] = "now",
    max_users: Annotated[
        int | None,
        typer.Option(
            "--max-users", parser=whole_number, metavar="N", help="The round is full with so many; 10 times --users."
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="NAME", help="By name, or best: the least error within --max-messages.")
    ] = "best",
    max_messages: Annotated[
        int,
        typer.Option(
            "--max-messages",
            parser=whole_number,
            metavar="M",
            help="Most messages of a report, with the dummies that hide how many there are.",
        ),
    ] = 100,
    honest_fraction: HonestFractionOption = 1.0,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="A,B,C", help="Categories of a histogram, separated by commas.")
    ] = None,
    domain_file: Annotated[
        Path | None, typer.Option("--domain-file", metavar="FILE", help="Categories of a histogram, one a line.")
    ] = None,
    domain_size: Annotated[
        int | None,
        typer.Option("--domain-size", parser=whole_number, metavar="D", help="Or only their number: 0, 1, ..."),
    ] = None,
    lower: Annotated[
        float | None, typer.Option("--lower", parser=number, metavar="L", help="Lower bound of a sum.")
    ] = None,
    upper: Annotated[
        float | None, typer.Option("--upper", parser=number, metavar="U", help="Upper bound of a sum.")
    ] = None,
    whole: WholeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Choose a protocol, calibrate its noise, and sign the result for devices to verify.

    Example: shuffledp task create histogram --name Commuting --population city --domain bus,bike,car
    --epsilon 1 --delta 1e-8 --users 1000 --closes 2h --author author.key --analyzer analyzer.key.pub
    --shuffler shuffler.key.pub --out task.json
    """
    from shuffledp.cli.task_choice import chosen_task, question_of

    if check_writable(out).exists():
        raise OutputError(f"{out} exists; a task never overwrites a file, which may be a key. Name another.")
    asked = question_of(
        question.value, users, domain=domain, domain_file=domain_file, size=domain_size, bounds=(lower, upper, whole)
    )
    signing = read_signing_key(author)
    start = moment(opens)
    end = moment(closes, after=start)
    if end <= datetime.now(UTC):
        raise ParameterError(f"The round would be over: it closes at {end:%Y-%m-%d %H:%M:%S} UTC.")
    with waiting("Trying every protocol"):
        task = chosen_task(
            asked,
            protocol,
            max_messages=max_messages,
            honest_fraction=honest_fraction,
            epsilon=epsilon,
            delta=delta,
            maximum_users=10 * users if max_users is None else max_users,
            name=name,
            description=description,
            population=population,
            opens=start,
            closes=end,
            analyzer=read_sealing_key(analyzer),
            shuffler=read_verifying_key(shuffler),
        )
    signed = task.signed(signing)
    write_whole(out, signed.to_bytes() + b"\n")
    _show(task, signed.author, as_json)
    note(f"wrote {out}")


@task_app.command("show")
def show_task(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Show what a task says. Whether that is true is for ``task verify`` to find out.

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
    max_epsilon: MaxEpsilonOption = None,
    max_delta: MaxDeltaOption = None,
    min_users: MinUsersOption = None,
    max_messages: MaxMessagesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a task as a device does: who signed it, and what its parameters really guarantee.

    Example: shuffledp task verify task.json --author author.key.pub --max-epsilon 1 --min-users 1000
    """
    from shuffledp.collection.device.policy import Policy

    found = read_authentic(task, author)
    Policy(
        max_epsilon=found.epsilon if max_epsilon is None else max_epsilon,
        max_delta=found.delta if max_delta is None else max_delta,
        min_users=1 if min_users is None else min_users,
        max_messages=found.messages_per_report if max_messages is None else max_messages,
        max_report_bytes=1 << 62,
    ).check(found)
    guarantee = found.guarantee
    achieved = {"epsilon": guarantee.epsilon_at(found.delta), "delta": guarantee.delta_at(found.epsilon)}
    if as_json:
        print_json(
            {
                "id": found.id.hex(),
                "name": found.name,
                "author": read_verifying_key(author).id,
                "claimed": {"epsilon": found.epsilon, "delta": found.delta},
                "recomputed": achieved,
                "guarantee": guarantee.to_json(),
            }
        )
        note_warnings(guarantee.warnings)
        return
    say(f"The key {read_verifying_key(author).id} signed the task {plain(found.name)}, and it holds what it claims.")
    print_table(
        ["", "claimed", "recomputed"],
        [
            [f"epsilon, at delta = {found.delta:g}", f"{found.epsilon:.6g}", f"{achieved['epsilon']:.6g}"],
            [f"delta, at epsilon = {found.epsilon:g}", f"{found.delta:.4g}", f"{achieved['delta']:.4g}"],
        ],
    )
    say(guarantee.sentence())


def _show(task: Task, author: str, as_json: bool) -> None:
    if as_json:
        warnings = list(_warnings(task))
        print_json({"id": task.id.hex(), "author": author, "task": task.to_document(), "warnings": warnings})
        note_warnings(warnings)
        return
    from shuffledp.collection.wire.formats import ReportFormat

    guarantee = task.protocol.guarantee
    left = f"epsilon {guarantee.local_epsilon:.4g}" if math.isfinite(guarantee.local_epsilon) else "nothing"
    size = ReportFormat.of(task).size
    rows = [
        ("id", task.id.hex()),
        ("author's key", author),
        ("population", task.population),
        ("question", f"{task.protocol.question} {_domain(task.protocol)}".strip()),
        ("protocol", f"{task.protocol.question}/{task.protocol.name}"),
        ("claim", f"epsilon = {task.epsilon:g}, delta = {task.delta:g}"),
        ("if colluding", f"{left} is left"),
        ("users", f"{task.minimum_users:,} to {task.maximum_users:,}, {guarantee.honest_users:,} of them honest"),
        ("open", f"{task.opens:%Y-%m-%d %H:%M:%S} to {task.closes:%Y-%m-%d %H:%M:%S} UTC"),
        ("report", f"{task.messages_per_report:,} messages, {size:,} bytes"),
        ("analyzer's key", task.analyzer.id),
        ("shuffler's key", task.shuffler.id),
    ]
    say(plain(f"{task.name}: {task.description}" if task.description else task.name))
    print_list([(label, plain(content)) for label, content in rows])
    note_warnings(_warnings(task))
    if task.protocol.fragile:
        note(
            f"with {task.protocol.name} one device that breaks the rules moves the result anywhere; "
            "use it only where every device is yours."
        )


def _warnings(task: Task) -> tuple[str, ...]:
    """About what is claimed, which ``task show`` does not check."""
    return target_warnings(task.epsilon, task.delta, task.minimum_users)


def _domain(protocol: Any) -> str:
    if protocol.question == "sum":
        interval = protocol.domain
        return f"of {'whole ' if interval.whole else ''}numbers from {interval.lower:g} to {interval.upper:g}"
    if protocol.question == "count":
        return ""
    if protocol.categories is None:
        return f"of {protocol.domain_size:,} categories, numbered"
    names = [f'"{each}"' if "," in each else each for each in protocol.categories.names[:_SHOWN_NAMES]]
    more = ", ..." if protocol.domain_size > _SHOWN_NAMES else ""
    return f"of {protocol.domain_size:,} categories: {', '.join(names)}{more}"
