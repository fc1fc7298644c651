"""``shuffledp run histogram`` of numbers in bins and of dates in periods."""

import pytest

EXACT = ("--epsilon", "50", "--delta", "1e-6", "--protocol", "discrete-laplace", "--json")


@pytest.fixture
def data(tmp_path):
    lines = [f"{age},2024-{1 + age % 3:02}-15 {age % 24:02}:30" for age in range(100)]
    (tmp_path / "people.csv").write_text("age,when\n" + "\n".join(lines * 20) + "\n")


@pytest.mark.parametrize(
    ("options", "categories", "counts"),
    [
        (("age", "--bins", "0,18,65,99"), ["[0, 18)", "[18, 65)", "[65, 99]"], [360, 940, 700]),
        (("age", "--bins", "2", "--lower", "0", "--upper", "100"), ["[0, 50)", "[50, 100]"], [1000, 1000]),
        (("age", "--bins", "0,50", "--other", "older"), ["[0, 50]", "older"], [1020, 980]),
        (("age", "--bins", "0,25,50", "--clip"), ["[0, 25)", "[25, 50]"], [500, 1500]),
        (
            ("when", "--by", "month", "--lower", "2024-01-01", "--upper", "2024-03-31"),
            ["2024-01", "2024-02", "2024-03"],
            [680, 660, 660],
        ),
    ],
)
def test_bins_and_periods(shuffledp, data, options, categories, counts):
    done = shuffledp("run", "histogram", "people.csv", "--column", *options, *EXACT)
    assert done.status == 0, done.err
    result = done.json
    assert result["categories"] == categories
    assert [round(count) for count in result["counts"]] == counts
    assert result["domain"] == "given"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bins", "0,18", "--by", "hour"), "in one way"),
        (("--bins", "0,18", "--domain", "a,b"), "in one way"),
        (("--bins", "0,x"), "'x' is not a number"),
        (("--bins", "10"), "give --lower L and --upper U"),
        (("--bins", "0,10,100", "--upper", "90"), "do not cover the bounds: upper is 90"),
        (("--by", "fortnight"), "no period 'fortnight'"),
        (("--lower", "3", "--domain", "a,b"), "belong to --bins and --by"),
    ],
)
def test_wrong_usage_is_one_line_and_writes_nothing(shuffledp, data, tmp_path, options, words):
    before = sorted(tmp_path.iterdir())
    done = shuffledp("run", "histogram", "people.csv", "--column", "age", *options, *EXACT, "--out", "r.json")
    assert done.status == 2
    assert words in done.error
    assert sorted(tmp_path.iterdir()) == before
