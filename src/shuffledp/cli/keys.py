"""``shuffledp keys``: create and show the keys of authors, shufflers and analyzers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import JsonOption, integer
from shuffledp.cli.screen import note, print_json, say
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable

keys_app = typer.Typer(help="The keys of authors, shufflers and analyzers.", no_args_is_help=True)


class Role(StrEnum):
    """Whose key it is."""

    author = "author"
    shuffler = "shuffler"
    analyzer = "analyzer"


_MAX_ROUNDS = 400
_USES = {
    Role.author: "signs tasks; devices pin the public part",
    Role.shuffler: "signs batches; tasks name the public part",
    Role.analyzer: "opens messages; tasks name the public part",
}


@keys_app.command("create")
def create_key(
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="author, shuffler or analyzer.")],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="A new file for the private key; FILE.pub gets the public one."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Create a key: the private part in a file that only you can read, the public part beside it.

    Example: shuffledp keys create author --out author.key
    """
    from shuffledp.collection.wire.keys import SealingKey, SigningKey

    check_writable(out)
    public_file = out.with_name(f"{out.name}.pub")
    for path in (out, public_file):
        if path.exists():
            raise OutputError(f"{path} exists; a key is never overwritten. Name another file.", path=str(path))
    key: SealingKey | SigningKey = SealingKey.create() if role is Role.analyzer else SigningKey.create()
    key.save(out)
    try:
        key.public.save(public_file)
    except OutputError:
        out.unlink()
        raise
    if as_json:
        print_json({"role": role.value, **_shown(key.public), "private_file": str(out), "file": str(public_file)})
        return
    say(f"The {role.value}'s key {key.public.id} {_USES[role]}.")
    note(f"wrote {out} (keep it secret) and {public_file}")


@keys_app.command("schedule")
def schedule_keys(
    rounds: Annotated[int, typer.Option("--rounds", parser=integer, metavar="N", help="Number of rounds.")],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="The shuffler's directory round_keys: one private KEYID.key each."),
    ],
    public: Annotated[
        Path,
        typer.Option("--public", metavar="DIR", help="A directory for the public parts, KEYID.pub, for task create."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Create round keys, one for each round: reports of wire version 2 are sealed to the key of their round.

    The shuffler destroys a private key once its round is mixed. Keep the directory on an encrypted volume, without
    backups.

    Example: shuffledp keys schedule --rounds 12 --out round-keys --public public
    """
    from shuffledp.collection.wire.keys import SealingKey
    from shuffledp.durable_files import create_directory

    if not 1 <= rounds <= _MAX_ROUNDS:
        raise ParameterError(f"A schedule has 1 to {_MAX_ROUNDS} rounds, not {rounds:,}.")
    for directory, mode in ((out, 0o700), (public, 0o755)):
        try:
            create_directory(directory, mode=mode)
        except OSError as error:
            raise OutputError(f"Cannot create the directory {directory}: {error.strerror or error}.") from None
    ids = []
    for _ in range(rounds):
        key = SealingKey.create()
        key.save(out / f"{key.public.id}.key")
        key.public.save(public / f"{key.public.id}.pub")
        ids.append(key.public.id)
    if as_json:
        print_json({"directory": str(out), "public": str(public), "keys": ids})
        return
    say(f"{rounds:,} round keys, in the order of the rounds:")
    for key_id in ids:
        say(key_id)
    note(f"wrote {out} (keep it secret, and out of backups) and {public}")


@keys_app.command("show")
def show_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A public or a private key.")],
    as_json: JsonOption = False,
) -> None:
    """Show the public part of a key; the private part is never shown.

    Example: shuffledp keys show author.key.pub
    """
    public = _public(file)
    if as_json:
        print_json(_shown(public))
        return
    use = "checks signatures" if public.kind == "signing" else "seals messages"
    say(f"The {public.kind} key {public.id}; its public part {use}:")
    say(_shown(public)["public"])


def _public(file: Path) -> Any:
    """The public part of a key of either kind."""
    from shuffledp.collection.wire.keys import SealingPublicKey, VerifyingKey

    reason = ""
    for kind in (VerifyingKey, SealingPublicKey):
        try:
            return kind.load(file, of_private=True)
        except ParameterError as error:
            reason = reason or str(error)
    raise DataError(f"{file} is not a key file: {reason}", path=str(file))


def _shown(public: Any) -> dict[str, Any]:
    document: dict[str, Any] = public.to_document()
    return document
