"""The keys of a collection's parties, and tasks that they would agree on."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.collection.task.series import RoundKeys, Series
from shuffledp.collection.task.task import Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.keys import SealingKey, SigningKey


@dataclasses.dataclass(frozen=True)
class Parties:
    author: SigningKey = dataclasses.field(default_factory=SigningKey.create)
    shuffler: SigningKey = dataclasses.field(default_factory=SigningKey.create)
    analyzer: SealingKey = dataclasses.field(default_factory=SealingKey.create)

    def rest(self, **changes) -> dict:
        now = datetime.now(UTC).replace(microsecond=0)
        return {
            "name": "Commuting",
            "description": "How do you get to work?",
            "population": "city",
            "opens": now - timedelta(hours=1),
            "closes": now + timedelta(hours=1),
            "analyzer": self.analyzer.public,
            "shuffler": self.shuffler.public,
            **changes,
        }

    def task(
        self, protocol: str = "histogram/balcer-cheu", /, *, users=1000, epsilon=1.0, delta=1e-6, **changes
    ) -> Task:
        question, short = protocol.split("/")
        settings = {
            "count": {},
            "histogram": {"domain_size": 4, "categories": sdp.Categories.of(["bus", "bike", "car", "train"])},
            "sum": {"domain": sdp.Interval(-1.0, 4.0)},
            "quantiles": {"domain": sdp.Bins(-1.0, 4.0, 16)},
            "strings": {"domain": sdp.Strings("a-z", 2)},
        }[question] | changes.pop("options", {})
        maximum = changes.pop("maximum_users", 5 * users)
        return Task.create(
            kind=sdp.find(question, short),
            settings={"users": users, **settings},
            epsilon=epsilon,
            delta=delta,
            maximum_users=maximum,
            **self.rest(**changes),
        )

    def around(self, protocol, messages_per_report: int, **changes) -> Task:
        """A task of a protocol as it is, whatever it guarantees."""
        target = protocol.target
        return Task(
            protocol=protocol,
            epsilon=max(target.epsilon, 1e-9),
            delta=target.delta or 1e-9,
            maximum_users=1000,
            messages_per_report=messages_per_report,
            **self.rest(**changes),
        )


@pytest.fixture(scope="session")
def parties() -> Parties:
    return Parties()


@pytest.fixture(scope="session")
def make_series():
    """Make a small series with its private keys."""
    return _make_series


def _make_series(
    *,
    rounds: int = 3,
    per_device: int = 2,
    users: int = 5,
    opens: datetime | None = None,
    period: int = 3600,
    open_seconds: int = 1800,
    shuffler: SigningKey | None = None,
    population: str = "people",
    replaces: bytes | None = None,
    epsilon: float = 1.0,
) -> tuple[Series, list[SealingKey], list[SealingKey]]:
    """A series, the private keys of the analyzer, and those of the shuffler."""
    opens = opens or datetime.now(UTC).replace(microsecond=0)
    shuffler = shuffler or SigningKey.create()
    analyzers, hops = ([SealingKey.create() for _ in range(rounds)] for _ in range(2))
    keys = tuple(RoundKeys(a.public, (h.public,)) for a, h in zip(analyzers, hops, strict=True))
    task = Task.create(
        kind=sdp.find("histogram", "k-rr"),
        settings={"users": users, "domain_size": 3},
        epsilon=epsilon,
        delta=1e-8,
        maximum_users=1000,
        name="Weekly",
        description="",
        population=population,
        opens=opens,
        closes=opens + timedelta(seconds=open_seconds),
        analyzer=keys[0].analyzer,
        shuffler=shuffler.public,
        wire=WireVersion2((ShufflerKeys(shuffler.public, keys[0].shufflers[0]),)),
    )
    series = Series(task, period=period, keys=keys, rounds_per_device=per_device, replaces=replaces)
    return series, analyzers, hops


@pytest.fixture(scope="session")
def documented_rounds():
    """The keys of ``rounds list --json`` on the command-line page, by the server that has them."""
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = re.search(r"^### JSON of `rounds list`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \|", table[1], re.MULTILINE)
    of_series = {key for key, _ in rows if key.startswith("series[]")}  # often there is none; they have tests of theirs
    return lambda role: {key for key, of in rows if of in ("all", role)} - of_series | {"series"}


@pytest.fixture(scope="session")
def keys_of():
    """``a.b`` for a key in an object, ``a[].b`` for a key in a list of objects.

    Some objects have any keys, or are null.
    """
    opaque = (
        "series",
        "alerts",
        "answers",
        "refusals",
        "rounds[].carriers",
        "rounds[].predicted_error",
        "rounds[].rejected",
    )

    def leaves(value, path=""):
        if path in opaque:
            return {path}
        if isinstance(value, dict):
            return set().union(*(leaves(inner, f"{path}.{key}" if path else key) for key, inner in value.items()))
        if isinstance(value, list) and value:
            return set().union(*(leaves(each, f"{path}[]") for each in value))
        return {path}

    return leaves
