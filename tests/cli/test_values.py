"""``shuffledp run``: how a column is read, in every kind of file, and what is said about it.

Discrete Laplace noise at epsilon 5 is beyond 30 with probability below 1e-30: counts tell values apart for certain.
"""

import pyarrow as pa
import pyarrow.parquet
import pytest

TARGET = ("--epsilon", 5, "--delta", 1e-6)
HISTOGRAM = ("--column", "m", *TARGET, "--protocol", "discrete-laplace")


@pytest.fixture
def files(tmp_path):
    """The same column of 900 rows, every third missing, in one column, in two, and as Parquet."""
    values = ["a", "", "b"] * 300
    (tmp_path / "one.csv").write_text("m\n" + "".join(f"{value}\n" for value in values))
    (tmp_path / "two.csv").write_text("m,n\n" + "".join(f"{value},1\n" for value in values))
    (tmp_path / "windows.csv").write_bytes(b"m\r\n" + b"".join(f"{value}\r\n".encode() for value in values))
    table = pa.table({"m": [value or None for value in values]})
    pa.parquet.write_table(table, tmp_path / "null.parquet")
    return ("one.csv", "two.csv", "windows.csv", "null.parquet")


def test_empty_lines_are_missing_values_like_any_other(shuffledp, files):
    """They vanished: the number of users that was published depended on who left the field empty."""
    errors, caveats = set(), set()
    for name in files:
        errors.add(shuffledp("run", "histogram", name, *HISTOGRAM, "--domain", "a,b").error)
        dropped = shuffledp("run", "histogram", name, *HISTOGRAM, "--domain", "a,b", "--drop-missing", "--json").json
        caveats.add((dropped["users"], *dropped["caveats"]))
        other = shuffledp("run", "histogram", name, *HISTOGRAM, "--domain", "a,b", "--other", "none", "--json").json
        assert (other["users"], other["caveats"]) == (900, [])
        assert abs(other["counts"][2] - 300) < 30
        assert "300 values are missing" in shuffledp("run", "count", name, *HISTOGRAM, "--equals", "a").error
    assert len(errors) == len(caveats) == 1
    assert "300 values are missing. Use --other NAME" in errors.pop()
    users, caveat = caveats.pop()
    assert users == 600
    assert "Rows without a value were left out" in caveat


def test_values_that_mean_a_missing_one(shuffledp, tmp_path):
    (tmp_path / "na.csv").write_text("m\n" + "1\nNA\n2\n?\n" * 100)
    run = ("run", "histogram", "na.csv", *HISTOGRAM, "--domain", "1,2")
    refused = shuffledp(*run).error
    assert "200 values are outside the domain (for example 'NA', '?')" in refused
    assert "If 'NA' or '?' stands for a missing value, use --missing NA,?." in refused
    assert "200 values are missing" in shuffledp(*run, "--missing", "NA,?").error
    done = shuffledp(*run, "--missing", " NA, ?", "--drop-missing", "--json")
    assert done.json["users"] == 200
    assert "left out" in done.json["caveats"][0]
    assert "is counted as a value" not in done.err
    noted = shuffledp(*run, "--other", "else", "--json")
    assert noted.json["users"] == 400
    assert noted.json["caveats"] == []  # which values occur is not for the release
    for marker in ("NA", "?"):
        hint = f"'{marker}' is counted as a value; if it stands for a missing one, use --missing {marker}."
        assert hint in " ".join(noted.err.split())
    named = shuffledp("run", "histogram", "na.csv", *HISTOGRAM, "--domain", "1,2,NA,?", "--json")
    assert "is counted as a value" not in named.err
    from_data = shuffledp("run", "histogram", "na.csv", *HISTOGRAM, "--domain-from-data", "--json")
    assert "'NA' is counted as a value" in from_data.err
    assert "cannot be both a value" in shuffledp(*run, "--missing", "NA,1.0").error
    assert "an empty name" in shuffledp(*run, "--missing", "NA,,?").error
    numbers = ("--column", "m", "--lower", 0, "--upper", 2, "--protocol", "laplace", *TARGET)
    assert "--missing NA,?" in shuffledp("run", "sum", "na.csv", *numbers).error
    mean = shuffledp("run", "mean", "na.csv", *numbers, "--missing", "NA,?", "--drop-missing", "--json").json
    assert (mean["users"], mean["statistic"]) == (200, "mean")
    assert mean["value"] == pytest.approx(1.5, abs=0.3)
    yes = ("--column", "m", *TARGET, "--protocol", "discrete-laplace", "--drop-missing")
    assert "--missing NA,?" in shuffledp("run", "count", "na.csv", *yes).error
    counted = shuffledp("run", "count", "na.csv", *yes, "--missing", "NA,?,2.0", "--json").json
    assert counted["users"] == 100


@pytest.mark.parametrize("domain", ["True,False", "true,false", "TRUE,FALSE"])
def test_booleans(shuffledp, tmp_path, domain):
    values = [True, False, True] * 100
    pa.parquet.write_table(pa.table({"m": values}), tmp_path / "b.parquet")
    (tmp_path / "b.csv").write_text("m\n" + "".join(f"{value}\n" for value in values))
    for name in ("b.parquet", "b.csv"):
        done = shuffledp("run", "histogram", name, *HISTOGRAM, "--domain", domain, "--json").json
        assert done["categories"] == domain.split(",")
        assert abs(done["counts"][0] - 200) < 30


def test_whole_numbers_with_a_point(shuffledp, tmp_path):
    pa.parquet.write_table(pa.table({"m": [1.0, 2.0, 1.0] * 100}), tmp_path / "n.parquet")
    (tmp_path / "n.csv").write_text("m\n" + "1.0\n2.0\n1.0\n" * 100)
    for name in ("n.parquet", "n.csv"):
        done = shuffledp("run", "histogram", name, *HISTOGRAM, "--domain", "1,2", "--json").json
        assert abs(done["counts"][0] - 200) < 30


def test_a_domain_from_data_is_sorted_by_what_numbers_are(shuffledp, tmp_path):
    (tmp_path / "s.csv").write_text("m\n" + "9\n1_0\n10\n\uff11\n" * 100, encoding="utf-8")
    done = shuffledp("run", "histogram", "s.csv", *HISTOGRAM, "--domain-from-data", "--json").json
    assert done["categories"] == ["9", "10", "1_0", "\uff11"]
