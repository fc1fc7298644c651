"""docs/collection/randomizers.md says what tasks hold: every protocol, every parameter with its type, every word."""

import copy
import dataclasses
import json
import re
import types
import typing
from fractions import Fraction
from pathlib import Path

import pytest

from shuffledp.domain import Bins, Categories, Interval, Strings
from shuffledp.errors import ShuffledpError
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.documents import from_document
from shuffledp.protocols.parts.tokens import TokenProtocol
from shuffledp.protocols.registry import PROTOCOLS, find_qualified
from shuffledp.protocols.sum.almost_central import AlmostCentralSum
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "collection" / "randomizers.md").read_text(encoding="utf-8")
VECTORS = [
    case
    for name in ("v1/randomizers", "v2/augmented")
    for case in json.loads((ROOT / "vectors" / f"{name}.json").read_bytes())["randomizers"]
]
NAMES = {"Categories": Categories, "Interval": Interval, "Strings": Strings, "Dyadic": Dyadic, "Fraction": Fraction}
COLLECTED = [
    f"{question}/{name}"
    for question, shelf in PROTOCOLS.items()
    for name, kind in shelf.items()
    if kind.trust in ("shuffled", "augmented", "local") and not kind.trusts_shuffler
]
TYPES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "true or false",
    Dyadic: "probability",
    Fraction: "fraction",
    Target: "terms",
    Interval: "interval",
    Bins: "bins",
    Strings: "strings",
    tuple[Slots, ...]: "list of blankets",
    Categories | None: "names",
    tuple[int, ...]: "list of integers",
    tuple[tuple[int, int], ...]: "list of pairs",
    tuple[tuple[int, int, int], ...]: "list of ranges",
}


def section(name):
    found = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no section {name}"
    return found[1]


def table(text, heading):
    """First and second column of a table, several names in one cell apart."""
    rows = re.search(rf"^\| {heading} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    cells = [[cell.strip() for cell in row.strip("|\n").split("|")] for row in rows.splitlines()]
    return {name: cell[1] for cell in cells for name in re.findall("`([^`]+)`", cell[0])}


def parameters_of(kind, prefix=""):
    """Every parameter of a document with its type, parts of objects as `object.part`."""
    hints = typing.get_type_hints(kind, localns=NAMES)
    found = {}
    for field in (field for field in dataclasses.fields(kind) if field.init):
        hint, name = hints[field.name], prefix + field.metadata.get("document", field.name)
        if hint in TYPES:
            found[name] = TYPES[hint]
        elif typing.get_origin(hint) is types.UnionType:  # the keys of either version, beside the others
            inner = f"{name}." if kind is AlmostCentralSum else prefix
            for choice in typing.get_args(hint):
                found |= parameters_of(choice, inner) if choice is not type(None) else {}
        else:
            found |= parameters_of(hint, f"{name}.")
    if issubclass(kind, TokenProtocol):  # terms and more in one object
        found["noise"], found["noise.absence"] = found.pop("terms"), found.pop("absence")
    return found


def test_every_protocol_that_a_task_can_name_has_a_section():
    assert re.findall("^### (.*/.*)$", PAGE, re.MULTILINE) == [
        name
        for question in ("count", "histogram", "sum", "quantiles", "strings")
        for name in COLLECTED
        if name.startswith(f"{question}/")
    ]


@pytest.mark.parametrize("name", COLLECTED)
def test_the_parameters_of_a_protocol(name):
    assert table(section(name), "parameter") == parameters_of(find_qualified(name))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("terms", Target), ("interval", Interval), ("bins", Bins), ("strings", Strings), ("blanket", Slots)],
)
def test_the_objects_that_protocols_share(name, kind):
    assert table(PAGE, name) == parameters_of(kind)


def test_the_types():
    words = re.search(r"\| type \|.*\n\|[ |-]+\n((?:\|.*\n)+)", PAGE)[1]
    for word in ("integer", "probability", "fraction", "number", "names", "terms", "interval", "bins", "blanket"):
        assert re.search(rf"^\|.*\b{word}\b.*\|", words, re.MULTILINE)


@pytest.mark.parametrize("name", COLLECTED)
def test_what_a_section_says(name):
    """The form of a message, how many there are, what is left in a collusion, and code in words that are explained."""
    text = section(name)
    assert re.search(r"[Bb]ounds|flags", text)
    assert re.search(r"[Mm]aximum (\d|k|m\b|R|bits|messages)|no maximum", text)
    assert ("no maximum" in text) == (f"`{name}`" in re.search("Four protocols have no maximum: (.*)", PAGE)[1])
    assert "`local_epsilon`" in text
    assert ("Local: " in text) == (find_qualified(name).trust == "local")
    code = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    assert "send" in code
    explained = {*re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE), "h", "h_t", "min", "max"}
    assert set(re.findall(r"\b([a-z_]+)\(", code)) <= explained


@pytest.mark.parametrize("name", COLLECTED)
def test_what_is_recomputed(name):
    """The table of formulas has every protocol, or that it is local."""
    rows = PAGE[PAGE.index("| protocol | delta at epsilon") :]
    first = "\n".join(row.split("|")[1] for row in rows.splitlines() if row.startswith("| "))
    question, short = name.split("/")
    local = find_qualified(name).trust == "local"
    assert local or f"`{name}`" in first or (question == "histogram" and f", `{short}`" in first)


def test_it_is_found():
    """Whoever reads about the format or the vectors is led here."""
    for path in ("docs/collection/wire-format.md", "docs/collection/index.md", "vectors/README.md"):
        assert "randomizers" in (ROOT / path).read_text(encoding="utf-8"), path
    readme = (ROOT / "vectors" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "vectors" / "v1").iterdir():
        assert f"| `{path.name}` |" in readme
    for key in VECTORS[0]:
        assert f"`{key}`" in readme, key


NEVER, ALWAYS, FAIR = {"numerator": 0, "bits": 2}, {"numerator": 4, "bits": 2}, {"numerator": 2, "bits": 2}
OUT_OF_RANGE = {
    "count/balcer-cheu": {"noise.absence": [NEVER, ALWAYS], "noise.users": [1], "noise.delta": ["0.0"]},
    "count/cheu": {"flip": [NEVER, {"numerator": 3, "bits": 2}]},
    "count/correlated-noise": {
        "ratio": [NEVER, ALWAYS],
        "flood_shape": ["0/1", "-1/1"],
        "flood_ratio": [NEVER, ALWAYS],
        "encoding": ["other"],
    },
    "count/pure-sum": {
        "weights": [[], [1, 1], [hex(1 << 63), 0, 0, hex(1 << 63)], [hex(1 << 61), hex(3 << 61), hex(1 << 63)]],
        "mix": [NEVER, ALWAYS],
        "certified_users": [1, 5],
    },
    "count/shuffler-laplace": {"ratio": [NEVER, ALWAYS], "shift": [0, (1 << 24) + 1]},
    "count/randomized-response": {"blanket": [NEVER]},
    "histogram/balcer-cheu": {"noise.absence": [NEVER, ALWAYS], "categories": [["a", "b"], ["a", "b", "b"]]},
    "histogram/cheu": {"flip": [NEVER, FAIR], "form": ["other"]},
    "histogram/count-min": {
        "gamma": [NEVER, ALWAYS],
        "buckets": [1],
        "hashes": [[], [[2, 0]], [[0, 3]], [[0]]],
        "domain_size": [1 << 31],
    },
    "histogram/hadamard-blanket": {"blanket.whole": [-1], "hashes": [0, 63], "domain_size": [1 << 32]},
    "histogram/shuffled-k-rr": {"blanket": [NEVER]},
    "histogram/solh": {"blanket": [NEVER, ALWAYS], "buckets": [1], "domain_size": [1 << 31]},
    "histogram/uniform-blanket": {"blanket.whole": [-1]},
    "histogram/hashed-blanket": {"blanket.whole": [-1], "buckets": [1], "domain_size": [1 << 31]},
    "histogram/fake-users": {"flip": [NEVER, FAIR], "fake_rows": [0]},
    "histogram/correlated-noise": {"ratio": [NEVER, ALWAYS], "flood_shape": ["0/1"], "flood_ratio": [NEVER, ALWAYS]},
    "histogram/shuffler-laplace": {"ratio": [NEVER, ALWAYS], "shift": [0, (1 << 24) + 1]},
    "histogram/shuffler-geometric": {"ratio": [NEVER, ALWAYS], "keep": [NEVER, ALWAYS]},
    "histogram/k-rr": {"blanket": [NEVER]},
    "histogram/unary": {"own_one": [{"numerator": 1, "bits": 2}, ALWAYS], "other_one": [NEVER]},
    "histogram/local-hashing": {"blanket": [NEVER], "hashes.prime": [2, 1 << 31], "hashes.buckets": [1, 4]},
    "histogram/hadamard-response": {"blanket": [NEVER], "blocks": [0, 3]},
    "histogram/bassily-smith": {"blanket": [NEVER]},
    "sum/cheu": {"bits": [0, (1 << 20) + 1], "flip": [NEVER, FAIR]},
    "sum/privacy-blanket": {"levels": [0, (1 << 16) + 1], "blanket": [NEVER, ALWAYS]},
    "sum/split-and-mix": {
        "terms.users": [18],
        "levels": [0],
        "ratio": [NEVER, ALWAYS],
        "messages": [3],
        "modulus": [1, 12, hex(1 << 63)],
    },
    "sum/almost-central": {
        "noise.levels": [0, (1 << 14) + 1],
        "noise.ratio": [NEVER, ALWAYS],
        "noise.shape": [1],
        "noise.step": ["0.0", "1.0"],
        "noise.spare": ["0.0"],
    },
    "sum/duchi": {"blanket": [NEVER]},
    "sum/piecewise": {"levels": [0, 1 << 20], "step": [0], "window": [0], "outside": [NEVER, FAIR]},
    "sum/local-laplace": {"levels": [0, (1 << 20) + 1], "ratio": [NEVER, ALWAYS], "margin": [-1, hex(1 << 62)]},
    "quantiles/correlated-noise": {
        "domain.bins": [1, (1 << 20) + 1],
        "branching": [[], [2], [2, 1], [2, 2, 2], [2] * 21, [3, 2], [1 << 52, 2]],
        "ratio": [NEVER, ALWAYS],
        "flood_shape": ["0/1"],
        "flood_ratio": [NEVER, ALWAYS],
    },
    "quantiles/uniform-blanket": {
        "domain.bins": [1, (1 << 20) + 1],
        "branching": [[], [2], [2, 1], [2, 2, 2], [2] * 21, [3, 2], [1 << 52, 2]],
        "blankets": [[], [{"whole": 0, "rest": FAIR}], [{"whole": -1, "rest": FAIR}] * 2],
    },
    "strings/tree-blanket": {
        "domain.alphabet": ["", "aa", "z-a", "a-", "\x01"],
        "domain.max_length": [-1, 513],
        "blanket.whole": [-1],
        "buckets": [0, 1, 1 << 32],
        "levels": [0, 257],
        "tail": [-1, 2],
        "first_bits": [0, 25],
        "seed": [-1, hex(1 << 64)],
    },
}
OF_ALL = {
    "terms.users": [0],
    "terms.epsilon": ["-1.0"],
    "terms.delta": ["1.0", "-0.1"],
    "terms.honest_fraction": ["0.0", "1.5"],
    "domain.upper": ["-1.0", "inf"],
    "domain.lower": ["nan"],
    "domain_size": [0],
}


@pytest.mark.parametrize("name", COLLECTED)
def test_what_is_out_of_range_is_refused(name):
    """The ranges of the page are those of the library; whether by the protocol or by its distribution is no matter."""
    good = next(case["protocol"] for case in VECTORS if case["protocol"]["protocol"] == name and case["guarantee"])
    assert from_document(good).guarantee
    for path, values in (OUT_OF_RANGE[name] | OF_ALL).items():
        *steps, last = path.split(".")
        for value in values:
            bad = copy.deepcopy(good)
            place = bad["parameters"]
            for step in steps:
                place = place.get(step, {})
            if last in place:
                place[last] = value
                with pytest.raises((ShuffledpError, ArithmeticError)):  # a client refuses the task on either
                    _ = from_document(bad).guarantee
            else:
                assert path in OF_ALL
