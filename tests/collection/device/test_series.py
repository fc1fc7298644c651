"""A device and a series: at most R of N rounds, drawn once, durably and uniformly; each charged to the budget."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from scipy.stats import chi2

from shuffledp.collection.device import AuthorBudget, DeviceBudget, State
from shuffledp.collection.device.series import Participation, SeriesClient
from shuffledp.collection.device.spending import Spending
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.collection.task.series import Cancellation
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.errors import DataError, ParameterError, PolicyError

ALPHA = 1e-7


@pytest.fixture
def author():
    return SigningKey.create()


@pytest.fixture
def start(make_series, author, tmp_path):
    """The same device, as often as it starts."""
    series, _, _ = make_series(rounds=6, per_device=2)

    def client(folder="device", **options) -> SeriesClient:
        return SeriesClient(series.signed(author), author=author.public, state=tmp_path / folder, **options)

    return client


def report_all(client, value=1) -> list[int]:
    """Report at every round that is open, at its end; the numbers of the rounds that were reported to."""
    reported = []
    for index in range(len(client.series.keys)):
        now = client.series.task(index).closes - timedelta(seconds=1)
        try:
            reported.append(client.report(value, now=now))
        except PolicyError:
            continue
    return reported


def test_a_device_takes_part_in_the_rounds_that_it_drew(start):
    client = start()
    rounds = client.participation.rounds
    assert len(rounds) == 2
    assert report_all(client) == list(rounds)
    assert report_all(start()) == []  # once each
    assert [start().client(index).state for index in rounds] == [State.PENDING] * 2
    other = next(index for index in range(6) if index not in rounds)
    with pytest.raises(PolicyError, match=f"does not take part in round {other}"):
        start().client(other)


def test_the_draw_is_made_once(start, monkeypatch):
    """The planted fault draws at every start, so that a device takes part in more rounds than it may."""
    assert len({start().participation for _ in range(20)}) == 1
    monkeypatch.setattr(SeriesClient, "_read", lambda self: None)
    seen = {index for _ in range(20) for index in start().participation.rounds}
    assert len(seen) > 2


def test_it_is_durable_before_anything_is_reported(start, tmp_path):
    before = start().participation
    (tmp_path / "device" / f"{start().series.id.hex()}.series-new").write_bytes(b"cut off")
    assert start().participation == before
    reported = report_all(start())
    assert set(reported) == set(before.rounds)


def test_the_draw_is_uniform(make_series):
    """Pairs of rounds and tenths of the sending part: chi-square, alpha 1e-7, 6,000 draws; both faults are seen."""
    series, _, _ = make_series(rounds=5, per_device=2, open_seconds=1000)

    def p_values(draws):
        pairs = Counter(drawn.rounds for drawn in draws)
        tenths = Counter(delay // 90 for drawn in draws for delay in drawn.delays)
        for counts, cells in ((pairs, 10), (tenths, 10)):
            total = sum(counts.values())
            statistic = sum((count - total / cells) ** 2 for count in counts.values()) / (total / cells)
            statistic += (cells - len(counts)) * total / cells
            yield chi2.sf(statistic, cells - 1)

    draws = [Participation.draw(series) for _ in range(6000)]
    assert all(p > ALPHA for p in p_values(draws))
    assert max(delay for drawn in draws for delay in drawn.delays) < 900  # the first 90 % of the round
    biased = [drawn if index % 5 else Participation((0, 1), (0, 0)) for index, drawn in enumerate(draws)]
    assert all(p < ALPHA for p in p_values(biased))


def test_not_before_its_moment(start):
    client = start()
    index = client.participation.rounds[0]
    moment = client.moment(index)
    task = client.series.task(index)
    assert task.opens <= moment < task.opens + 0.9 * (task.closes - task.opens)
    if moment > task.opens:
        with pytest.raises(PolicyError, match="a moment that it drew"):
            client.report(1, now=moment - timedelta(seconds=1))
    assert client.report(1, now=moment) == index


def test_no_round_is_open(start):
    client = start()
    for moment in (
        client.series.first.opens - timedelta(days=1),
        client.series.task(0).closes,
        client.series.task(5).closes + timedelta(days=999),
    ):
        with pytest.raises(PolicyError, match="No round of the series is open"):
            client.report(1, now=moment)


def test_cancellations(start, author):
    client = start()
    first, second = client.participation.rounds
    client.cancel(Cancellation(client.series.id, second, "why").signed(author))
    client.cancel(Cancellation(client.series.id, 5, "why").signed(author))  # a later one changes nothing
    assert start().participation.cancelled_from == second  # durable
    assert report_all(start()) == [first]
    for content, words in (
        (Cancellation(client.series.id, 0, "why").signed(SigningKey.create()), "trusted"),
        (Cancellation(bytes(32), 0, "why").signed(author), "another series"),
    ):
        with pytest.raises(ParameterError, match=words):
            start().cancel(content)


def test_the_successor_of_the_author_cancels(start, author, tmp_path):
    from shuffledp.collection.device.authors import PinnedAuthors

    successor = SigningKey.create()
    client = start()
    PinnedAuthors(tmp_path / "device").follow(sign_rotation(author, successor), author.public)
    start().cancel(Cancellation(client.series.id, 0, "why").signed(successor))
    assert report_all(start()) == []


def test_every_round_is_charged_to_one_series(start, author, tmp_path):
    limits = DeviceBudget(8.0, 1e-6, authors={author.public.id: AuthorBudget(series=1)})
    client = start(budget=limits)
    report_all(client)
    entries = Spending(tmp_path / "device", limits).read().entries
    assert len(entries) == 2
    assert len({entry.series for entry in entries}) == 1
    tight = start("other", budget=DeviceBudget(1.2, 1e-6))
    assert len(report_all(tight)) == 1  # the second exceeds the budget of the device


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"damaged"])
def test_a_damaged_draw_is_not_forgotten(start, tmp_path, content):
    client = start()
    (tmp_path / "device" / f"{client.series.id.hex()}.series").write_bytes(content)
    with pytest.raises(DataError, match="drawing again would exceed the guarantee"):
        start()


def test_every_changed_byte_is_noticed(start, tmp_path):
    path = tmp_path / "device" / f"{start().series.id.hex()}.series"
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError):
            start()


def test_a_series_with_foreign_keys_leads_nowhere(make_series, author):
    """Keys are part of the id: whoever shows a device other keys shows it another series with other tasks."""
    series = make_series(rounds=2, per_device=1)[0]
    keys = list(series.keys)
    keys[1] = replace(keys[1], shufflers=(make_series()[0].keys[0].shufflers[0],))
    changed = replace(series, keys=tuple(keys))
    assert changed.id != series.id
    assert not {changed.task(index).id for index in range(2)} & {series.task(index).id for index in range(2)}
    with pytest.raises(ParameterError, match="trusted"):
        SeriesClient(changed.signed(SigningKey.create()), author=author.public, state="unused")
    swapped = replace(series, keys=(series.keys[0], replace(series.keys[1], analyzer=keys[1].shufflers[0])))
    assert swapped.task(1).id != series.task(1).id  # round i with another key is another task
