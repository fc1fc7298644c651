"""The life of keys: expiry, rotation, destruction, and keys from a command."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shuffledp.collection.server import round_keys
from shuffledp.collection.server.round_keys import KeylessError, RoundKeyDirectory, destroy_file
from shuffledp.collection.server.running import prevent_core_dumps
from shuffledp.collection.task import key_documents
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.key_documents import (
    Destruction,
    Rotation,
    authentic_destruction,
    authentic_rotation,
    sign_rotation,
)
from shuffledp.collection.task.trusted_authors import TrustedAuthors
from shuffledp.collection.wire.key_command import KeyReader
from shuffledp.collection.wire.keys import ExpiredKeyError, SealingKey, SigningKey, VerifyingKey, to_base64
from shuffledp.errors import DataError, ParameterError

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)


def reason(function, *arguments):
    with pytest.raises(ParameterError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return caught.value.values["reason"]


@pytest.mark.parametrize("kind", [SigningKey, SealingKey])
def test_expiry_is_in_both_files_and_not_in_documents(kind, tmp_path):
    key = replace(kind.create(), expires=NOW + HOUR)
    key.save(tmp_path / "k")
    key.public.save(tmp_path / "k.pub")
    assert kind.load(tmp_path / "k").expires == type(key.public).load(tmp_path / "k.pub").expires == NOW + HOUR
    assert "expires" not in key.public.to_document()
    assert key.public == replace(key, expires=None).public  # the same key, with or without its expiry


@pytest.mark.parametrize("expires", ["2027-01-01", 7, None, "2027-13-01T00:00:00Z", "2027-01-01T00:00:00+00:00"])
def test_a_file_with_a_bad_expiry_is_refused(expires, tmp_path):
    key = SigningKey.create()
    document = {**key.public.to_document(), "private": to_base64(key.secret), "expires": expires}
    (tmp_path / "k").write_text(json.dumps(document))
    (tmp_path / "k").chmod(0o600)
    with pytest.raises(DataError, match="expires must be a time"):
        SigningKey.load(tmp_path / "k")


def test_an_expired_key_signs_nothing():
    fresh, expired = (replace(SigningKey.create(), expires=NOW + sign * HOUR) for sign in (1, -1))
    fresh.public.verify(fresh.sign(b"content"), b"content")
    with pytest.raises(ExpiredKeyError, match=f"{expired.public.id} expired at .*use a current key, or correct"):
        expired.sign(b"content")


def test_rotation():
    old, new, other = SigningKey.create(), SigningKey.create(), SigningKey.create()
    content = sign_rotation(old, new)
    assert authentic_rotation(content, other.public, old.public) == Rotation(old.public, new.public)
    assert reason(authentic_rotation, content, new.public) == "unknown-author"
    assert reason(authentic_rotation, content.replace(b"rotate", b"rotatf"), old.public) == "malformed"
    with pytest.raises(ParameterError, match="two different keys"):
        sign_rotation(old, old)


def test_the_consent_of_the_new_key_is_needed(monkeypatch):
    """Otherwise an author could claim the key of somebody else, and its tasks as their own."""
    old, stranger = SigningKey.create(), SigningKey.create()
    document = Rotation(old.public, stranger.public).to_document()
    for consent in (old.sign(b"shuffledp consent v1\n" + canonical(document)), stranger.sign(b"another document")):
        signed = key_documents.sign_document(
            {**document, "consent": to_base64(consent)}, old, name="rotate", label=b"shuffledp rotate v1\n"
        )
        assert reason(authentic_rotation, signed, old.public) == "bad-signature"
        with monkeypatch.context() as planted:
            planted.setattr(VerifyingKey, "verify", lambda *_: None)
            authentic_rotation(signed, old.public)  # the fault is seen above


def test_trusted_authors():
    first, second, third, other = (SigningKey.create().public for _ in range(4))
    authors = TrustedAuthors([first])
    assert authors.follow(Rotation(first, second))
    assert not authors.follow(Rotation(first, second))
    assert authors.follow(Rotation(second, third))
    assert authors.keys == (first, second, third)
    assert authors.are_same_author(first, third)
    assert not authors.are_same_author(first, other)
    with pytest.raises(ParameterError, match="may be forged"):
        authors.follow(Rotation(first, other))
    for earlier in (first, second):  # a circle would never end
        with pytest.raises(ParameterError, match="precedes"):
            authors.follow(Rotation(third, earlier))
    authors = TrustedAuthors([first, other])
    assert authors.follow(Rotation(first, second))
    with pytest.raises(ParameterError, match="follows another key"):
        authors.follow(Rotation(other, second))
    assert not authors.are_same_author(first, other)
    assert authors.are_same_author(first, second)


def test_records_of_destruction():
    signer, other = SigningKey.create(), SigningKey.create()
    for key in (SealingKey.create().public, SigningKey.create().public):
        record = Destruction(key, NOW)
        assert authentic_destruction(record.signed(signer), signer.public) == record
        assert reason(authentic_destruction, record.signed(other), signer.public) == "unknown-author"
        assert reason(authentic_destruction, record.unsigned(), signer.public) == "malformed"


def search(directory: Path, key) -> list[Path]:
    """The files with a private key, in any of its forms."""
    forms = [key.secret, to_base64(key.secret).encode(), key.secret.hex().encode()]
    return [
        file for file in directory.rglob("*") if file.is_file() and any(form in file.read_bytes() for form in forms)
    ]


def test_nothing_of_a_destroyed_key_is_left(tmp_path):
    """Hard links and what a crash left beside the file are overwritten; a copy elsewhere is found by this test."""
    key = SealingKey.create()
    file = tmp_path / f"{key.public.id}.key"
    key.save(file)
    os.link(file, tmp_path / "link")
    (tmp_path / f".{file.name}.4711").write_bytes(file.read_bytes())
    (tmp_path / "work").mkdir()
    assert len(search(tmp_path, key)) == 3
    destroy_file(file)
    assert search(tmp_path, key) == []
    (tmp_path / "work" / "copy").write_bytes(b"planted" + key.secret)
    assert search(tmp_path, key) == [tmp_path / "work" / "copy"]


def test_a_directory_of_round_keys_signs_what_it_destroys(tmp_path):
    key, signer = SealingKey.create(), SigningKey.create()
    key.save(tmp_path / f"{key.public.id}.key")
    directory = RoundKeyDirectory(tmp_path, signer=signer)
    assert not directory.was_destroyed(key.public)
    directory.destroy(key.public)
    assert directory.was_destroyed(key.public)
    (record,) = tmp_path.iterdir()
    assert authentic_destruction(record.read_bytes(), signer.public).key == key.public
    with pytest.raises(KeylessError, match="was destroyed: cancel the round"):
        directory.load(key.public)


def test_two_threads_destroy_a_key_once(tmp_path, monkeypatch):
    """The analyzer's discovery finds a released batch while its release ends: neither fails, and the record stays."""
    key, directory, destroyed = SealingKey.create(), RoundKeyDirectory(tmp_path), []
    key.save(directory.file(key.public))
    slowed = round_keys.destroy_file
    monkeypatch.setattr(round_keys, "destroy_file", lambda file: (time.sleep(0.2), slowed(file)))
    monkeypatch.setattr(round_keys, "event", lambda name, **_: destroyed.append(name))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(directory.destroy, key.public) for _ in range(2)]:
            done.result()
    assert destroyed == ["key-destroyed"]
    assert directory.was_destroyed(key.public)


def test_another_process_destroys_a_key_first(tmp_path, monkeypatch):
    key, directory = SealingKey.create(), RoundKeyDirectory(tmp_path)
    key.save(directory.file(key.public))
    destroy = round_keys.destroy_file
    monkeypatch.setattr(round_keys, "destroy_file", lambda file: (destroy(file), destroy(file)))
    directory.destroy(key.public)
    assert directory.was_destroyed(key.public)


def test_a_claim_that_failed_is_withdrawn(tmp_path, monkeypatch):
    key = SealingKey.create()
    key.save(tmp_path / f"{key.public.id}.key")
    directory = RoundKeyDirectory(tmp_path)

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as planted:
        planted.setattr("shuffledp.collection.server.round_keys.os.fsync", fail)
        planted.setattr("shuffledp.collection.server.round_keys.write_durably", lambda file, *_, **__: file.touch())
        with pytest.raises(OSError, match="Input/output"):
            directory.destroy(key.public)
    assert not directory.was_destroyed(key.public)
    assert [file.name for file in tmp_path.iterdir()] == [f"{key.public.id}.key"]


def test_expired_and_expiring_round_keys(tmp_path):
    key = replace(SealingKey.create(), expires=NOW + HOUR)
    file = tmp_path / f"{key.public.id}.key"
    key.save(file)
    seconds = NOW.timestamp()
    assert RoundKeyDirectory(tmp_path, clock=lambda: seconds).load(key.public, until=NOW + HOUR) == key
    with pytest.raises(KeylessError, match=r"expires at .*the round needs it until"):
        RoundKeyDirectory(tmp_path, clock=lambda: seconds).load(key.public, until=NOW + 2 * HOUR)
    with pytest.raises(KeylessError, match=r"expired at .*Nothing was deleted: set a later time"):
        RoundKeyDirectory(tmp_path, clock=lambda: seconds + 7200).load(key.public)
    assert file.exists()


@pytest.fixture
def wrapped(tmp_path):
    """A key whose bytes are inverted in its file."""
    key = SigningKey.create()
    key.save(tmp_path / "plain")
    file = tmp_path / "wrapped.key"
    file.write_bytes(bytes(255 - byte for byte in (tmp_path / "plain").read_bytes()))
    file.chmod(0o640)  # as fsGroup makes it: the content is of no use to the group
    (tmp_path / "plain").unlink()
    return key, file


INVERT = "import sys; sys.stdout.buffer.write(bytes(255 - byte for byte in {source}))"
FROM_INPUT = (sys.executable, "-c", INVERT.format(source="sys.stdin.buffer.read()"))
FROM_FILE = (sys.executable, "-c", INVERT.format(source="open(sys.argv[1], 'rb').read()"), "{file}")


@pytest.mark.parametrize("command", [FROM_INPUT, FROM_FILE], ids=["input", "file"])
def test_a_command_unwraps_a_key(command, wrapped, tmp_path):
    key, file = wrapped
    assert KeyReader(command).signing(file) == key
    assert [each.name for each in tmp_path.iterdir()] == ["wrapped.key"]  # nothing is written
    with pytest.raises(DataError, match=r"accessible to other users|not a valid key"):
        KeyReader().signing(file)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print(open(sys.argv[1], 'rb').read(), file=sys.stderr); sys.exit(3)", "failed with status 3"),
        ("import sys; [sys.stdout.write('x' * 1000) for _ in range(10_000)]", "wrote more than 4,096 bytes"),
        ("import time; time.sleep(600)", "did not finish within 2 s"),
        ("import sys, time; sys.stdout.close(); import os; os.close(1); time.sleep(600)", "did not finish within 2 s"),
        ("print('{}')", "is not a private signing key"),
        ("print('secret')", "is not JSON"),
        ("pass", "is not JSON"),
    ],
)
def test_commands_that_fail(code, words, wrapped, capfd):
    key, file = wrapped
    started = time.monotonic()
    with pytest.raises(DataError, match=words) as caught:
        KeyReader((sys.executable, "-c", code, "{file}"), seconds=2.0).signing(file)
    assert time.monotonic() - started < 60
    assert "\n" not in str(caught.value)
    shown = str(caught.value) + "".join(capfd.readouterr())
    assert "secret" not in shown
    assert to_base64(key.secret) not in shown


def test_a_command_runs_without_a_shell(wrapped, tmp_path):
    _, file = wrapped
    with pytest.raises(DataError, match="Cannot run key_command"):
        KeyReader((f"touch {tmp_path}/made",)).signing(file)
    with pytest.raises(DataError, match=r"failed with status|not JSON"):
        KeyReader(("/bin/echo", f"$(touch {tmp_path}/made)", "{file}; touch made")).signing(file)
    assert not (tmp_path / "made").exists()
    with pytest.raises(DataError, match="No such file"):
        KeyReader(FROM_INPUT).signing(tmp_path / "none")


def test_the_key_of_another_is_refused(wrapped, tmp_path):
    """Swapped files: each is a valid key, but not that of its name."""
    first, second = SealingKey.create(), SealingKey.create()
    first.save(tmp_path / f"{second.public.id}.key")
    with pytest.raises(KeylessError, match=r"is the key .* not the round key"):
        RoundKeyDirectory(tmp_path).load(second.public)


CRASH = """
import os, resource, sys
os.chdir(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
if sys.argv[2] == "prevented":
    from shuffledp.collection.server.running import prevent_core_dumps
    prevent_core_dumps()
secret = bytes.fromhex(sys.argv[3][::-1])
os.kill(os.getpid(), 3)
"""


@pytest.mark.parametrize("how", ["prevented", "planted"])
def test_a_core_dump_is_not_written(how, tmp_path):
    """A dump would have the keys of the server; the planted fault is a process that allows dumps."""
    secret = os.urandom(32)
    command = [sys.executable, "-c", CRASH, str(tmp_path), how, secret.hex()[::-1]]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGQUIT
    dumps = [file for file in tmp_path.iterdir() if secret in file.read_bytes()]
    if how == "prevented":
        assert list(tmp_path.iterdir()) == []
    elif not dumps:
        pytest.skip("this machine writes no core dumps to the working directory")


def test_the_limit_is_set_before_keys_are_read(monkeypatch):
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limit: limits.append((what, limit)))
    prevent_core_dumps()
    assert limits[0][0] == resource.RLIMIT_CORE
    assert limits[0][1] in ((1, 1), (0, 0))


def test_modes(tmp_path):
    replace(SealingKey.create(), expires=NOW).save(tmp_path / "k")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600


def test_the_key_of_another_round_is_not_destroyed(tmp_path):
    """Two files were swapped, and one round is cancelled: the other keeps its key, and no record is wrong."""
    keys = [SealingKey.create() for _ in range(2)]
    directory = RoundKeyDirectory(tmp_path)
    files = [directory.file(key.public) for key in keys]
    for key, file in zip(reversed(keys), files, strict=True):
        key.save(file)
    with pytest.raises(KeylessError, match=f"is the key {keys[1].public.id}, so it was not destroyed"):
        directory.destroy(keys[0].public)
    assert SealingKey.load(files[0]) == keys[1]
    assert not list(tmp_path.glob("*.destroyed.json"))
    files[0].rename(tmp_path / "other")
    files[1].rename(files[0])
    directory.destroy(keys[0].public)
    assert directory.was_destroyed(keys[0].public)


def test_a_file_that_is_no_key_is_destroyed(tmp_path):
    key, directory = SealingKey.create(), RoundKeyDirectory(tmp_path)
    directory.file(key.public).write_text("damaged")
    directory.file(key.public).chmod(0o600)
    directory.destroy(key.public)
    assert not directory.has(key.public)
