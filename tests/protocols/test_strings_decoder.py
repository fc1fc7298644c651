"""The decoder of tree-blanket: what is found, with which counts, and how well that is predicted.

Statistical tests state their alpha, 1e-6; they are unseeded.
"""

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, poisson

import shuffledp as sdp
from shuffledp.native import ACTIVE
from shuffledp.protocols.strings import tree as tree_module
from shuffledp.protocols.strings.decoder import Decoder
from shuffledp.protocols.strings.search import search
from shuffledp.protocols.strings.search_plan import Cells, SearchSettings, plan_search
from shuffledp.protocols.strings.tree import StringTree
from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings

NOISE = SearchSettings(evaluations=2e5)
QUICK = SearchSettings(evaluations=2e5, false_strings=1e-9)  # tests of frequent strings expect no others


def protocol_for(users, alphabet="a-z", max_length=5, **options):
    return TreeBlanketStrings.calibrate(
        users=users, epsilon=1.0, delta=1e-6, alphabet=alphabet, max_length=max_length, **options
    )


def decoded(protocol, held, **options):
    """The estimate of a round over these counts; the rest of the users hold the empty string."""
    rest = protocol.users - sum(held.values())
    held = held | {"": held.get("", 0) + rest}
    rows = np.empty((len(held), 2), dtype=protocol.domain.index_type)
    rows[:, 0], rows[:, 1] = [protocol.domain.encode(text) for text in held], list(held.values())
    return protocol.find_strings(protocol.sample_tally(rows), settings=options.pop("settings", QUICK), **options)


def random_strings(number, length, alphabet="abcdefghijklmnopqrstuvwxyz"):
    rng = np.random.default_rng()
    drawn = {"".join(rng.choice(list(alphabet), length)) for _ in range(number)}
    return sorted(drawn)


@pytest.mark.skipif(not ACTIVE, reason="the kernels are not built")
@pytest.mark.parametrize(("alphabet", "length"), [("a-z", 0), ("a-z", 1), ("a-z", 7), ("a-z", 15), ("bytes", 20)])
def test_kernel_and_numpy_twin_find_the_same(monkeypatch, alphabet, length):
    from shuffledp.native import _prefixes

    rng = np.random.default_rng()
    tree = StringTree(sdp.Strings(alphabet, length), 5000, 24, 6, 10, 5)
    counts = rng.poisson(2.0, (24, 5000))
    word = tree.word(tree.domain.size - 1)
    counts[np.arange(24), tree.cells([word])[0]] += 30
    symbols = (counts + 1).astype(np.uint8)
    plan = plan_search(Cells.of(symbols), length, tree.depths(length), settings=QUICK, largest_count=1e6)
    results = [search(tree, plan, symbols, nodes=20_000, native=native) for native in (True, False)]
    monkeypatch.setattr(_prefixes, "extend", partial(_prefixes.extend, portable=True))
    assert np.array_equal(search(tree, plan, symbols, nodes=20_000).words, results[0].words)
    assert results[0].words.shape == results[1].words.shape
    assert np.array_equal(results[0].words, results[1].words)
    assert np.array_equal(results[0].scores, results[1].scores)
    assert results[0].evaluated == results[1].evaluated
    limbs = tree.as_limbs(*[length, [word[1]]])
    assert any(np.array_equal(row, limbs[0]) for row in results[0].words)


def test_kernel_and_twin_decode_the_same():
    protocol = protocol_for(3000, max_length=4)
    held = {"abcd": 900, "x": 400, "": 1700}
    rows = np.array([(protocol.domain.encode(text), count) for text, count in held.items()])
    counts = protocol.sample_tally(rows).counts.reshape(protocol.levels, protocol.buckets)
    runs = [Decoder(protocol.tree, counts, 3000, QUICK, native=native).decode() for native in {ACTIVE, False}]
    assert len({tuple((string.index, string.count) for string in run.found) for run in runs}) == 1


def test_frequent_strings_are_found_with_their_counts():
    protocol = protocol_for(10_000)
    held = {"shufl": 2000, "noise": 700, "x": 400, "ab": 200}
    estimate = decoded(protocol, held)
    assert set(estimate.strings) == {*held, ""}
    counts = dict(zip(estimate.strings, estimate.counts, strict=True))
    for text, count in (held | {"": 10_000 - sum(held.values())}).items():
        assert abs(counts[text] - count) < 8 * 8.0 + 0.05 * count
    low, high = estimate.interval(1 - 1e-7).T
    truth = np.array([(held | {"": 6700})[text] for text in estimate.strings])
    assert np.all((low <= truth) & (truth <= high))
    assert list(estimate.counts) == sorted(estimate.counts, reverse=True)


@pytest.mark.parametrize(
    ("alphabet", "length", "text"),
    [("a-z", 5, "bytes"), ("a-z", 5, ""), ("a", 3, "aa"), ("ab", 5, "abbab"), ("a-z", 0, ""), ("bytes", 4, "é€"[:1])],
)
def test_a_string_that_everybody_holds(alphabet, length, text):
    protocol = protocol_for(2000, alphabet, length)
    estimate = decoded(protocol, {text: 2000})
    assert estimate.strings == (text,)
    assert abs(estimate.counts[0] - 2000) < 120


def test_strings_that_differ_in_the_last_letter():
    protocol = protocol_for(6000)
    held = {"stria": 600, "strib": 500, "stric": 400, "strid": 300}
    estimate = decoded(protocol, held)
    assert set(estimate.strings) == {*held, ""}


@pytest.mark.slow
def test_a_common_prefix_of_sixty_symbols():
    prefix = "https".ljust(60, "x")
    protocol = protocol_for(30_000, max_length=64)
    held = {prefix + "abcd": 3000, prefix + "abce": 2500, prefix + "b": 2000, prefix: 2000}
    estimate = decoded(protocol, held)
    assert set(estimate.strings) == {*held, ""}


def test_no_false_string_in_a_few_rounds_of_noise():
    rounds_of_noise(2, max_length=4)


@pytest.mark.slow
def test_no_false_string_in_twenty_rounds_of_noise():
    rounds_of_noise(20, max_length=8)


def rounds_of_noise(rounds, max_length):
    """Ten thousand users with as many strings; the expected number of false ones per length and pass is a setting.

    Poisson, alpha 1e-6; over twenty rounds of nine lengths 0.04 are expected.
    """
    protocol = protocol_for(10_000, max_length=max_length)
    false = 0
    for _ in range(rounds):
        indices = np.random.default_rng().integers(0, protocol.domain.size, 10_000)
        estimate = protocol.find_strings(protocol.sample_tally(protocol.summary(indices)), settings=NOISE)
        false += len(set(estimate.strings) - {protocol.domain.string(int(index)) for index in indices})
        assert len(estimate) <= 1
    expected = rounds * 2 * (max_length + 1) * NOISE.false_strings
    assert poisson.sf(false - 1, expected) > 1e-6


def recall_rows(users, each, lengths, shares=(0.6, 0.75, 0.9, 1.0, 1.3)):
    """One round of random strings: for each length and count, how many were found, and with which probability."""
    protocol = protocol_for(users, max_length=max(lengths), seed=int(np.random.default_rng().integers(1 << 62)))
    groups, held = [], {}
    for length in lengths:
        for share in shares:
            count = round(protocol.expected_found_from(length) * share)
            texts = [text for text in random_strings(each, length) if text not in held]
            groups.append((length, count, texts))
            held |= dict.fromkeys(texts, count)
    estimate = decoded(protocol, held, settings=SearchSettings())
    listed = set(estimate.strings)
    assert len(listed - held.keys() - {""}) <= 8
    return [
        (
            len(listed.intersection(texts)),
            len(texts),
            estimate.recall(length, count),
            estimate.recall(length, count * 0.85),
        )
        for length, count, texts in groups
    ]


def least_tail(rows, column):
    """The least probability of a number found, or one farther from its prediction, of all rows."""
    return min(min(binom.cdf(row[0], row[1], row[column]), binom.sf(row[0] - 1, row[1], row[column])) for row in rows)


def test_predicted_recall_of_a_small_round():
    """Three counts and two lengths of 60 strings each; binomial, alpha 1e-6 over all six."""
    rows = recall_rows(60_000, 60, (3, 8), (0.75, 0.9, 1.3))
    assert 2 * len(rows) * least_tail(rows, 2) > 1e-6, rows


@pytest.mark.slow
def test_predicted_recall_is_the_measured_one():
    """Five counts and three lengths of 400 strings each; binomial, alpha 1e-6 over all fifteen.

    Planted: the prediction for 15 % fewer users, which is rejected.
    """
    rows = recall_rows(1_000_000, 400, (4, 8, 12))
    assert 2 * len(rows) * least_tail(rows, 2) > 1e-6, rows
    assert 2 * len(rows) * least_tail(rows, 3) < 1e-6, rows


@pytest.mark.slow
@pytest.mark.parametrize(("users", "length", "shares"), [(200_000, 34, (0.9, 1.0, 1.2)), (300_000, 54, (0.9, 1.1))])
def test_predicted_recall_of_words_above_128_bits(users, length, shares):
    """Words of 160 and 254 bits, 100 strings per count; binomial, alpha 1e-6 over all counts."""
    rows = recall_rows(users, 100, (length,), shares)
    assert 2 * len(rows) * least_tail(rows, 2) > 1e-6, rows


@pytest.mark.slow
def test_a_tree_without_a_tail_takes_siblings_for_strings():
    """Planted: without levels that cover the whole word, the last bits of a string are hardly distinguished."""
    held = dict.fromkeys(random_strings(80, 14), 170)
    right = decoded(protocol_for(20_000, max_length=14), held)
    wrong = decoded(protocol_for(20_000, max_length=14, tail=0), held)
    mistakes = [len(set(estimate.strings) ^ {*held, ""}) for estimate in (right, wrong)]
    assert mistakes[0] <= 6 < mistakes[1]


@pytest.mark.slow
def test_without_scrambling_a_common_prefix_spoils_the_search(monkeypatch):
    """Planted: strings with a common prefix share all early cells, which then say nothing about their counts.

    Binomial against the predicted recall, alpha 1e-6; errors of counts besides.
    """
    protocol = protocol_for(60_000, max_length=9)
    count = round(protocol.expected_found_from(9))
    held = dict.fromkeys(("wwwwww" + text for text in random_strings(200, 3)), count)
    monkeypatch.setattr(tree_module.StringTree, "scramble", lambda self, length, number: number)
    monkeypatch.setattr(tree_module.StringTree, "unscramble", lambda self, length, word: word)
    estimates = [decoded(protocol, held, settings=SearchSettings())]
    monkeypatch.undo()
    estimates.append(decoded(protocol, held, settings=SearchSettings()))
    found = [set(estimate.strings) & set(held) for estimate in estimates]
    recall = estimates[1].recall(9, count)
    chances = [binom.cdf(len(texts), len(held), recall) for texts in found]
    assert chances[0] < 1e-6 < chances[1], (recall, [len(texts) for texts in found], len(held))
    right = [number for text, number in zip(estimates[1].strings, estimates[1].counts, strict=True) if text in held]
    assert np.sqrt(np.mean((np.array(right) - count) ** 2)) < 10


def test_listed_candidates_need_fewer_users():
    texts = random_strings(60, 5)
    protocol = protocol_for(20_000)
    held = dict.fromkeys(texts, 56)
    alone = decoded(protocol, held, settings=NOISE)
    listed = [*texts, *random_strings(500, 5), "not in the domain"]
    helped = decoded(protocol, held, settings=NOISE, candidates=listed)
    assert len(set(helped.strings) & set(texts)) > len(set(alone.strings) & set(texts)) + 10
    assert len(set(helped.strings) & set(texts)) > 30  # predicted: nearly all of 60
    assert len(set(helped.strings) - {*texts, ""}) <= 3  # siblings of strings that are not found


def test_tallies_of_parts_decode_like_the_whole():
    protocol = protocol_for(4000, max_length=4)
    values = protocol.domain.encode_all(["abcd"] * 3000 + ["x"] * 1000)
    messages = protocol.randomize_all(values)
    parts = [
        protocol.tally(sdp.Messages(part, users))
        for part, users in zip(np.array_split(messages.values, [11_000]), (1000, 3000), strict=True)
    ]
    assert parts[0] + parts[1] == protocol.tally(messages)
    estimate = protocol.estimate(parts[0] + parts[1])
    assert set(estimate.strings) == {"abcd", "x"}


def test_the_search_is_bounded_by_its_settings():
    protocol = protocol_for(10_000)
    estimate = decoded(protocol, {"abcde": 3000}, settings=SearchSettings(evaluations=1e5, nodes=200))
    assert any("memory limit" in caveat for caveat in estimate.caveats)


def test_progress_reaches_the_end():
    steps = []
    decoded(protocol_for(2000, max_length=2), {"ab": 1500}, progress=steps.append)
    assert steps == sorted(steps)
    assert steps[-1] == 1.0


def test_a_block_list_hides_strings_and_says_how_many():
    estimate = decoded(protocol_for(5000, max_length=3), {"bad": 1500, "good"[:3]: 1500})
    shown = estimate.without({"bad", "other"})
    assert set(shown.strings) == {"goo", ""}
    assert shown.hidden == 1
    assert "1 string is hidden" in shown.found_sentence()
    assert shown.to_json()["hidden"] == 1
    assert shown.interval().shape == (2, 2)
