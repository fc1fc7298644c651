"""What is published: the same bytes for the same round, nothing that a browser would run, for every question."""

import csv
import html
import io
import json
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from markupsafe import Markup

from shuffledp.collection.analyzer import publishing
from shuffledp.collection.analyzer.counting import Counted
from shuffledp.collection.analyzer.estimating import estimate_round
from shuffledp.collection.analyzer.ledger import Entry
from shuffledp.collection.analyzer.publishing import Releases, json_pieces, release_document
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.domain import Bins, Interval, Strings
from shuffledp.messages import Messages, Tally

ENTRY = Entry(True, PopulationBudget(3.0, 1e-6), 2, 1.4142)
NAMES = ("histogram/k-rr", "count/balcer-cheu", "sum/duchi", "quantiles/uniform-blanket", "strings/tree-blanket")
ROWS = {"histogram": 4, "quantiles": 15}


def result_of(collection, protocol, /, users=500, **changes):
    domains = {"sum": Interval(-5.0, 5.0), "quantiles": Bins(-5.0, 5.0, 16), "strings": Strings("ab", 2)}
    question = protocol.split("/")[0]
    settings = {"domain": domains[question]} if question in domains else {}
    task = collection.task(protocol, publish=False, settings=settings, **changes)
    values = np.full(users, 0.25) if protocol.startswith("sum/") else np.arange(users) % 2
    messages = task.protocol.randomize_all(values)
    tally = task.protocol.tally(Messages(messages.values, 0))
    return estimate_round(task, Counted(tally, len(messages.values), 0), users)


def read(releases, result, kind):
    with releases.open(result.task.id, kind) as file:
        return file.read()


def written_by_arrow(table):
    """The CSV file that ``shuffledp run --out`` writes."""
    content = io.BytesIO()
    pa.csv.write_csv(table, content)
    return content.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_round_gives_the_same_bytes(shared_collection, tmp_path, name):
    result = result_of(shared_collection, name)
    contents = []
    for folder in ("one", "two"):
        releases = Releases(tmp_path / folder)
        assert releases.open(result.task.id, "json") is None
        releases.publish(result, ENTRY, 0.95)
        releases.publish(result, ENTRY, 0.95)
        contents.append({kind: read(releases, result, kind) for kind in ("json", "csv", "html")})
    assert contents[0] == contents[1]
    document = json.loads(contents[0]["json"])
    assert {key: document[key] for key in result.estimate.to_json()} == json.loads(
        json.dumps(result.estimate.to_json())
    )
    assert list(document) == list(release_document(result, ENTRY, 0.95))
    assert document["budget"] == {"epsilon": 3.0, "delta": 1e-6, "spent_epsilon": 1.4142, "releases": 2}
    rows = list(csv.DictReader(io.StringIO(contents[0]["csv"].decode())))
    assert len(rows) == ROWS.get(name.split("/")[0], len(document.get("strings", "1")))
    page = contents[0]["html"].decode()
    assert html.escape(result.estimate.guarantee.sentence().split(",")[0]).replace("&#x27;", "&#39;") in page
    assert "1.414 is spent of 3" in page
    assert "No message was rejected." in page


def test_a_page_needs_nothing_and_runs_nothing(shared_collection, tmp_path):
    evil = "</title><script>alert(1)</script>"
    result = result_of(
        shared_collection,
        "histogram/k-rr",
        name=evil,
        description='"><img src=x onerror=alert(1)>',
        categories=["<script>alert(2)</script>", "javascript:alert(3)", "&amp;", "</svg>"],
    )
    Releases(tmp_path / "r").publish(result, ENTRY, 0.95)
    page = read(Releases(tmp_path / "r"), result, "html").decode()
    assert "<script" not in page
    assert "<img src=x" not in page
    assert not re.search(r'(src|href|srcset)="|url\(', page)
    assert (page.count("<svg "), page.count("</svg>")) == (1, 1)
    assert "&lt;/svg&gt;" in _drawing(page)
    assert "prefers-color-scheme: dark" in page


HOSTILE = Strings("=+@<>&'\u202e\u200b,;\"", 2)


def result_of_strings(collection, texts, domain=HOSTILE, users=500):
    """A round in which equally many users hold each of some strings."""
    task = collection.task("strings/tree-blanket", publish=False, settings={"domain": domain}, users=users)
    values = domain.encode_all([texts[user % len(texts)] for user in range(users)])
    messages = task.protocol.randomize_all(values)
    tally = task.protocol.tally(Messages(messages.values, 0))
    return estimate_round(task, Counted(tally, len(messages.values), 0), users)


@pytest.fixture(scope="module")
def of_strings(shared_collection):
    return result_of_strings(shared_collection, ["<>", "=+"])


def test_strings_of_users_run_nothing_and_hide_nothing(shared_collection, tmp_path):
    texts = ["<>", "=+", "\u202e\u200b", "'@", '&"']
    result = result_of_strings(shared_collection, texts)
    listed = result.estimate.strings
    assert set(texts) <= set(listed)  # one is missing with probability 1e-9; a false one is rare
    Releases(tmp_path / "r").publish(result.at(0.95), ENTRY, 0.95)
    page = read(Releases(tmp_path / "r"), result, "html").decode()
    escaped = [text.replace("\u202e", r"\u202e").replace("\u200b", r"\u200b") or "(empty)" for text in listed]
    assert re.findall(r"<tr><td>(.*?)</td>", page) == [str(Markup.escape(text)) for text in escaped]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\x00-\x08]", page)
    assert (page.count("<svg "), page.count("</svg>")) == (1, 1)
    assert re.search(r"A string of 2 symbols held by \d+ or more users is in this list with probability 95%\.", page)
    assert "A string that is missing is probably held by fewer users" in page
    rows = list(csv.DictReader(io.StringIO(read(Releases(tmp_path / "r"), result, "csv").decode())))
    assert not any(row["string"].startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows)
    assert [re.sub("^'", "", row["string"]) for row in rows] == list(listed)
    document = json.loads(read(Releases(tmp_path / "r"), result, "json"))
    assert document["strings"] == list(listed)
    assert document["hidden"] == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\u2066evil\u2069", r"\u2066evil\u2069"),
        ("a\x00\x1b[31m\nb", r"a\x00\x1b[31m\nb"),
        ("pay\u200bpal\ufeff", r"pay\u200bpal\ufeff"),
        ("\u00a0\u3000", r"\xa0\u3000"),
        ("", "(empty)"),
        ("x" * 300, "x" * 79 + "…"),
    ],
)
def test_any_text_is_shown_safely(of_strings, text, shown):
    first = of_strings.estimate.part(0, 1)
    result = replace(of_strings, estimate=replace(first, strings=(text,), found_from=(40.0,) * 400))
    page = publishing.release_page(result, ENTRY, 0.95).decode()
    assert f"<tr><td>{shown}</td>" in page
    assert "<script" not in page
    assert page.count("is in this list with probability") == 1
    assert "<svg" in page


def test_hidden_strings(shared_collection, tmp_path):
    """The list is normalized as devices normalize strings, and the number of hidden strings is published."""
    domain = Strings("a-c", 2, case_fold=True, trim=True)
    result = result_of_strings(shared_collection, ["aa", "b", "c"], domain)
    shown = result.without({" AA", "b ", "missing"})
    assert {"c"} == {"aa", "b", "c"} & set(shown.estimate.strings)
    Releases(tmp_path / "r").publish(shown.at(0.95), ENTRY, 0.95)
    assert "2 strings are hidden by a block list." in read(Releases(tmp_path / "r"), shown, "html").decode()
    assert json.loads(read(Releases(tmp_path / "r"), shown, "json"))["hidden"] == 2
    nothing = result.without(result.estimate.strings)
    Releases(tmp_path / "r").publish(nothing.at(0.95), ENTRY, 0.95)
    assert read(Releases(tmp_path / "r"), nothing, "csv").decode().startswith('"string","count"')
    assert f"{len(result.estimate)} strings are hidden" in read(Releases(tmp_path / "r"), nothing, "html").decode()
    other = result_of(shared_collection, "histogram/k-rr")
    assert other.without({"bus"}) is other


def test_small_counts_are_withheld_on_the_page(shared_collection):
    """Only the first two of the categories are held; that the others are empty is not shown as a number of users."""
    result = result_of(shared_collection, "histogram/balcer-cheu")
    limit = result.estimate.withheld_below(0.95)
    assert result.estimate.withheld[2:].all()
    page = publishing.release_page(result, ENTRY, 0.95).decode()
    assert page.count(f"<td>&lt; {limit}</td>") == result.estimate.withheld.sum()
    assert "withheld with a probability of at most 2.5%" in page
    assert f"&lt; {limit}" in _drawing(page)
    document = release_document(result, ENTRY, 0.95)
    assert document["withheld_below"] == limit
    assert document["withheld"].tolist() == result.estimate.withheld.tolist()


def test_the_page_clips_estimates_and_the_json_does_not(shared_collection):
    result = result_of(shared_collection, "histogram/k-rr")
    counts = np.array([*result.estimate.counts[:-1], -17.25])
    found = replace(result.estimate, counts=counts, intervals=lambda _: np.array([[0.0, 21.5]] * len(counts)))
    result = replace(result, estimate=found)
    page = publishing.release_page(result, ENTRY, 0.95).decode()
    cells = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    (last,) = [row for row in cells if row and row[0] == html.escape(result.estimate.categories[-1])]
    assert (last[1], last[3], float(last[4].rstrip("%"))) == ("0", "0 to 22", 0.0)
    assert not re.search(r"<td>-\d", page)
    assert not re.search(r">[-\u2212]\d", _drawing(page))
    assert release_document(result, ENTRY, 0.95)["counts"][-1] == -17.25


def _drawing(page):
    return re.search("<svg .*?</svg>", page, re.DOTALL)[0]


def test_many_categories_are_cut_on_the_page_and_whole_elsewhere(shared_collection, tmp_path):
    result = result_of(shared_collection, "histogram/k-rr", categories=[f"c{i}" for i in range(300)])
    releases = Releases(tmp_path / "r")
    releases.publish(result, ENTRY, 0.9)
    assert "and 100 more" in read(releases, result, "html").decode()
    assert len(json.loads(read(releases, result, "json"))["counts"]) == 300


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_in_pieces_the_bytes_are_the_same(shared_collection, monkeypatch, rows):
    monkeypatch.setattr(publishing, "_ROWS", rows)
    for name in NAMES:
        more = {"categories": ['"', "a,b", "a b", "é", "=1+1", "\\"]} if name.startswith("histogram") else {}
        result = result_of(shared_collection, name, description="ä", **more)
        document = release_document(result, ENTRY, 0.9)
        plain = {key: each.tolist() if isinstance(each, np.ndarray) else each for key, each in document.items()}
        expected = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        assert b"".join(json_pieces(document)).decode() == expected
        if name.startswith("histogram"):  # with estimates that are integral, small and large
            counts = np.array([100.0, -3.0, 1e-7, 12345678901.5, 0.0, 0.5])
            result = replace(result, estimate=replace(result.estimate, counts=counts))
        table = result.estimate.to_table(0.9)
        assert b"".join(publishing._table_pieces(result.estimate, 0.9)) == written_by_arrow(table)


@pytest.mark.parametrize("document", [{"a": np.empty(0)}, {"a": (), "b": [1, {"c": []}], "d": None}])
def test_pieces_of_little(document):
    plain = {key: each.tolist() if isinstance(each, np.ndarray) else each for key, each in document.items()}
    assert json.loads(b"".join(json_pieces(document))) == json.loads(json.dumps(plain))


@pytest.mark.parametrize("found", [np.array([1.0, np.nan]), np.array([[1.0, np.inf]]), np.inf])
def test_no_number_is_never_written(found):
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(json_pieces({"a": found}))


def test_a_large_domain_costs_little_memory(shared_collection, tmp_path):
    """Of estimating and publishing, for each category; a small release before loads what is needed."""
    Releases(tmp_path / "r").publish(result_of(shared_collection, "histogram/k-rr"), ENTRY, 0.95)
    size = 60_000
    task = shared_collection.task(
        "histogram/k-rr", publish=False, users=1_000_000, categories=None, settings={"domain_size": size}
    )
    tally = Tally(np.random.default_rng().multinomial(1_000_000, np.full(size, 1 / size)).astype(np.int64), 0)
    tracemalloc.start()
    try:
        result = estimate_round(task, Counted(tally, 1_000_000, 0), 1_000_000).at(0.95)
        Releases(tmp_path / "r").publish(result, ENTRY, 0.95)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 * size, f"{peak / size:.0f} bytes for each category"


def test_the_page_does_not_say_that_a_round_lasted_until_its_end(shared_collection):
    """It may have been full long before."""
    page = publishing.release_page(result_of(shared_collection, "histogram/k-rr"), ENTRY, 0.95).decode()
    assert "from 2026-01-01 00:00 UTC until 2026-01-02 00:00 UTC at the latest. 500 devices randomized" in page


def test_half_written_files_of_a_killed_process_are_removed(shared_collection, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / ".abc.json.xyz").write_bytes(b"{")
    Releases(tmp_path / "r")
    assert list((tmp_path / "r").iterdir()) == []


def test_numbers_of_a_csv_file_are_written_as_arrow_writes_them():
    nasty = [0.0, -0.0, 100.0, 1e-5, 1.5e-6, 9.999e-7, -1e-7, 9999999999.5, 1e10, -1e10, 1e16, 5e-324, 1.7e308, 1 / 3]
    bits = np.random.default_rng().integers(0, 1 << 64, 20_000, dtype=np.uint64)  # any double
    scaled = np.random.default_rng().normal(size=20_000) * 10.0 ** np.random.default_rng().integers(-9, 13, 20_000)
    numbers = [*nasty, *(each for each in bits.view(np.float64).tolist() if np.isfinite(each)), *scaled.tolist()]
    expected = written_by_arrow(pa.table({"number": numbers})).decode().splitlines()[1:]
    assert [publishing._csv_cell(each) for each in numbers] == expected
