"""``shuffledp task``: created, shown and verified as a device would."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from shuffledp.cli.times import moment
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.task import SignedTask
from shuffledp.collection.wire.keys import HybridKey, SealingKey, SigningKey, to_base64
from shuffledp.domain import Strings
from shuffledp.errors import ParameterError


@pytest.fixture
def parties(tmp_path):
    keys = {"author": SigningKey.create(), "shuffler": SigningKey.create(), "analyzer": SealingKey.create()}
    for name, key in keys.items():
        key.save(tmp_path / f"{name}.key")
        key.public.save(tmp_path / f"{name}.key.pub")
    return keys


KEYS = ("--author", "author.key", "--analyzer", "analyzer.key.pub", "--shuffler", "shuffler.key.pub")
REST = ("--name", "Commuting", "--population", "city", "--users", 1000, "--closes", "2h", "--out", "task.json")
TARGET = ("--epsilon", 1, "--delta", 1e-6)
HISTOGRAM = ("histogram", "--domain", "bus,bike,car", "--protocol", "balcer-cheu")
VERIFY = ("task", "verify", "task.json", "--author", "author.key.pub")


def create(shuffledp, *arguments, target=TARGET, rest=REST):
    return shuffledp("task", "create", *arguments, *target, *rest, *KEYS)


def test_create_show_verify(shuffledp, parties, tmp_path):
    made = create(shuffledp, *HISTOGRAM, "--description", "How do you get to work?", "--max-users", "1e4")
    assert made.status == 0
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    assert task.protocol.name == "balcer-cheu"
    assert task.protocol.categories.names == ("bus", "bike", "car")
    assert (task.minimum_users, task.maximum_users) == (1000, 10_000)
    assert task.closes - task.opens == timedelta(hours=2)
    assert abs(task.opens - datetime.now(UTC)) < timedelta(minutes=5)
    shown = shuffledp("task", "show", "task.json")
    for words in (task.id.hex(), "How do you get to work?", "bus, bike, car", "4 messages", "1,000 to 10,000"):
        assert words in made.out
        assert words in shown.out
    assert "signature was not checked" in shown.err
    as_json = shuffledp("task", "show", "task.json", "--json").json
    author = parties["author"].public.id
    assert as_json == {"id": task.id.hex(), "author": author, "task": task.to_document(), "warnings": []} | {
        "trust": "shuffled",
        "dummies_per_round": 0.0,
    }
    verified = shuffledp(*VERIFY)
    assert verified.status == 0
    for words in (parties["author"].public.id, "claimed", "recomputed", "as long as 1,000 of 1,000 users"):
        assert words in " ".join(verified.out.split())


def test_what_is_shown_can_be_copied_and_told_apart(shuffledp, parties, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ["car, shared", *(f"a way that needs many words {k}" for k in range(6))]
    (tmp_path / "names.txt").write_text("\n".join(names))
    made = create(shuffledp, "histogram", "--domain-file", "names.txt", "--protocol", "balcer-cheu")
    lines = made.out.splitlines()
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    assert sum(line.startswith("id ") and len(line.split()) == 2 for line in lines) == 1
    assert '"car, shared", a way' in made.out
    start = lines.index(next(line for line in lines if line.startswith("question")))
    assert lines[start + 1].startswith(" " * 16 + "words")  # beside its label


def test_best_is_nothing_that_one_device_can_spoil(shuffledp, parties, tmp_path):
    bounds = ("sum", "--lower", 0, "--upper", 100, "--whole")
    best = create(shuffledp, *bounds)
    assert best.status == 0
    assert "sum/split-and-mix" not in best.out
    assert "one device" not in best.err
    named = create(shuffledp, *bounds, "--protocol", "split-and-mix", rest=[*REST[:-1], "named.json"])
    assert named.status == 0
    for told in (named, shuffledp("task", "show", "named.json")):
        assert "with split-and-mix a device that violates the protocol can change the result arbitrarily" in told.err


def test_a_round_that_is_over_cannot_be_made(shuffledp, parties):
    made = create(shuffledp, *HISTOGRAM, "--opens", "2020-01-01T00:00:00Z")
    assert (made.status, "would be over: it closes at 2020-01-01 02:00:00 UTC" in made.error) == (2, True)


def test_json_of_verify(shuffledp, parties):
    create(shuffledp, *HISTOGRAM)
    told = shuffledp(*VERIFY, "--json").json
    assert set(told) == {"id", "name", "author", "claimed", "recomputed", "guarantee"}
    assert told["claimed"] == {"epsilon": 1.0, "delta": 1e-6}
    assert 0.99 < told["recomputed"]["epsilon"] <= 1
    assert 0.9e-6 < told["recomputed"]["delta"] <= 1e-6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-epsilon", 0.9), "this device allows epsilon = 0.9"),
        (("--max-delta", 1e-7), "this device allows epsilon = 1 with delta = 1e-07"),
        (("--min-users", 1001), "this device requires 1,001"),
        (("--max-messages", 3), "has 4 messages"),
    ],
)
def test_a_policy(options, words, shuffledp, parties):
    create(shuffledp, *HISTOGRAM)
    refused = shuffledp(*VERIFY, *options)
    assert refused.status == 1
    assert words in refused.error


def test_what_verify_does_not_believe(shuffledp, parties, tmp_path):
    create(shuffledp, *HISTOGRAM)
    envelope = json.loads((tmp_path / "task.json").read_bytes())
    envelope["task"]["guarantee"]["epsilon"] = "0.5"
    (tmp_path / "task.json").write_bytes(canonical(envelope))
    assert "not a valid signature" in shuffledp(*VERIFY).error
    signature = parties["author"].sign(b"shuffledp task v1\n" + canonical(envelope["task"]))
    envelope["signature"] = to_base64(signature)
    (tmp_path / "task.json").write_bytes(canonical(envelope))
    refused = shuffledp(*VERIFY)
    assert refused.status == 1
    assert "more than the claimed" in refused.error
    other = shuffledp("task", "verify", "task.json", "--author", "shuffler.key.pub")
    assert "was not signed by" in other.error
    for content in (b"", b"{}", b"\xff", b"[" * 10_000):
        (tmp_path / "task.json").write_bytes(content)
        for command in (VERIFY, ("task", "show", "task.json")):
            refused = shuffledp(*command)
            assert (refused.status, refused.error.startswith("error: task.json: ")) == (1, True)


def test_the_best_within_the_messages(shuffledp, parties, tmp_path):
    rest = (*REST[:-2], "--out")
    for most, name in ((100, None), (1, "cheu"), (10_000, "correlated-noise")):
        made = create(shuffledp, "count", "--max-messages", most, rest=(*rest, f"{most}.json"))
        assert made.status == 0
        task = SignedTask.load(tmp_path / f"{most}.json").task
        assert task.messages_per_report <= most
        assert name in (None, task.protocol.name)


def test_quantiles(shuffledp, parties, tmp_path):
    made = create(shuffledp, "quantiles", "--lower", 0, "--upper", 120, "--bins", 16)
    assert made.status == 0, made.err
    assert "quantiles of numbers from 0 to 120, in 16 bins" in made.out
    task = SignedTask.load(tmp_path / "task.json").task
    assert (task.protocol.question, len(task.protocol.domain)) == ("quantiles", 16)
    assert shuffledp(*VERIFY).status == 0


def test_strings(shuffledp, parties, tmp_path):
    made = create(shuffledp, "strings", "--alphabet", r"a-c\-", "--max-length", 4, "--case-fold", "--trim", "--other")
    assert made.status == 0, made.err
    described = r"strings in strings of at most 4 symbols of 'a-c\\-', trimmed and case-folded; others count as"
    assert described in " ".join(made.out.split())
    task = SignedTask.load(tmp_path / "task.json").task
    assert task.protocol.domain == Strings(r"a-c\-", 4, trim=True, case_fold=True, other=True)
    assert shuffledp(*VERIFY).status == 0
    (tmp_path / "task.json").unlink()
    assert create(shuffledp, "strings", "--alphabet", "a-c", "--max-length", 4).status == 0
    assert SignedTask.load(tmp_path / "task.json").task.protocol.seed != task.protocol.seed  # equal in 2^-64


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (("strings",), "Strings need their domain: give --alphabet and --max-length."),
        (("strings", "--alphabet", "a-z", "--max-length", 200), "give a max_length of at most"),
        (("strings", "--alphabet", "z-a", "--max-length", 2), "with an end before its start"),
        (("strings", "--alphabet", "a-z", "--max-length", 2, "--bins", 7), "--bins belongs to quantiles"),
        (("count", "--alphabet", "a-z"), "--other belong to strings, not to a count."),
        (("histogram", "--domain", "a,b", "--other"), "--other belong to strings, not to a histogram."),
        (("quantiles",), "Quantiles need their bounds: give --lower and --upper."),
        (("quantiles", "--lower", 3, "--upper", 3), "3"),
        (("quantiles", "--lower", 0, "--upper", 1, "--bins", 0), "bins must lie between 1 and"),
        (("quantiles", "--lower", 0, "--upper", 1, "--whole"), "--whole belongs to a sum, not to quantiles."),
        (("quantiles", "--domain", "a,b"), "belong to a histogram"),
        (("count", "--bins", 7), "--bins belongs to quantiles, not to a count."),
        (("count", "--upper", 7), "--lower and --upper belong to a sum or to quantiles, not to a count."),
    ],
)
def test_bins_and_bounds(question, words, shuffledp, parties):
    refused = create(shuffledp, *question)
    assert (refused.status, words in refused.error) == (2, True), refused.error


def test_a_sum(shuffledp, parties, tmp_path):
    made = create(shuffledp, "sum", "--lower", 0, "--upper", 120, "--whole", "--protocol", "split-and-mix")
    assert made.status == 0
    assert "of integers from 0 to 120" in made.out
    assert SignedTask.load(tmp_path / "task.json").task.protocol.domain.whole


def test_categories_cannot_steer_the_terminal(shuffledp, parties, tmp_path):
    (tmp_path / "names.txt").write_text("a\x1b[31mred\nb\n")
    create(shuffledp, "histogram", "--domain-file", "names.txt", "--protocol", "balcer-cheu")
    assert "\x1b" not in shuffledp("task", "show", "task.json").out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("histogram",), 2, "needs its domain once"),
        (("histogram", "--domain", "a,b", "--domain-size", 2), 2, "needs its domain once"),
        (("histogram", "--domain", "a,,b"), 2, "empty name"),
        (("count", "--domain", "a,b"), 2, "belong to a histogram"),
        (("count", "--lower", 0), 2, "belong to a sum"),
        (("sum", "--lower", 0), 2, "give --lower and --upper"),
        (("sum", "--lower", 1, "--upper", 0), 2, "must lie below"),
        (("mode",), 2, "mode"),
        (("count", "--protocol", "gremlin"), 2, "There is no protocol 'gremlin'"),
        (("count", "--protocol", "discrete-laplace"), 2, "requires a trusted party"),
        (("count", "--protocol", "shuffler-laplace"), 2, "give --trust augmented"),
        (("count", "--protocol", "correlated-noise"), 1, "allow more with --max-messages"),
        (
            ("sum", "--lower", 0, "--upper", 1, "--protocol", "almost-central"),
            2,
            "would have to be padded to more than",
        ),
        (("count", "--max-messages", 0), 2, "allows none"),
        (("count", "--max-users", 10), 2, "maximum_users must be between"),
        (("count", "--honest-fraction", 2), 2, "honest"),
        (("count", "--opens", "tomorrow"), 2, "neither a time with its zone"),
        (("count", "--opens", "2026-01-31T18:00:00"), 2, "neither a time with its zone"),
        (("count", "--name", ""), 2, "name of a task must have 1 to 2,000"),
        (("count", "--author", "none.key"), 1, "No such file"),
        (("count", "--author", "author.key.pub"), 1, "is accessible to other users"),
        (("count", "--analyzer", "shuffler.key.pub"), 1, "sealing key is an object"),
        (("count", "--shuffler", "analyzer.key.pub"), 1, "signing key is an object"),
        (("count", "--out", "none/task.json"), 1, "there is no directory"),
        (("count", "--epsilon", 0), 2, "epsilon must be a positive number"),
    ],
)
def test_bad_input(arguments, status, words, shuffledp, parties, tmp_path):
    done = shuffledp("task", "create", *TARGET, *REST, *KEYS, *arguments)
    assert done.status == status
    assert words in done.error
    assert not (tmp_path / "task.json").exists()


def test_moments():
    start = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
    for text, seconds in (("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("1w", 604_800)):
        assert moment(text, after=start) == start + timedelta(seconds=seconds)
    assert moment("2026-01-31T20:00:00+02:00") == start
    assert moment("2026-01-31T18:00:00.5Z") == start
    assert abs(moment("now") - datetime.now(UTC)) < timedelta(seconds=5)
    for text in ("", "2", "h", "-2h", "2 years", "2026-01-31", "99999999d9", "999999999w", "2026-13-01T00:00:00Z"):
        with pytest.raises(ParameterError, match="neither a time"):
            moment(text)


def test_help_has_an_example(shuffledp):
    for command in ("create", "show", "verify"):
        assert f"Example: shuffledp task {command}" in " ".join(shuffledp("task", command, "--help").out.split())


@pytest.mark.parametrize("name", ["author.key", "task.json"])
def test_a_task_overwrites_nothing(shuffledp, parties, tmp_path, name):
    """Least of all a key: the only copy of it would be gone."""
    (tmp_path / "task.json").write_text("another task")
    before = (tmp_path / name).read_bytes()
    refused = create(shuffledp, *HISTOGRAM, rest=(*REST[:-1], name))
    assert refused.status == 1
    assert "exists" in refused.error
    assert (tmp_path / name).read_bytes() == before


def test_a_task_of_wire_version_2(shuffledp, parties, tmp_path):
    round_key = SealingKey.create()
    round_key.public.save(tmp_path / "round.pub")
    made = create(shuffledp, *HISTOGRAM, "--round-key", "round.pub")
    assert made.status == 0
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    assert (task.version, task.wire.shufflers[0].sealing) == (2, round_key.public)
    assert task.wire.shufflers[0].signing == parties["shuffler"].public
    assert "2, with an outer seal" in made.out
    assert round_key.public.id in made.out
    assert shuffledp("task", "verify", "task.json", "--author", "author.key.pub").status == 0


def test_the_analyzers_key_is_not_a_round_key(shuffledp, parties, tmp_path):
    refused = create(shuffledp, *HISTOGRAM, "--round-key", "analyzer.key.pub")
    assert refused.status == 2
    assert "used in two roles" in refused.err
    assert not (tmp_path / "task.json").exists()


AUGMENTED = ("--trust", "augmented", "--round-key", "round.pub")


@pytest.fixture
def round_key(tmp_path):
    SealingKey.create().public.save(tmp_path / "round.pub")


@pytest.mark.parametrize(
    ("question", "delta", "protocol"),
    [
        (("histogram", "--domain", "bus,bike,car"), 1e-6, "shuffler-laplace"),
        (("histogram", "--domain", "bus,bike,car"), 0, "shuffler-geometric"),
        (("count",), 1e-6, "shuffler-laplace"),
    ],
)
def test_a_task_of_an_augmented_shuffler(shuffledp, parties, round_key, tmp_path, question, delta, protocol):
    """It says whom it trusts, what that party learns, and how much work it has."""
    made = create(shuffledp, *question, *AUGMENTED, target=("--epsilon", 1, "--delta", delta))
    assert made.status == 0
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    assert (task.protocol.name, task.delta) == (protocol, delta)
    for words in (
        "augmented: the shuffler adds all noise, and learns the counts",
        "per round, which take the shuffler",
    ):
        assert words in " ".join(made.out.split())
    assert "none of them needs to be honest" in " ".join(made.out.split())
    verified = shuffledp(*VERIFY)
    assert verified.status == 0
    assert "shows it the exact counts" in " ".join(verified.out.split())
    assert shuffledp(*VERIFY, "--json").json["guarantee"]["trust"] == "augmented"
    shown = shuffledp("task", "show", "task.json", "--json").json
    assert (shown["trust"], shown["dummies_per_round"]) == ("augmented", task.protocol.mean_dummies)


def test_trusts_are_never_mixed(shuffledp, parties, round_key, tmp_path):
    """Not by a protocol's name, not by default, and not without the round key that it needs."""
    histogram = HISTOGRAM[:3]
    for arguments, words in (
        ((*histogram, "--protocol", "shuffler-laplace", "--round-key", "round.pub"), "give --trust augmented"),
        ((*HISTOGRAM, *AUGMENTED), "give --trust shuffled"),
        ((*histogram, "--trust", "augmented"), "give the shuffler's --round-key"),
        (("sum", "--lower", 0, "--upper", 1, *AUGMENTED), ""),
    ):
        refused = create(shuffledp, *arguments)
        assert refused.status in (1, 2)
        assert words in refused.error
        assert not (tmp_path / "task.json").exists()
    assert create(shuffledp, *histogram, "--round-key", "round.pub").status == 0
    assert SignedTask.load(tmp_path / "task.json").task.protocol.trust == "shuffled"


def test_no_count_is_pure(shuffledp, parties, round_key):
    refused = create(shuffledp, "count", *AUGMENTED, target=("--epsilon", 1, "--delta", 0))
    assert "does not have pure privacy; give a delta above 0" in refused.error


MANY = ("--name", "Commuting", "--population", "city", "--users", 30_000, "--closes", "2h", "--out", "task.json")


def test_a_task_with_carriers(shuffledp, parties, round_key, tmp_path):
    """With a round key, carriers are chosen where they save messages; the limit on messages is one on their average."""
    named = ("histogram", "--domain", "bus,bike,car", "--protocol", "correlated-noise")
    made = create(shuffledp, *named, "--round-key", "round.pub", rest=MANY)
    assert made.status == 0, made.err
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    roles = task.protocol.carrier_roles
    assert task.messages_per_report == 1
    assert task.messages_per_user < 40 < 100 < task.max_messages_per_report
    assert f"a round has at least {task.carriers.minimum:,}" in " ".join(made.out.split())
    assert f"with probability {float(roles.carrier_probability):.4g}" in " ".join(made.out.split())
    assert shuffledp(*VERIFY).status == 0
    refused = shuffledp(*VERIFY, "--max-messages", task.max_messages_per_report - 1)
    assert refused.status == 1
    assert f"has {task.max_messages_per_report:,} messages" in refused.error
    plain = create(shuffledp, *named, "--max-messages", 1000, rest=(*MANY[:-1], "plain.json"))
    assert plain.status == 0, plain.err
    without = SignedTask.load(tmp_path / "plain.json").task
    assert (without.version, without.carriers) == (1, None)
    assert without.messages_per_report > 100


def test_the_suite_of_the_round_key_is_shown(shuffledp, parties, round_key, tmp_path):
    HybridKey.create().public.save(tmp_path / "hybrid.pub")
    named = ("count", "--protocol", "randomized-response")
    assert "2, with an outer seal" in create(shuffledp, *named, "--round-key", "round.pub").out
    (tmp_path / "task.json").unlink()
    made = create(shuffledp, *named, "--round-key", "hybrid.pub")
    assert "2, with a hybrid outer seal (MLKEM768-X25519)" in made.out
    assert SignedTask.load(tmp_path / "task.json").verify(parties["author"].public).wire.outer_suite.seal_size == 1136


def test_a_chain_has_no_carriers(shuffledp, parties, round_key, tmp_path):
    """Nobody would accept them: the task has the form without, which devices verify."""
    SigningKey.create().public.save(tmp_path / "second.pub")
    SealingKey.create().public.save(tmp_path / "second-round.pub")
    second = ("--next-shuffler", "second.pub", "--next-round-key", "second-round.pub", "--max-messages", 1000)
    named = ("histogram", "--domain", "bus,bike,car", "--protocol", "correlated-noise", "--round-key", "round.pub")
    made = create(shuffledp, *named, *second, rest=MANY)
    assert made.status == 0, made.err
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    assert (task.hops, task.carriers) == (2, None)
    assert task.messages_per_report > 100


def test_too_few_users_for_carriers(shuffledp, parties, round_key, tmp_path):
    """Of a few users nearly all would have to be carriers: nothing is saved, so there are none."""
    rest = (*REST[:4], "--users", 60, *REST[6:])
    named = ("count", "--protocol", "correlated-noise", "--round-key", "round.pub", "--max-messages", 10_000)
    made = create(shuffledp, *named, rest=rest)
    assert made.status == 0, made.err
    assert SignedTask.load(tmp_path / "task.json").task.carriers is None


def test_a_task_with_a_chain_of_shufflers(shuffledp, parties, round_key, tmp_path):
    """Keys in the order in which reports pass; each shuffler needs both of its own."""
    SigningKey.create().public.save(tmp_path / "second.pub")
    SealingKey.create().public.save(tmp_path / "second-round.pub")
    first = ("--round-key", "round.pub")
    second = ("--next-shuffler", "second.pub", "--next-round-key", "second-round.pub")
    for arguments, words in (
        ((*first, *second[:2]), "give both for each"),
        (second, "give both for each"),
        ((*first, "--traps", 3), "this task has one shuffler"),
        (("--traps", 3), "give their keys, or no --traps"),
        ((*first, *second, "--traps", 2000), "0 to 1,024 traps"),
        ((*first, "--next-shuffler", "second.pub", "--next-round-key", "round.pub"), "used in two roles"),
    ):
        refused = create(shuffledp, *HISTOGRAM, *arguments)
        assert refused.status in (1, 2)
        assert words in refused.error
    made = create(shuffledp, *HISTOGRAM, *first, *second, "--traps", 32)
    assert made.status == 0
    task = SignedTask.load(tmp_path / "task.json").verify(parties["author"].public)
    assert (task.hops, task.wire.traps) == (2, 32)
    assert task.wire.shufflers[0].signing == parties["shuffler"].public
    assert f"{parties['shuffler'].public.id} -> {task.shuffler.id}" in made.out
