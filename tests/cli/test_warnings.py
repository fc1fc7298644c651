"""A delta above 1/users or an epsilon above 10: every command that takes a target says what that means."""

import json

import pytest

from shuffledp.collection.wire.keys import SealingKey, SigningKey

LARGE_DELTA = "delta 0.01 is above 1/users"
LARGE_EPSILON = "epsilon 12 is above 10"
TASK = (
    "task create count --name n --population p --users 500 --closes 2h --out task.json "
    "--author author.key --analyzer analyzer.key.pub --shuffler shuffler.key.pub --protocol balcer-cheu"
)
COMMANDS = {
    "plan count": "plan count --users 500",
    "plan mean": "plan mean --users 500 --lower 0 --upper 1",
    "run count": "run count data.csv --column x --protocol cheu",
    "run histogram": "run histogram data.csv --column x --domain 0,1 --protocol cheu",
    "run sum": "run sum data.csv --column x --lower 0 --upper 1 --protocol split-and-mix",
    "run quantiles": "run quantiles data.csv --column x --lower 0 --upper 1 --bins 4 --protocol uniform-blanket",
    "account": "account count/balcer-cheu --users 500",
    "task create": TASK,
}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "data.csv").write_text("x\n" + "0\n1\n" * 250)
    for name, key in (("author", SigningKey), ("shuffler", SigningKey), ("analyzer", SealingKey)):
        made = key.create()
        made.save(tmp_path / f"{name}.key")
        made.public.save(tmp_path / f"{name}.key.pub")


def warned(document):
    """Every warning anywhere in a JSON document."""
    if isinstance(document, dict):
        return document.get("warnings", []) + [each for value in document.values() for each in warned(value)]
    return [each for value in document for each in warned(value)] if isinstance(document, list) else []


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        ("1", "1e-6", []),
        pytest.param("1", "0.01", [LARGE_DELTA], marks=pytest.mark.slow),
        ("12", "0.01", [LARGE_DELTA, LARGE_EPSILON]),
    ],
)
def test_every_command_warns(name, epsilon, delta, words, shuffledp, place):
    command = [*COMMANDS[name].split(), "--epsilon", epsilon, "--delta", delta]
    shown = shuffledp(*command)
    assert shown.status == 0, shown.err
    text = " ".join((shown.out + shown.err).split())
    assert [each for each in (LARGE_DELTA, LARGE_EPSILON) if each in text] == words
    again = shuffledp(*(("task", "show", "task.json") if name == "task create" else command), "--json")
    assert again.status == 0, again.err
    noted = " ".join(again.err.split())
    assert [each for each in (LARGE_DELTA, LARGE_EPSILON) if f"warning: {each}" in noted] == words
    told = warned(json.loads(again.out))
    assert {each for each in (LARGE_DELTA, LARGE_EPSILON) if any(each in warning for warning in told)} == set(words)


def test_a_task_that_is_verified_warns_too(shuffledp, place):
    assert shuffledp(*TASK.split(), "--epsilon", 12, "--delta", 0.01).status == 0
    verified = shuffledp("task", "verify", "task.json", "--author", "author.key.pub")
    assert verified.status == 0
    for words in (LARGE_DELTA, LARGE_EPSILON):
        assert words in " ".join(verified.out.split())


def test_what_is_not_private_at_all_is_not_called_weak(shuffledp, place):
    command = (*COMMANDS["run count"].split(), "--epsilon", 12, "--delta", 0.01, "--insecure-seed", 1)
    assert "NOT PRIVATE" in shuffledp(*command).out
    assert "warning" not in shuffledp(*command, "--json").err
