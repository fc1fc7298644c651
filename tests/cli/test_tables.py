"""Tables on the terminal: numbers are never cut, wrapped or lost, whatever the names are."""

import pytest
from rich.cells import cell_len

from shuffledp.cli.screen import print_table

LONG = "a name that goes on and on, " * 12
NAMES = {
    "short": ["bus", "bike"],
    "long": [LONG, "x" * 5000],
    "long with the same beginning": [LONG + "north", LONG + "south"],
    "wide": ["地下鉄" * 40, "電車"],
    "accents": ["e" + "\u0301" * 9000, "a\u0308" * 300],
    "blank": ["", "   "],
    "control": ["\x1b[31mred\x1b[0m\x07", "two\nlines\tand\ra return", "\u202eright to left", "\x9b2J", "\u200b"],
    "markup": ["[red]", "[/]", "[bold]" * 40, "[link=file:///]here[/link]", ":smile:", "\\[red]"],
}
NUMBERS = ["1,234,567", "1,234,000 to 1,235,111", "99.99%"]


@pytest.fixture
def printed(capfd, monkeypatch):
    def lines(columns, rows, width):
        monkeypatch.delenv("COLUMNS", raising=False)
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        capfd.readouterr()
        print_table(columns, rows)
        return capfd.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200, None], ids=lambda width: f"{width or 'piped'}")
@pytest.mark.parametrize("kind", NAMES)
def test_every_number_is_whole_on_a_line_of_its_row(printed, kind, width):
    rows = [[name, *NUMBERS] for name in NAMES[kind]]
    lines = printed(["mode", "users", "95% interval", "share"], rows, width)
    for number in NUMBERS:
        assert sum(number in line for line in lines) == len(rows), lines
    width = width or 80
    if width >= 60:
        assert sum(all(number in line for number in NUMBERS) for line in lines) == len(rows)
    if width >= 40:
        assert max(map(cell_len, lines)) <= width, lines
    assert all(line.isprintable() for line in lines)


def test_long_names_end_in_an_ellipsis_and_stay_distinct(printed):
    lines = printed(["mode", "users"], [[name, "7"] for name in NAMES["long with the same beginning"]], 60)
    assert sum("north" in line and "…" in line for line in lines) == 1
    assert sum("south" in line and "…" in line for line in lines) == 1
    (line,) = [line for line in printed(["mode", "users"], [[LONG, "7"]], 60) if "a name" in line]
    assert line.startswith("│ a name that goes on and on,")
    assert "…" in line
    assert "7" in line


def test_names_that_fit_are_shown_as_they_are(printed):
    lines = printed(["mode", "users"], [["[red]", "1"], ["地下鉄", "2"], ["", "3"]], 80)
    assert [line.split("│")[1].strip() for line in lines[3:-1]] == ["[red]", "地下鉄", '""']


def test_a_table_that_does_not_fit_becomes_blocks(printed):
    lines = printed(["mode", "users", "95% interval", "share"], [["bus", *NUMBERS]], 40)
    assert lines == [
        "bus",
        "  users         1,234,567",
        "  95% interval  1,234,000 to 1,235,111",
        "  share         99.99%",
    ]


def test_words_are_wrapped_before_names_are_shortened(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "46")
    print_table(["protocol", "noise", "error"], [["hadamard-blanket", "tight, hashes 17", "1,234.5"]], words=1)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split("│")[1:-1] for line in lines[3:-1]] == [
        [" hadamard-blanket ", " tight, hashes ", " 1,234.5 "],
        [" " * 18, "            17 ", " " * 9],
    ]


def test_a_heading_is_wrapped_before_names_become_unreadable(printed):
    lines = printed(["mode", "private estimate", "off by"], [["x" * 50, "1,234", "+5"]], 40)
    assert any("private" in line for line in lines)
    assert not any("private estimate" in line for line in lines)
    assert any("xxxxxxxx" in line and "1,234" in line and "+5" in line for line in lines)


def test_output_that_cannot_hold_the_characters_shows_question_marks(shuffledp_process, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    _survey(tmp_path / "survey.csv", ["地下鉄", LONG.replace(",", ";")])
    done = shuffledp_process(*_histogram("地下鉄", LONG.replace(",", ";")))
    assert done.status == 0, done.err
    assert "a name that goes on" in done.out
    assert "..." in done.out
    assert "???" in done.out


def test_a_piped_histogram_keeps_its_numbers(shuffledp, tmp_path):
    """The terminal table of a run with long names, to something that is no terminal."""
    names = [f"{LONG.replace(',', ';')}{end}" for end in ("north", "south")]
    _survey(tmp_path / "survey.csv", names)
    done = shuffledp(*_histogram(*names))
    assert done.status == 0, done.err
    rows = [line for line in done.out.splitlines() if "a name" in line]
    assert len(rows) == 2
    assert all(" to " in row and "%" in row and cell_len(row) <= 100 for row in rows), done.out


def _survey(path, names):
    path.write_text("place,n\n" + "".join(f"{name},1\n" for name in names for _ in range(600)), encoding="utf-8")


def _histogram(*names):
    target = ["--epsilon", "1", "--delta", "1e-6", "--protocol", "balcer-cheu"]
    return ["run", "histogram", "survey.csv", "--column", "place", "--domain", ",".join(names), *target]
