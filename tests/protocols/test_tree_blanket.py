"""strings/tree-blanket: words and cells, the exact guarantee by brute force, reports, tallies, documents."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

import shuffledp as sdp
from shuffledp.errors import InfeasibleError, ParameterError
from shuffledp.privacy.amplification import Slots
from shuffledp.protocols.strings.tree import StringTree, shifted_left, shifted_right
from shuffledp.protocols.strings.tree_blanket import TreeBlanketStrings, default_levels
from shuffledp.protocols.target import Target
from shuffledp.randomness import Dyadic

WORDS = {
    "": (0, 0x0, (0, 0, 0, 0), (86318, 109476, 27048, 228085)),
    "a": (5, 0x1B, (5, 5, 5, 5), (104930, 30058, 7380, 199203)),
    "hello": (24, 0xA57782, (16, 17, 17, 18), (102169, 162056, 81038, 97058)),
    "differential": (57, 0x111C75ED630E505, (16, 19, 21, 24), (170700, 92171, 35885, 29567)),
    "counterrevolutionaries": (
        104,
        0xA44551431E2F2044E267345B84,
        (16, 22, 27, 32),
        (38919, 18527, 180777, 118712),
    ),
}


def slots(mean) -> Slots:
    whole = int(mean)
    return Slots(whole, Dyadic.at_least(Fraction(mean) - whole))


@pytest.mark.parametrize("text", WORDS)
def test_words_depths_and_buckets(text):
    bits, word, depths, buckets = WORDS[text]
    tree = StringTree(sdp.Strings("a-z", 24), 234441, 24, 6, 16, 1)
    length, scrambled = tree.word(tree.domain.encode(text))
    assert (tree.domain.word_bits(length), scrambled, tree.depths(length)[:4]) == (bits, word, depths)
    assert tuple(tree.cells([(length, scrambled)])[0][[0, 1, 12, 23]].tolist()) == buckets
    assert tree.domain.string(tree.string_index(length, scrambled)) == text


@pytest.mark.parametrize(
    ("users", "buckets"), [(10**6, (23444, 70332, 234441, 468883)), (10**5, (2344, 7033, 23444, 46888))]
)
def test_calibrated_buckets(users, buckets):
    for messages, expected in zip((2, 4, 11, 21), buckets, strict=True):
        protocol = TreeBlanketStrings.calibrate(
            users=users, epsilon=1.0, delta=1e-6, alphabet="a-z", max_length=8, most_messages=messages
        )
        assert protocol.buckets == expected
        assert protocol.cost.max_messages_per_user == messages
        assert protocol.guarantee.delta_at(1.0) <= 1e-6


def test_the_exact_delta_of_the_usual_size():
    assert Slots(10, Dyadic(0)).curve(10**6, 234441).delta_at(1.0) == pytest.approx(9.99964418644413e-07, rel=1e-9)


BRUTE = [
    (1, 2, 2, 2, 0.1, 0.473707270),
    (1, 2, 2, 2, 0.5, 0.337819682),
    (1, 3, 2, 2, 1.0, 0.444444444),
    (0.5, 2, 2, 3, 0.1, 0.535371931),
    (1, 2, 3, 2, 1.0, 0.250000000),
    (1.25, 2, 2, 2, 0.1, 0.423538833),
    (0.75, 3, 2, 3, 1.0, 0.426276846),
    (1, 2, 2, 3, 1.0, 0.160214771),
]


@pytest.mark.parametrize(("mean", "buckets", "levels", "users", "epsilon", "delta"), BRUTE)
def test_claimed_delta_of_small_cases(mean, buckets, levels, users, epsilon, delta):
    assert slots(mean).curve(users, buckets).delta_at(epsilon) == pytest.approx(delta, abs=2e-9)


def convolved(first, second):
    result = {}
    for one, mass in first.items():
        for other, share in second.items():
            key = tuple(map(sum, zip(one, other, strict=True)))
            result[key] = result.get(key, 0.0) + mass * share
    return result


def blanket_pmf(codes, weights, blanket, users):
    """The distribution of all uniform messages, level by level with the given weights."""
    one = {tuple(int(code == hit) for code in range(codes)): weights[hit] for hit in range(codes)}
    nothing = {(0,) * codes: 1.0}
    rest = float(blanket.rest)
    user = nothing
    for _ in range(blanket.whole):
        user = convolved(user, one)
    more = convolved(user, one)
    mixed = {key: (1 - rest) * user.get(key, 0.0) + rest * more.get(key, 0.0) for key in {*user, *more}}
    total = nothing
    for _ in range(users):
        total = convolved(total, mixed)
    return {key: mass for key, mass in total.items() if mass}


def exact_delta(cells, weights_of_levels, buckets, blanket, users, epsilon):
    """The divergence of one user's message with the cells of x from one with those of y, for all pairs."""
    levels = len(weights_of_levels)
    codes = levels * buckets
    weights = [weights_of_levels[code // buckets] / buckets for code in range(codes)]
    noise = blanket_pmf(codes, weights, blanket, users)

    def view(own):
        sent = {}
        for level, bucket in enumerate(own):
            key = tuple(int(code == level * buckets + bucket) for code in range(codes))
            sent[key] = weights_of_levels[level]
        return convolved(noise, sent)

    views = {own: view(own) for own in cells}
    return max(
        sum(max(0.0, mass - np.exp(epsilon) * views[second].get(key, 0.0)) for key, mass in views[first].items())
        for first, second in itertools.permutations(cells, 2)
    )


OTHERS = [
    (0.25, 2, 3, 2, (0.2, 0.3, 0.5), 0.3),
    (2, 2, 2, 2, (0.1, 0.9), 0.7),
    (1.5, 3, 2, 2, (0.5, 0.5), 0.2),
    (0.4, 4, 2, 2, (0.75, 0.25), 1.3),
    (0.6, 2, 2, 4, (0.5, 0.5), 0.4),
    (1, 5, 2, 2, (0.5, 0.5), 2.0),
    (0.9, 2, 4, 2, (0.25, 0.25, 0.25, 0.25), 0.05),
]


@pytest.mark.parametrize(("mean", "buckets", "levels", "users", "weights", "epsilon"), OTHERS)
def test_claimed_delta_is_the_exact_one(mean, buckets, levels, users, weights, epsilon):
    """Other users' own messages are known, so only uniform messages hide the target; all pairs of cell sets."""
    blanket = slots(mean)
    cells = list(itertools.product(range(min(buckets, 2)), repeat=levels))
    exact = exact_delta(cells, weights, buckets, blanket, users, epsilon)
    assert blanket.curve(users, buckets).delta_at(epsilon) == pytest.approx(exact, abs=1e-9)


def test_cells_that_two_strings_share_only_reduce_delta():
    blanket, weights = slots(1), (0.5, 0.5)
    apart = exact_delta([(0, 0), (1, 1)], weights, 2, blanket, 2, 0.5)
    shared = exact_delta([(0, 0), (0, 1)], weights, 2, blanket, 2, 0.5)
    assert shared < apart


def test_a_blanket_on_used_cells_only_is_caught_by_brute_force():
    """Planted: uniform messages on one level only, real ones on both; the claim no longer holds."""
    blanket = slots(1)
    claimed = blanket.curve(2, 2).delta_at(0.5)
    codes = 4
    noise = blanket_pmf(codes, [0.5, 0.5, 0.0, 0.0], blanket, 2)
    views = [
        convolved(noise, {tuple(int(code == level * 2 + own) for code in range(codes)): 0.5 for level in range(2)})
        for own in (0, 1)
    ]
    exact = sum(max(0.0, mass - np.exp(0.5) * views[1].get(key, 0.0)) for key, mass in views[0].items())
    assert exact > claimed + 0.05


def small(levels=2, buckets=3, mean=0.75, alphabet="ab", length=1, users=2):
    return TreeBlanketStrings(
        Target(users, 0.5, 0.95), sdp.Strings(alphabet, length), slots(mean), buckets, levels, 0, 16, 7
    )


def test_report_pmf_against_brute_force():
    """Two levels, three buckets, three strings: every report by hand."""
    protocol = small()
    for value in range(3):
        cells = protocol.tree.cells([protocol.tree.word(value)])[0]
        expected = {}
        for level in range(2):
            own = level * 3 + int(cells[level])
            for added in range(7):  # nothing more, or one of six cells
                report = [0] * 6
                report[own] += 1
                mass = Fraction(1, 2) * (Fraction(1, 4) if added == 6 else Fraction(3, 4) / 6)
                if added < 6:
                    report[added] += 1
                key = tuple(report)
                expected[key] = expected.get(key, Fraction(0)) + mass
        assert protocol.report_pmf(value) == expected


def test_the_guarantee_does_not_depend_on_the_hash():
    """All strings in one bucket, or each in its own: the same claim, which holds (the kit enumerates the latter)."""
    one, two = small(), TreeBlanketStrings(Target(2, 0.5, 0.95), sdp.Strings("ab", 1), slots(0.75), 3, 2, 0, 16, 99)
    assert one.guarantee.delta_at(0.3) == two.guarantee.delta_at(0.3)


def test_messages_and_sampled_tallies_have_the_same_distribution():
    """Sums of cell classes over many rounds: chi-square of both routes together, alpha 1e-6."""
    protocol = TreeBlanketStrings.calibrate(users=400, epsilon=1.0, delta=1e-4, alphabet="ab", max_length=3, levels=4)
    strings = ["a"] * 200 + ["abb"] * 150 + [""] * 50
    values = protocol.domain.encode_all(strings)
    cells = protocol.tree.cells([protocol.tree.word(int(index)) for index in dict.fromkeys(values.tolist())])
    marked = np.zeros((4, protocol.buckets), dtype=np.int64)
    for mark, row in enumerate(cells, start=1):
        marked[np.arange(4), row] = mark
    classes = (marked * 4 + np.arange(4)[:, None]).ravel()
    rounds = 60
    routes = []
    for draw in (
        lambda: protocol.tally(protocol.randomize_all(values)),
        lambda: protocol.sample_tally(protocol.summary(values)),
    ):
        routes.append(sum(np.bincount(classes, weights=draw().counts, minlength=16) for _ in range(rounds)))
    total = routes[0] + routes[1]
    used = total > 0
    statistic = float((((routes[0] - routes[1])[used]) ** 2 / total[used]).sum())
    assert chi2.sf(statistic, int(used.sum())) > 1e-6
    less = routes[1] * np.where(np.arange(16) >= 4, 0.9, 1.0)  # planted: a tenth of the own messages lost
    shifted = float((((routes[0] - less)[used]) ** 2 / (routes[0] + less)[used]).sum())
    assert chi2.sf(shifted, int(used.sum())) < 1e-6


def test_documents_and_bad_parameters():
    protocol = TreeBlanketStrings.calibrate(
        users=5000, epsilon=1.0, delta=1e-6, domain=sdp.Strings("a-z", 12, trim=True), seed=(1 << 64) - 1
    )
    assert sdp.from_document(sdp.to_document(protocol)) == protocol
    document = sdp.to_document(protocol)
    for change in (
        {"levels": 0},
        {"levels": 10**6},
        {"tail": -1},
        {"buckets": 1},
        {"buckets": 1 << 40},
        {"first_bits": 0},
        {"seed": 1 << 64},
    ):
        with pytest.raises((ParameterError, InfeasibleError)):
            sdp.from_document(document | {"parameters": document["parameters"] | change})
    hostile = document["parameters"] | {"buckets": protocol.buckets * 2}
    with pytest.raises(ParameterError, match="more than the claimed"):
        _ = sdp.from_document(document | {"parameters": hostile}).guarantee
    with pytest.raises(ParameterError):
        TreeBlanketStrings.calibrate(users=5000, epsilon=1.0, delta=1e-6, alphabet="a-z", max_length=3, most_messages=1)
    with pytest.raises(InfeasibleError):
        TreeBlanketStrings.calibrate(users=10, epsilon=0.1, delta=1e-9, alphabet="a-z", max_length=3)


def test_an_impossible_tally_is_refused():
    protocol = small(users=2)
    with pytest.raises(ParameterError, match="messages"):
        protocol.estimate(sdp.Tally(np.array([9, 0, 0, 0, 0, 0]), 2))


@pytest.mark.parametrize(
    ("alphabet", "length", "levels"), [("a-z", 16, 24), ("a-z", 24, 32), ("bytes", 16, 32), ("bytes", 64, 112)]
)
def test_levels_follow_the_length_of_words(alphabet, length, levels):
    assert default_levels(sdp.Strings(alphabet, length)) == levels


def test_shifts_of_long_words():
    words = np.array([[0x0123456789ABCDEF, 0xFEDCBA9876543210]], dtype=np.uint64)
    number = int(words[0, 1]) << 64 | int(words[0, 0])
    for bits in (0, 1, 63, 64, 65, 127, 128):
        row = shifted_right(words, bits)[0]
        assert int(row[1]) << 64 | int(row[0]) == number >> bits
    row = shifted_left(words, 7)[0]
    assert int(row[1]) << 64 | int(row[0]) == (number << 7) & ((1 << 128) - 1)
