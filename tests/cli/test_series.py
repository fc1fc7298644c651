"""``shuffledp series``: created from scheduled keys, shown, verified, cancelled; a device reports to its rounds."""

import json

import pytest

from shuffledp.collection.task.series import authentic_cancellation, authentic_series
from shuffledp.collection.wire.keys import SigningKey


@pytest.fixture
def keys(shuffledp):
    for role in ("author", "shuffler"):
        shuffledp("keys", "create", role, "--out", f"{role}.key")
    for name in ("analyzer", "hop"):
        shuffledp("keys", "schedule", "--rounds", 4, "--out", f"{name}-private", "--public", f"{name}-public")


def create(shuffledp, *more, out="series.json", rounds=4, per_device=2, period="7d", open_for="6d"):
    return shuffledp(
        "series", "create", "histogram", "--name", "Weekly", "--population", "city", "--domain", "bus,bike,car",
        "--epsilon", 1, "--delta", "1e-8", "--users", 1000, "--protocol", "k-rr",
        "--rounds", rounds, "--rounds-per-device", per_device,
        "--period", period, "--open-for", open_for, "--author", "author.key", "--shuffler", "shuffler.key.pub",
        "--analyzer-keys", "analyzer-public", "--shuffler-keys", "hop-public", "--out", out, *more,
    )  # fmt: skip


def test_create_show_verify_cancel(shuffledp, keys, tmp_path):
    made = create(shuffledp, "--json")
    assert (made.status, made.json["series"]["rounds"], len(set(made.json["tasks"]))) == (0, 4, 4)
    author = SigningKey.load(tmp_path / "author.key").public
    series = authentic_series((tmp_path / "series.json").read_bytes(), author)
    assert made.json["id"] == series.id.hex()
    shown = shuffledp("series", "show", "series.json")
    assert "4, of which a device takes part in 2" in shown.out
    assert "round 0: " in shown.out
    verified = shuffledp("series", "verify", "series.json", "--author", "author.key.pub", "--json")
    assert verified.json["per_device"]["rounds"] == 2
    assert 1.0 < verified.json["per_device"]["epsilon"] <= 2.0
    done = shuffledp("series", "cancel", "series.json", "--author", "author.key", "--reason", "New.", "--out", "c.json")
    assert "The rounds from 1 to 3" in done.out
    assert authentic_cancellation((tmp_path / "c.json").read_bytes(), author).from_round == 1
    with_cancel = shuffledp(
        "series", "verify", "series.json", "--author", "author.key.pub", "--cancellation", "c.json", "--json"
    )
    assert (with_cancel.json["cancelled_from"], with_cancel.json["per_device"]["rounds"]) == (1, 1)


def test_a_series_with_a_chain(shuffledp, keys, tmp_path):
    """Two shufflers whose round keys are of the hybrid suite; their number and suite must fit each other."""
    shuffledp("keys", "create", "shuffler", "--out", "second.key")
    for name in ("first", "second"):
        shuffledp(
            "keys", "schedule", "--rounds", 4, "--suite", "mlkem768-x25519", "--out", f"{name}-private",
            "--public", f"{name}-public",
        )  # fmt: skip
    next_key, next_keys = ("--next-shuffler", "second.key.pub"), ("--next-shuffler-keys", "second-public")
    for options, words in (
        (next_key, "give both for each"),
        (("--traps", 3), "this task has one shuffler"),
        ((*next_key, *next_keys), "must all be of one suite"),
        (("--shuffler-keys", "first-public", "--analyzer-keys", "second-public"), "A sealing key is an object"),
    ):
        refused = create(shuffledp, *options)
        assert refused.err.count("error:") == 1
        assert words in refused.err
    made = create(shuffledp, *next_key, *next_keys, "--shuffler-keys", "first-public", "--traps", 32)
    assert " -> " in made.out
    author = SigningKey.load(tmp_path / "author.key").public
    task = authentic_series((tmp_path / "series.json").read_bytes(), author).task(3)
    assert (task.hops, task.wire.traps, task.wire.outer_suite.public.kind) == (2, 32, "hybrid-sealing")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 5}, "has 4 public keys, and 5 rounds need one each"),
        ({"rounds": 0}, "1 to 400 rounds"),
        ({"per_device": 5}, "rounds_per_device must be from 1 to the 4 rounds"),
        ({"period": "5d"}, "must not overlap"),
        ({"out": "author.key"}, "author.key exists"),
        ({"open_for": "soon"}, "not a valid duration"),
        ({"period": "999999999w", "open_for": "999999999w"}, "would end after the year 9999"),
        ({"--first-opens": "9999-12-31T00:00:00Z"}, "would end after the year 9999"),
        ({"--first-opens": "2020-01-01T00:00:00Z"}, "its last round closes at 2020-01-28 00:00:00 UTC"),
        ({"--analyzer-keys": "nowhere"}, "Cannot read the directory nowhere: No such file or directory"),
    ],
)
def test_bad_input(shuffledp, keys, tmp_path, changes, words):
    before = {file.name for file in tmp_path.iterdir()}
    more = [part for option in changes.items() if option[0].startswith("--") for part in option]
    done = create(shuffledp, *more, **{name: value for name, value in changes.items() if not name.startswith("--")})
    assert done.status in (1, 2)
    assert words in done.err
    assert done.err.count("error:") == 1
    assert {file.name for file in tmp_path.iterdir()} == before


def test_a_key_that_expires_during_the_series_signs_none(shuffledp, keys, tmp_path):
    (tmp_path / "author.key").unlink()
    (tmp_path / "author.key.pub").unlink()
    shuffledp("keys", "create", "author", "--out", "author.key", "--expires", "10d")
    done = create(shuffledp)
    assert "last round of the series begins at" in done.err
    assert not (tmp_path / "series.json").exists()


def test_a_series_that_replaces_another_needs_new_keys(shuffledp, keys, tmp_path):
    create(shuffledp)
    done = create(shuffledp, "--replaces", "series.json", out="next.json")
    assert (done.status, "create new ones with shuffledp keys schedule" in done.err) == (2, True)
    assert not (tmp_path / "next.json").exists()
    for name in ("analyzer", "hop"):
        shuffledp("keys", "schedule", "--rounds", 4, "--out", f"{name}-2", "--public", f"{name}-public-2")
    new = ("--analyzer-keys", "analyzer-public-2", "--shuffler-keys", "hop-public-2")
    done = create(shuffledp, *new, "--replaces", "series.json", "--json", out="next.json")
    assert done.json["series"]["replaces"] == shuffledp("series", "show", "series.json", "--json").json["id"]


def test_a_cancellation_by_another_key(shuffledp, keys, tmp_path):
    """The key may be the author's successor, which only its reader knows; whoever signs it is told."""
    create(shuffledp)
    shuffledp("keys", "create", "author", "--out", "other.key")
    signers = {"author.key": False, "other.key": True}
    for index, (signer, remarked) in enumerate(signers.items()):
        done = shuffledp(
            "series", "cancel", "series.json", "--author", signer, "--reason", "x", "--out", f"c{index}.json"
        )
        assert (done.status, "counts only where the latter is known" in " ".join(done.err.split())) == (0, remarked)
    refused = shuffledp("series", "verify", "series.json", "--author", "author.key.pub", "--cancellation", "c1.json")
    assert (refused.status, "The cancellation was not signed by a key that is trusted" in refused.err) == (1, True)


def test_cancellations_that_make_no_sense(shuffledp, keys, tmp_path):
    create(shuffledp)
    for from_round in (4, 400):
        done = shuffledp(
            "series", "cancel", "series.json", "--author", "author.key", "--reason", "x", "--out", "c.json",
            "--from-round", from_round,
        )  # fmt: skip
        assert "The series has 4 rounds" in done.err
    damaged = (tmp_path / "series.json").read_text().replace('"rounds":4', '"rounds":5')
    (tmp_path / "damaged.json").write_text(damaged)
    (tmp_path / "long.json").write_text('{"author":' + 5000 * "9" + "}")
    for name, words in (("nowhere.json", "Cannot read the series nowhere.json: "), ("long.json", "5,000 characters")):
        done = shuffledp("series", "show", name)
        assert (done.status, done.err.count(name), words in done.err) == (1, 1, True)
    for command in (("show",), ("verify", "--author", "author.key.pub")):
        done = shuffledp("series", command[0], "damaged.json", *command[1:])
        assert (done.status, done.err.count("error:")) == (1, 1)


def test_a_device_without_a_server(shuffledp, keys, tmp_path):
    """It draws its rounds, says when it reports, and does so once per round; the value is read only then."""
    create(shuffledp, per_device=4)
    arguments = (
        "report", "--series", "series.json", "--author", "author.key.pub", "--server", "http://127.0.0.1:9",
        "--state", "device", "--attempts", 1,
    )  # fmt: skip
    refused = shuffledp(*arguments, "--value", "train")
    assert (refused.status, refused.err.count("\n"), "train" in refused.err) == (2, 1, True)
    done = shuffledp(*arguments, "--json")
    assert "could not be asked" in done.err
    drawn = json.loads((next((tmp_path / "device").glob("*.series"))).read_bytes())
    assert drawn["rounds"] == [0, 1, 2, 3]
    if done.status == 0:
        assert done.json["state"] == "waiting"
    else:  # its moment was the very first second
        assert "give --value" in done.err
    for wrong in (("--task", "series.json"), ()):
        both = shuffledp(*arguments[:1], *arguments[3:], *wrong, *(("--series", "series.json") if wrong else ()))
        assert (both.status, "--task FILE, or --series" in both.err) == (2, True)
