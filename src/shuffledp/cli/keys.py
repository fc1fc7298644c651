"""``shuffledp keys``: create, show, rotate and destroy the keys of authors, shufflers and analyzers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shuffledp.cli.options import JsonOption, integer
from shuffledp.cli.screen import note, print_json, say
from shuffledp.cli.times import moment
from shuffledp.errors import DataError, OutputError, ParameterError
from shuffledp.output import check_writable, write_whole

keys_app = typer.Typer(help="The keys of authors, shufflers and analyzers.", no_args_is_help=True)


class Role(StrEnum):
    """Whose key it is."""

    author = "author"
    shuffler = "shuffler"
    analyzer = "analyzer"


class SuiteName(StrEnum):
    """What the outer seals of a round key are made of."""

    x25519 = "x25519"
    hybrid = "mlkem768-x25519"


_MAX_ROUNDS = 400
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="When the key expires: an ISO time with its zone, or 90d from now."),
]
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
    expires: ExpiresOption = None,
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
    fresh: SealingKey | SigningKey = SealingKey.create() if role is Role.analyzer else SigningKey.create()
    key = replace(fresh, expires=_expiry(expires))
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
        typer.Option("--out", metavar="DIR", help="The server's directory round_keys: one private KEYID.key each."),
    ],
    public: Annotated[
        Path,
        typer.Option("--public", metavar="DIR", help="A directory for the public parts, KEYID.pub, for task create."),
    ],
    suite: Annotated[
        SuiteName,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="x25519, or for shufflers mlkem768-x25519, which also withstands quantum computers; not in browsers.",
        ),
    ] = SuiteName.x25519,
    expires: ExpiresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create round keys, one for each round: reports of wire version 2 are sealed to the key of their round.

    The shuffler destroys a private key once its round is mixed, the analyzer after the release. Keep the directory on
    an encrypted volume, without backups.

    Example: shuffledp keys schedule --rounds 12 --out round-keys --public public
    """
    from shuffledp.collection.wire.keys import HybridKey, RoundKey, SealingKey
    from shuffledp.durable_files import create_directory

    if not 1 <= rounds <= _MAX_ROUNDS:
        raise ParameterError(f"A schedule has 1 to {_MAX_ROUNDS} rounds, not {rounds:,}.")
    expiry = _expiry(expires)
    if out.resolve() == public.resolve():
        raise ParameterError("--out and --public must be different directories: only the public one is passed on.")
    for directory, mode in ((out, 0o700), (public, 0o755)):
        try:
            create_directory(directory, mode=mode)
        except OSError as error:
            raise OutputError(f"Cannot create the directory {directory}: {error.strerror or error}.") from None
    kind: type[RoundKey] = HybridKey if suite is SuiteName.hybrid else SealingKey
    fresh = [replace(kind.create(), expires=expiry) for _ in range(rounds)]
    keys = sorted(fresh, key=lambda key: key.public.id)  # the order in which series create takes the files
    ids = [key.public.id for key in keys]
    try:
        for key in keys:
            key.save(out / f"{key.public.id}.key")
            key.public.save(public / f"{key.public.id}.pub")
    except OutputError:
        for key_id in ids:
            (out / f"{key_id}.key").unlink(missing_ok=True)
            (public / f"{key_id}.pub").unlink(missing_ok=True)
        raise
    if as_json:
        print_json({"directory": str(out), "public": str(public), "keys": ids})
        return
    say("1 round key:" if rounds == 1 else f"{rounds:,} round keys, in the order of the rounds:")
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
    if public.expires is not None:
        over = "expired" if public.expires <= datetime.now(UTC) else "expires"
        say(f"It {over} at {_shown(public)['expires']}.")


@keys_app.command("rotate")
def rotate_key(
    old: Annotated[Path, typer.Option("--old", metavar="KEY", help="The author's present private key.")],
    new: Annotated[Path, typer.Option("--new", metavar="KEY", help="The private key that follows it.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the signed rotation.")],
    as_json: JsonOption = False,
) -> None:
    """Name the successor of an author's key, in a document that both keys sign.

    Devices that trust the old key then trust both (shuffledp report --rotation FILE), and servers that find the
    document in their directory of tasks do so, too.

    Example: shuffledp keys rotate --old author.key --new author-2028.key --out rotation.json
    """
    from shuffledp.cli.task_files import read_signing_key
    from shuffledp.collection.task.key_documents import sign_rotation

    if check_writable(out).exists():
        raise OutputError(f"{out} exists; a rotation never overwrites a file, which may be a key. Name another.")
    keys = read_signing_key(old), read_signing_key(new)
    write_whole(out, sign_rotation(*keys) + b"\n")
    if as_json:
        print_json({"old": _shown(keys[0].public), "new": _shown(keys[1].public), "file": str(out)})
    else:
        say(f"The key {keys[1].public.id} follows the author's key {keys[0].public.id}.")
    note(f"wrote {out}")


@keys_app.command("destroy")
def destroy_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of a private key.")],
    signing_key: Annotated[
        Path | None,
        typer.Option("--signing-key", metavar="KEY", help="The private key that signs the record; needs --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RECORD", help="Where to write the signed record.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Overwrite and delete the file of a private key, and sign a record of that.

    The record is a claim, not a proof: copies in backups, snapshots or on flash storage are not erased.

    Example: shuffledp keys destroy round-keys/0123456789abcdef.key --signing-key shuffler.key --out record.json
    """
    from shuffledp.cli.task_files import read_signing_key
    from shuffledp.collection.server.round_keys import destroy_file
    from shuffledp.collection.task.key_documents import Destruction
    from shuffledp.collection.wire.keys import MAX_KEY_BYTES, SigningKey, round_key_of
    from shuffledp.durable_files import read_limited

    if (signing_key is None) != (out is None):
        raise ParameterError("A signed record needs both --signing-key and --out.")
    if out is not None and check_writable(out).exists():
        raise OutputError(f"{out} exists; a record never overwrites a file, which may be a key. Name another.")
    public = _public(file)
    read = SigningKey.from_content if public.kind == "signing" else round_key_of
    read(read_limited(file, MAX_KEY_BYTES, "key"), str(file))  # refuses public keys, damaged files
    record = Destruction(public, datetime.now(UTC).replace(microsecond=0))
    signed = None if signing_key is None else record.signed(read_signing_key(signing_key))
    try:
        destroy_file(file)
    except OSError as error:
        raise OutputError(f"Cannot destroy {file}: {error.strerror or error}.", path=str(file)) from None
    if signed is not None and out is not None:
        write_whole(out, signed + b"\n")
        note(f"wrote {out}")
    if as_json:
        print_json({**_shown(public), "destroyed": str(file), "record": None if out is None else str(out)})
        return
    say(f"The {public.kind} key {public.id} was overwritten and deleted: {file}.")
    note("copies in backups, snapshots or on flash storage are not erased.")


def _expiry(expires: str | None) -> datetime | None:
    """The expiry of a new key."""
    if expires is None:
        return None
    expiry = moment(expires)
    if expiry <= datetime.now(UTC):
        raise ParameterError(f"The key would have expired: --expires is {expiry:%Y-%m-%d %H:%M:%S} UTC.")
    return expiry


def _public(file: Path) -> Any:
    """The public part of a key of either kind."""
    from shuffledp.collection.wire.keys import HybridPublicKey, SealingPublicKey, VerifyingKey

    reason = ""
    for kind in (VerifyingKey, SealingPublicKey, HybridPublicKey):
        try:
            return kind.load(file, of_private=True)
        except ParameterError as error:
            reason = reason or str(error)
    raise DataError(f"{file} is not a key file: {reason}", path=str(file))


def _shown(public: Any) -> dict[str, Any]:
    document: dict[str, Any] = public.to_file_document()
    return document
