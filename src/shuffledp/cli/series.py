"""``shuffledp series``: create, show, verify and cancel series of rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shuffledp.cli.options import AuthorOption, JsonOption, integer, number, takes_groups
from shuffledp.cli.screen import note, plain, print_json, print_list, say, waiting
from shuffledp.cli.task import (
    DomainOptions,
    NextShufflerOption,
    ProtocolOptions,
    QuestionName,
    TrapsOption,
    choose_task,
    question_of,
)
from shuffledp.cli.task_files import errors_in, read_round_key, read_sealing_key, read_signing_key, read_verifying_key
from shuffledp.cli.times import moment, seconds_of
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable, write_whole

if TYPE_CHECKING:
    from shuffledp.collection.task.series import Series
    from shuffledp.collection.wire.keys import RoundPublicKey

    _Key = TypeVar("_Key", bound=RoundPublicKey)

series_app = typer.Typer(help="Series of rounds: create, show, verify and cancel them.", no_args_is_help=True)

SeriesArgument = Annotated[Path, typer.Argument(metavar="SERIES", help="A file with a signed series.")]


@dataclass(frozen=True, kw_only=True)
class SeriesOptions:
    """How the rounds are described, when they are open, and for how many users."""

    name: Annotated[str, typer.Option("--name", help="Name of the task of every round, shown to people.")]
    population: Annotated[
        str, typer.Option("--population", metavar="NAME", help="Who is asked; releases about them share a budget.")
    ]
    rounds: Annotated[int, typer.Option("--rounds", parser=integer, metavar="N", help="Number of rounds, at most 400.")]
    rounds_per_device: Annotated[
        int,
        typer.Option(
            "--rounds-per-device", parser=integer, metavar="R", help="How many rounds one device takes part in at most."
        ),
    ]
    period: Annotated[str, typer.Option("--period", metavar="TIME", help="From one opening to the next: 1d, 7d, 4w.")]
    open_for: Annotated[str, typer.Option("--open-for", metavar="TIME", help="How long each round is open: 6d, 12h.")]
    first_opens: Annotated[
        str,
        typer.Option("--first-opens", metavar="TIME", help="now, an ISO time with its zone, or 2h, 7d from now."),
    ] = "now"
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="What is asked, for the people who answer.")
    ] = ""
    max_users: Annotated[
        int | None,
        typer.Option(
            "--max-users",
            parser=integer,
            metavar="N",
            help="Maximum number of reports of a round; by default 10 times --users.",
        ),
    ] = None
    replaces: Annotated[
        Path | None, typer.Option("--replaces", metavar="SERIES", help="A cancelled series that this one continues.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SeriesKeyOptions:
    """The keys of the three parties, one of each server for every round."""

    author: Annotated[Path, typer.Option("--author", metavar="KEY", help="The author's private key, which signs.")]
    shuffler: Annotated[
        Path, typer.Option("--shuffler", metavar="KEY.pub", help="The shuffler's public key: batches are signed by it.")
    ]
    analyzer_keys: Annotated[
        Path,
        typer.Option("--analyzer-keys", metavar="DIR", help="The analyzer's public round keys: one KEYID.pub a round."),
    ]
    shuffler_keys: Annotated[
        Path,
        typer.Option("--shuffler-keys", metavar="DIR", help="The shuffler's public round keys: one KEYID.pub a round."),
    ]
    next_shuffler: NextShufflerOption = None
    next_shuffler_keys: Annotated[
        list[Path] | None,
        typer.Option(
            "--next-shuffler-keys",
            metavar="DIR",
            help="Public round keys of a further shuffler, in the same order.",
        ),
    ] = None
    traps: TrapsOption = 0


@series_app.command("create")
@takes_groups
def create_series(
    question: Annotated[
        QuestionName, typer.Argument(metavar="QUESTION", help="count, histogram, sum, quantiles or strings.")
    ],
    protocol: ProtocolOptions,
    options: SeriesOptions,
    keys: SeriesKeyOptions,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the signed series.")],
    domain: DomainOptions,
    as_json: JsonOption = False,
) -> None:
    """Choose a protocol, calibrate its noise, and sign all rounds at once for devices and servers to derive.

    Example: shuffledp series create histogram --name Commuting --population city --domain bus,bike,car
    --epsilon 1 --delta 1e-8 --users 1000 --rounds 52 --rounds-per-device 4 --period 7d --open-for 6d
    --author author.key --shuffler shuffler.key.pub --analyzer-keys analyzer-public --shuffler-keys shuffler-public
    --out series.json
    """
    from shuffledp.collection.task.series import RoundKeys, Series, authentic_series
    from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2

    if check_writable(out).exists():
        raise OutputError(f"{out} exists; a series never overwrites a file, which may be a key. Name another.")
    chosen = question_of(question.value, protocol.users, domain)
    signing, further, further_keys = read_signing_key(keys.author), keys.next_shuffler, keys.next_shuffler_keys
    signing.check_unexpired()
    if len(further or ()) != len(further_keys or ()):
        raise ParameterError("Every shuffler of a chain needs its key and its round keys: give both for each.")
    shufflers = [read_verifying_key(file) for file in (keys.shuffler, *(further or ()))]
    analyzers = _round_keys(keys.analyzer_keys, options.rounds, read_sealing_key)
    hops = [_round_keys(path, options.rounds, read_round_key) for path in (keys.shuffler_keys, *(further_keys or ()))]
    round_keys = tuple(RoundKeys(key, each) for key, each in zip(analyzers, zip(*hops, strict=True), strict=True))
    first_keys = tuple(ShufflerKeys(key, each[0]) for key, each in zip(shufflers, hops, strict=True))
    opens, closes = _first_round(options)
    with waiting("Trying every protocol"):
        first = choose_task(
            chosen,
            protocol,
            maximum_users=10 * protocol.users if options.max_users is None else options.max_users,
            name=options.name,
            description=options.description,
            population=options.population,
            opens=opens,
            closes=closes,
            analyzer=analyzers[0],
            shuffler=shufflers[-1],
            wire=WireVersion2(first_keys, traps=keys.traps),
        )
    replaced = None if options.replaces is None else read_series(options.replaces)[0]
    series = Series(
        first,
        int(seconds_of(options.period)),
        round_keys,
        options.rounds_per_device,
        None if replaced is None else replaced.id,
    )
    if replaced is not None and {key.raw for keys in replaced.keys for key in keys.all} & {
        key.raw for keys in round_keys for key in keys.all
    }:
        raise ParameterError(
            f"A round key is one of {options.replaces}, and servers destroy the keys of cancelled rounds; create new "
            "ones with shuffledp keys schedule."
        )
    signed = series.signed(signing)
    authentic_series(signed, signing.public)  # refuses a key that expires before the last round
    write_whole(out, signed + b"\n")
    _show(series, signing.public.id, as_json)
    note(f"wrote {out}")


def _first_round(options: SeriesOptions) -> tuple[datetime, datetime]:
    """When the first round opens and closes; refused if the last one would be over."""
    opens = moment(options.first_opens)
    seconds, period = seconds_of(options.open_for), seconds_of(options.period)
    try:
        closes = opens + timedelta(seconds=seconds)
        end = closes + (options.rounds - 1) * timedelta(seconds=period)
    except OverflowError:
        raise ParameterError("The rounds of the series would end after the year 9999.") from None
    if end <= datetime.now(UTC):
        raise ParameterError(f"The series would be over: its last round closes at {end:%Y-%m-%d %H:%M:%S} UTC.")
    return opens, closes


def _round_keys(directory: Path, rounds: int, read: Callable[[Path], _Key]) -> Sequence[_Key]:
    """The public keys of a directory, exactly one for every round."""
    if not 1 <= rounds <= 400:
        raise ParameterError(f"A series has 1 to 400 rounds, not {rounds:,}.")
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix == ".pub")
    except OSError as error:
        raise DataError(f"Cannot read the directory {directory}: {error.strerror or error}.") from None
    if len(files) != rounds:
        raise ParameterError(
            f"{directory} has {len(files):,} public keys, and {rounds:,} rounds need one each; create them with "
            "shuffledp keys schedule, in a directory of their own."
        )
    return [replace(read(file), expires=None) for file in files]


@series_app.command("show")
def show_series(series: SeriesArgument, as_json: JsonOption = False) -> None:
    """Show a series without checking its signature or its guarantee; ``series verify`` checks them.

    Example: shuffledp series show series.json
    """
    read, author = read_series(series)
    _show(read, author, as_json)
    if not as_json:
        note("the signature was not checked; series verify does.")


@series_app.command("verify")
def verify_series(
    series: SeriesArgument,
    author: AuthorOption,
    cancellation: Annotated[
        Path | None,
        typer.Option("--cancellation", metavar="FILE", help="A cancellation of the series, to be verified as well."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", parser=number, metavar="D", help="Delta of the total of a device; by default R times a round's."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a series as devices and servers do: who signed it, and what R rounds of a device guarantee together.

    Example: shuffledp series verify series.json --author author.key.pub
    """
    from shuffledp.collection.task.series import authentic_cancellation, authentic_series
    from shuffledp.privacy.composition import compose
    from shuffledp.privacy.guarantee import least_epsilon

    key = read_verifying_key(author)
    with errors_in(series):
        verified = authentic_series(_content(series), key)
    cancelled_from = None
    if cancellation is not None:
        with errors_in(cancellation):
            cancelled = authentic_cancellation(_content(cancellation), key)
            if cancelled.series != verified.id:
                raise ParameterError("The cancellation is about another series.")
        cancelled_from = cancelled.from_round
    rounds = min(verified.rounds_per_device, len(verified.keys) if cancelled_from is None else cancelled_from)
    task = verified.first
    delta = rounds * task.delta if delta is None else delta
    if not 0 <= delta < 1:
        raise ParameterError(f"--delta must be from 0 to below 1, not {delta:g}.")
    with waiting("Composing the rounds of a device"):
        total = least_epsilon(compose(task.guarantee.curve, rounds), delta) if rounds else 0.0
    if as_json:
        print_json(
            {
                "id": verified.id.hex(),
                "author": key.id,
                "rounds": len(verified.keys),
                "rounds_per_device": verified.rounds_per_device,
                "cancelled_from": cancelled_from,
                "per_round": {"epsilon": task.epsilon, "delta": task.delta},
                "per_device": {"rounds": rounds, "epsilon": _finite(total), "delta": delta},
            }
        )
        return
    say(f"The key {key.id} signed the series {plain(task.name)}, and its guarantee holds.")
    say(
        f"A device takes part in at most {rounds:,} of {len(verified.keys):,} rounds, each with epsilon = "
        f"{task.epsilon:g} and delta = {task.delta:g}: together epsilon = {total:.4g} at delta = {delta:g}."
    )
    if cancelled_from is not None:
        say(f"It is cancelled from round {cancelled_from} on.")


@series_app.command("cancel")
def cancel_series(
    series: SeriesArgument,
    author: Annotated[
        Path, typer.Option("--author", metavar="KEY", help="The private key of the author, or its successor.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people; it is public.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the signed cancellation.")],
    from_round: Annotated[
        int | None,
        typer.Option(
            "--from-round",
            parser=integer,
            metavar="I",
            help="The first round, numbered from 0, that does not take place; by default the next one.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """End a series before its last round. Put the document into the task directories of both servers.

    Example: shuffledp series cancel series.json --author author.key --reason "A new question." --out cancel.json
    """
    from shuffledp.collection.task.series import Cancellation

    if check_writable(out).exists():
        raise OutputError(f"{out} exists; a cancellation never overwrites a file, which may be a key. Name another.")
    read, author_id = read_series(series)
    rounds = len(read.keys)
    if from_round is None:
        elapsed = (datetime.now(UTC) - read.first.opens) // timedelta(seconds=read.period)
        from_round = max(0, elapsed + 1)
    if not 0 <= from_round < rounds:
        raise ParameterError(f"The series has {rounds:,} rounds, numbered from 0; round {from_round:,} is not one.")
    signing = read_signing_key(author)
    write_whole(out, Cancellation(read.id, from_round, reason).signed(signing) + b"\n")
    if as_json:
        print_json({"series": read.id.hex(), "from_round": from_round, "rounds": rounds, "file": str(out)})
    else:
        say(f"The rounds from {from_round} to {rounds - 1} of the series {plain(read.first.name)} do not take place.")
    note(f"wrote {out}")
    if signing.public.id != author_id:
        note(
            f"the key {plain(author_id)} signed the series, not {signing.public.id}: the cancellation counts only "
            "where the latter is known as its successor (keys rotate)."
        )


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _content(path: Path) -> bytes:
    from shuffledp.collection.task.series import MAX_SERIES_BYTES
    from shuffledp.durable_files import read_limited

    return read_limited(path, MAX_SERIES_BYTES, "series")


def read_series(path: Path) -> tuple[Series, str]:
    """A signed series without verification of its signature, and the id of the key that is said to have signed it."""
    from shuffledp.collection.task.canonical import parse_canonical
    from shuffledp.collection.task.series import MAX_SERIES_BYTES, Series
    from shuffledp.collection.task.signed_documents import refusing

    content = _content(path).removesuffix(b"\n")
    with errors_in(path), refusing("malformed", "series"):
        envelope = parse_canonical(content, max_bytes=MAX_SERIES_BYTES)
        if not isinstance(envelope, dict) or set(envelope) != {"series", "author", "signature"}:
            raise ParameterError("A signed series must have the keys series, author and signature.")
        return Series.from_document(envelope["series"]), str(envelope["author"])


def _show(series: Series, author: str, as_json: bool) -> None:
    first, last = series.task(0), series.task(len(series.keys) - 1)
    if as_json:
        document: dict[str, Any] = series.to_document()
        tasks = [series.task(index).id.hex() for index in range(len(series.keys))]
        print_json({"id": series.id.hex(), "author": author, "series": document, "tasks": tasks})
        return
    say(plain(f"{first.name}: {first.description}" if first.description else first.name))
    rows = [
        ("id", series.id.hex()),
        ("author's key", author),
        ("population", first.population),
        ("protocol", f"{first.protocol.question}/{first.protocol.name}"),
        ("claim of a round", f"epsilon = {first.epsilon:g}, delta = {first.delta:g}"),
        ("rounds", f"{len(series.keys):,}, of which a device takes part in {series.rounds_per_device:,}"),
        ("users of a round", f"{first.minimum_users:,} to {first.maximum_users:,}"),
        ("first round", f"{first.opens:%Y-%m-%d %H:%M:%S} to {first.closes:%Y-%m-%d %H:%M:%S} UTC"),
        ("last round", f"{last.opens:%Y-%m-%d %H:%M:%S} to {last.closes:%Y-%m-%d %H:%M:%S} UTC"),
        ("shuffler's key", " -> ".join(first.verifying_key(hop).id for hop in range(first.hops))),
    ]
    if series.replaces is not None:
        rows.append(("replaces", series.replaces.hex()))
    index = series.round_at(datetime.now(UTC))
    rows.append(("open now", "no round" if index is None else f"round {index}: {series.task(index).id.hex()}"))
    print_list([(label, plain(content)) for label, content in rows])
