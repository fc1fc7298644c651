"""Series in the ledger: reserved as a whole, R of N rounds composed, cancelled rounds freed, nothing forgotten."""

import json
import math
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from shuffledp.cli import main
from shuffledp.collection.analyzer import overview
from shuffledp.collection.analyzer.backup import back_up, restore, undecided_tasks
from shuffledp.collection.analyzer.estimating import NotReleasedError
from shuffledp.collection.analyzer.ledger import Ledger, SeriesRefusedError, reservations_in, spent_in
from shuffledp.collection.analyzer.releasing import ReleaseScheduler
from shuffledp.collection.analyzer.reservations import Reservation
from shuffledp.collection.analyzer.server import tasks_of
from shuffledp.collection.analyzer.settings import PopulationBudget
from shuffledp.collection.server.batches import BatchState
from shuffledp.collection.task.key_documents import sign_rotation
from shuffledp.collection.task.series import Cancellation
from shuffledp.collection.wire.formats import HopCounts, Manifest, digest
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.collection.wire.sealing import Sealer
from shuffledp.errors import ParameterError, ShuffledpError

DELTA = 1e-6
BUDGET = PopulationBudget(4.5, DELTA)
NOW = datetime.now(UTC).replace(microsecond=0)


def composed_epsilon(releases: int, delta: float = DELTA) -> float:
    """Of as many releases with pure epsilon 1, by the definition of randomized response: a sum over all outcomes."""
    flip = 1 / (1 + math.e)

    def delta_at(total):
        return sum(
            math.comb(releases, lies)
            * max(
                0.0,
                (1 - flip) ** (releases - lies) * flip**lies
                - math.exp(total) * (1 - flip) ** lies * flip ** (releases - lies),
            )
            for lies in range(releases + 1)
        )

    low, high = 0.0, float(releases)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def spent(path) -> float:
    return spent_in(path, "people", DELTA)[1]


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


@pytest.mark.parametrize(("rounds", "per_device"), [(6, 2), (6, 6), (1, 1), (52, 4)])
def test_the_rounds_of_one_device_are_composed(make_series, ledger, tmp_path, rounds, per_device):
    series, _, _ = make_series(rounds=rounds, per_device=per_device)
    entry = ledger.reserve_series(series, PopulationBudget(40.0, DELTA))
    assert entry.counted_rounds == per_device
    exact = composed_epsilon(per_device)
    assert exact * (1 - 1e-9) <= spent(tmp_path / "ledger.db") <= exact * 1.001 + 1e-6
    if per_device < rounds:
        assert spent(tmp_path / "ledger.db") < composed_epsilon(rounds)


def test_rounds_cost_nothing_more(make_series, ledger, tmp_path):
    series, _, _ = make_series()
    ledger.reserve_series(series, BUDGET)
    before = spent(tmp_path / "ledger.db")
    for index in range(3):
        entry = ledger.reserve(series.task(index), BUDGET, bytes([index] * 32))
        assert (entry.granted, entry.releases) == (True, index + 1)
        assert spent(tmp_path / "ledger.db") == before
    assert ledger.reserve(series.task(0), BUDGET, bytes(32)) == ledger.entry(series.task(0).id)
    with pytest.raises(NotReleasedError, match="another batch"):
        ledger.reserve(series.task(1), BUDGET, bytes([9] * 32))


def test_a_series_that_does_not_fit_is_refused(make_series, ledger, tmp_path):
    """In one line, and nothing is reserved; the second series fits alone, and not beside the first."""
    first, second = (make_series(per_device=per_device)[0] for per_device in (3, 2))
    with pytest.raises(SeriesRefusedError, match=r"3 of 3 rounds per device: with it epsilon = 3") as caught:
        ledger.reserve_series(first, PopulationBudget(2.5, DELTA))
    assert "\n" not in str(caught.value)
    assert reservations_in(tmp_path / "ledger.db") == []
    ledger.reserve_series(first, BUDGET)
    with pytest.raises(SeriesRefusedError, match=r"the budget of people is 4\.5"):
        ledger.reserve_series(second, BUDGET)
    assert len(reservations_in(tmp_path / "ledger.db")) == 1


def test_single_releases_and_series_share_the_budget(make_series, collection, ledger, tmp_path):
    single = [collection.task("histogram/k-rr", publish=False, epsilon=1.0, users=200) for _ in range(3)]
    series, _, _ = make_series(per_device=2)
    budget = PopulationBudget(3.2, DELTA)
    assert ledger.reserve(single[0], budget, bytes(32)).granted
    ledger.reserve_series(series, budget)
    exact = composed_epsilon(3)
    assert exact * (1 - 1e-9) <= spent(tmp_path / "ledger.db") <= exact * 1.001 + 1e-6
    assert not ledger.reserve(single[1], budget, bytes(32)).granted
    ledger.cancel_series(series.id, 0)
    assert ledger.reserve(single[2], budget, bytes(32)).granted


def test_cancelled_rounds_without_a_batch_are_freed(make_series, ledger, tmp_path):
    path = tmp_path / "ledger.db"
    series, _, _ = make_series(rounds=6, per_device=4)
    ledger.reserve_series(series, BUDGET)
    ledger.reserve(series.task(5), BUDGET, bytes(32))
    ledger.cancel_series(series.id, 1, kept=[2])
    (entry,) = reservations_in(path)
    assert (entry.cancelled_from, entry.kept_rounds, entry.counted_rounds) == (1, {2, 5}, 3)  # rounds 0, 2 and 5
    exact = composed_epsilon(3)
    assert exact * (1 - 1e-9) <= spent(path) <= exact * 1.001 + 1e-6
    for index in (0, 2):
        assert ledger.reserve(series.task(index), BUDGET, bytes(32)).granted
    with pytest.raises(NotReleasedError, match="cancelled from round 1 on"):
        ledger.reserve(series.task(3), BUDGET, bytes(32))
    ledger.cancel_series(series.id, 4)  # a later one changes nothing
    assert reservations_in(path) == [entry]
    ledger.cancel_series(series.id, 0)
    assert reservations_in(path)[0].counted_rounds == 3  # round 0 was released before, so it is kept, too


def test_a_restart_forgets_nothing(make_series, ledger, tmp_path):
    series, _, _ = make_series(rounds=6, per_device=4)
    ledger.reserve_series(series, BUDGET)
    ledger.cancel_series(series.id, 3)
    before = spent(tmp_path / "ledger.db")
    ledger.close()
    again = Ledger(tmp_path / "ledger.db")
    assert again.reserve_series(series, PopulationBudget(0.1, DELTA)).cancelled_from == 3  # it was granted already
    assert spent(tmp_path / "ledger.db") == before
    again.close()


@pytest.mark.parametrize(
    "fault",
    [
        ("N composed", lambda self: self.rounds),
        ("the cancellation is lost", lambda self: self.rounds_per_device),
        ("nothing is reserved", lambda self: 0),
    ],
    ids=lambda fault: fault[0],
)
def test_faults_of_the_composition_are_seen(make_series, ledger, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(Reservation, "counted_rounds", property(fault[1]))
    series, _, _ = make_series(rounds=6, per_device=4)
    ledger.reserve_series(series, PopulationBudget(40.0, DELTA))
    ledger.cancel_series(series.id, 3)
    assert not math.isclose(spent(tmp_path / "ledger.db"), composed_epsilon(3), rel_tol=1e-3)


def test_a_round_without_a_reservation_is_not_released(make_series, ledger):
    series, _, _ = make_series()
    with pytest.raises(ShuffledpError, match="not reserved in the ledger"):
        ledger.reserve(series.task(0), BUDGET, bytes(32))


def prepared(collection, make_series, **changes):
    """A series about the collection's people, in its directory of tasks, with its keys."""
    series, analyzers, _ = make_series(shuffler=collection.shuffler, opens=NOW - timedelta(hours=9), **changes)
    keys = collection.folder / "round-keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    for key in analyzers:
        key.save(keys / f"{key.public.id}.key")
    publish(collection, "series", series.signed(collection.author))
    return series, keys


def publish(collection, name, content):
    (collection.folder / "tasks" / f"{name}.json").write_bytes(content)


def arrived(collection, analyzer, task, deliver):
    """The batch of a round, delivered; its manifest."""
    sealer = Sealer(task.analyzer, task.id, task.message_size, 2)
    form = task.protocol.message_format
    packed = [row.tobytes() for row in form.pack(task.protocol.randomize_all(np.arange(6) % 3).values)]
    sealed = [message for each in packed for message in sealer.seal([each], task.messages_per_report)]
    content = b"".join(sealed)
    manifest = Manifest(task.id, 6, len(sealed), task.sealed_size, 1000, (digest(content),), HopCounts())
    signed = manifest.signed(collection.shuffler)
    analyzer.batches.put_manifest(manifest, signed)
    analyzer.batches.put_chunk(task.id, 0, content)


def test_an_analyzer_serves_a_series(collection, make_series, deliver):
    series, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)
    assert [analyzer.tasks.get(series.task(index).id) for index in range(3)] == [series.task(i) for i in range(3)]
    arrived(collection, analyzer, series.task(1), deliver)
    assert analyzer.releaser.release(series.task(1).id) is BatchState.RELEASED
    assert len(list(keys.glob("*.key"))) == 2
    page = (collection.folder / "work" / "releases" / f"{series.task(1).id.hex()}.html").read_text()
    assert f"This is round 1 of the series {series.id.hex()[:16]}" in page
    publish(collection, "cancel", Cancellation(series.id, 1, "why").signed(collection.author))
    analyzer.tasks.refresh()
    assert analyzer.tasks.get(series.task(1).id) is not None  # its batch had arrived
    assert analyzer.tasks.get(series.task(2).id) is None
    assert len(list(keys.glob("*.key"))) == 1  # of round 0
    assert reservations_in(collection.folder / "work" / "ledger.db")[0].counted_rounds == 2
    analyzer.close()
    for file in (collection.folder / "tasks").iterdir():
        file.unlink()
    again = collection.open(round_keys=keys)  # from the copies in its work directory
    assert again.tasks.get(series.task(0).id) is not None
    assert again.tasks.get(series.task(2).id) is None
    again.close()


def test_the_cancellation_survives_the_loss_of_its_copies(collection, make_series):
    """The planted fault is a ledger that does not keep it."""
    series, keys = prepared(collection, make_series)
    publish(collection, "cancel", Cancellation(series.id, 1, "why").signed(collection.author))
    collection.open(round_keys=keys).close()
    (collection.folder / "tasks" / "cancel.json").unlink()
    for copy in (collection.folder / "work" / "documents").iterdir():
        copy.unlink()
    analyzer = collection.open(round_keys=keys)
    assert analyzer.tasks.get(series.task(0).id) is not None
    assert analyzer.tasks.get(series.task(1).id) is None
    analyzer.close()


def test_killed_before_the_keys_of_cancelled_rounds_were_destroyed(collection, make_series):
    """The ledger has the cancellation already; the next process destroys the keys, and those of kept rounds stay."""
    series, keys = prepared(collection, make_series, rounds=4)
    analyzer = collection.open(round_keys=keys)
    analyzer.ledger.cancel_series(series.id, 1, kept=[2])
    analyzer.close()
    publish(collection, "cancel", Cancellation(series.id, 1, "why").signed(collection.author))
    collection.open(round_keys=keys).close()
    assert {file.stem for file in keys.glob("*.key")} == {series.keys[index].analyzer.id for index in (0, 2)}


def test_nobody_else_can_use_the_keys_of_a_series(collection, make_series):
    """Round keys are public: another author could have them destroyed with rounds that are cancelled or fail."""
    series, keys = prepared(collection, make_series)
    other = SigningKey.create()
    other.public.save(collection.folder / "other.pub")
    authors = (collection.folder / "author.pub", collection.folder / "other.pub")
    analyzer = collection.open(round_keys=keys, authors=authors)
    copied = replace(series, first=replace(series.first, name="Copied"), rounds_per_device=1)
    with pytest.raises(ParameterError, match="of another task or series"):
        analyzer.tasks.put(copied.signed(other))
    wire = replace(series.first.wire, shufflers=make_series(shuffler=collection.shuffler)[0].first.wire.shufflers)
    with pytest.raises(ParameterError, match="of another round"):
        analyzer.tasks.put(replace(series.first, name="Single", wire=wire).signed(other).to_bytes())
    assert len(list(keys.glob("*.key"))) == 3
    analyzer.close()


def test_a_series_beyond_the_budget_is_refused_at_the_start(collection, make_series):
    collection.budgets(people=(1.5, 1e-5))
    _, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)
    (refused,) = analyzer.tasks.refused
    assert "2 of 3 rounds per device" in str(refused)
    assert len(analyzer.tasks) == 0
    analyzer.close()


def test_ledger_and_batches_lost_but_the_releases(collection, make_series, deliver):
    """The entries are restored from the releases, and with them the whole reservation."""
    series, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)
    arrived(collection, analyzer, series.task(0), deliver)
    analyzer.releaser.release(series.task(0).id)
    analyzer.close()
    work = collection.folder / "work"
    before = spent(work / "ledger.db")
    for file in work.glob("ledger.db*"):
        file.unlink()
    restored = collection.open(round_keys=keys, restore_from_releases=True)
    assert spent(work / "ledger.db") == pytest.approx(before) == pytest.approx(composed_epsilon(2), rel=1e-3)
    restored.close()


def test_a_backup_has_the_reservation_and_the_cancellation(collection, make_series, deliver):
    """Killed and restored: the same spent epsilon, and cancelled rounds are refused, though the documents are lost."""
    series, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)
    arrived(collection, analyzer, series.task(0), deliver)
    analyzer.releaser.release(series.task(0).id)
    publish(collection, "cancel", Cancellation(series.id, 2, "why").signed(collection.author))
    analyzer.tasks.refresh()
    back_up(collection.folder / "work", collection.folder / "backup")
    before = spent(collection.folder / "work" / "ledger.db")
    analyzer.close()
    (collection.folder / "tasks" / "cancel.json").unlink()
    settings = collection.settings(work=collection.folder / "restored", round_keys=keys)
    tasks = tasks_of(settings)
    tasks.load()
    undecided = undecided_tasks(collection.folder / "backup", tasks)
    assert [task.id for task in undecided] == [series.task(index).id for index in (1, 2)]
    restore(collection.folder / "backup", settings.work, tasks, {task.id: False for task in undecided})
    assert spent(settings.work / "ledger.db") == before
    again = collection.open(work=settings.work, round_keys=keys)
    assert again.tasks.get(series.task(1).id) is not None
    assert again.tasks.get(series.task(2).id) is None
    with pytest.raises(NotReleasedError, match="cancelled from round 2 on"):
        again.ledger.reserve(series.task(2), BUDGET, bytes(32))
    assert spent(settings.work / "ledger.db") == before
    again.close()


@pytest.mark.parametrize("seconds", [0.0, 7 * 86_400.0])
def test_keys_of_rounds_that_never_arrived_are_an_alert(collection, make_series, deliver, monkeypatch, seconds):
    series, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)
    arrived(collection, analyzer, series.task(0), deliver)
    monkeypatch.setattr(overview, "KEPT_SECONDS", seconds)
    shown = overview.running_overview(analyzer, ReleaseScheduler(analyzer.releaser, analyzer.metrics))
    assert [entry["unused_keys"] for entry in shown["series"]] == [0 if seconds else 2]
    told = [alert["message"] for alert in shown["alerts"] if "2 rounds of the series Weekly" in alert["message"]]
    assert len(told) == (0 if seconds else 1)
    analyzer.close()


def test_documents_of_the_operator_are_in_the_backup(collection, make_series, deliver, capsys, monkeypatch):
    """They are nowhere else; also rounds whose batch arrived before they were cancelled are asked about."""
    for name in [name for name in os.environ if name.startswith("SHUFFLEDP_")]:
        monkeypatch.delenv(name)
    series, keys = prepared(collection, make_series, rounds=4)
    monkeypatch.setenv("SHUFFLEDP_ANALYZER_ROUND_KEYS", str(keys))
    (collection.folder / "tasks" / "series.json").unlink()
    analyzer = collection.open(round_keys=keys)
    analyzer.tasks.put(series.signed(collection.author))
    analyzer.tasks.refresh()
    arrived(collection, analyzer, series.task(0), deliver)
    analyzer.releaser.release(series.task(0).id)
    arrived(collection, analyzer, series.task(1), deliver)
    analyzer.tasks.put(Cancellation(series.id, 1, "why").signed(collection.author))
    backup = collection.folder / "backup"
    back_up(collection.folder / "work", backup)
    before = spent(collection.folder / "work" / "ledger.db")
    analyzer.releaser.release(series.task(1).id)  # after the backup
    analyzer.close()
    shutil.rmtree(collection.folder / "work")

    def run(*words):
        config = ["--config", str(collection.config())]
        status = main._run(["restore", "analyzer", "--from", str(backup), *words, *config])
        return status, capsys.readouterr()

    status, told = run()
    assert status == 2
    assert [series.task(index).id.hex()[:16] in told.err for index in range(4)] == [False, True, True, True]
    name, second = series.id.hex()[:12], series.task(1).id.hex()[:12]
    status, told = run("--unreleased", name, "--released", name)
    assert (status, "cannot be both" in told.err) == (2, True)
    status, told = run("--unreleased", name, "--released", second, "--json")
    assert (status, json.loads(told.out)["counted"]) == (0, [series.task(1).id.hex()])
    again = collection.open(round_keys=keys)
    assert [accepted.cancelled_from for accepted in again.tasks.series] == [1]
    assert again.tasks.get(series.task(0).id) is not None
    assert again.ledger.entry(series.task(1).id).granted
    assert spent(collection.folder / "work" / "ledger.db") == before
    again.close()


@pytest.mark.parametrize("signer", ["author", "successor", "foreign", "unknown"])
def test_who_may_cancel(collection, make_series, signer):
    """The author and the successor of the author's key; not another author whom the server trusts."""
    keys_of = {name: SigningKey.create() for name in ("successor", "foreign", "unknown")} | {
        "author": collection.author
    }
    keys_of["foreign"].public.save(collection.folder / "foreign.pub")
    authors = (collection.folder / "author.pub", collection.folder / "foreign.pub")
    series, keys = prepared(collection, make_series)
    publish(collection, "z-rotation", sign_rotation(collection.author, keys_of["successor"]))
    publish(collection, "a-cancel", Cancellation(series.id, 0, "why").signed(keys_of[signer]))
    analyzer = collection.open(round_keys=keys, authors=authors)
    allowed = signer in ("author", "successor")
    assert len(analyzer.tasks) == (0 if allowed else 3)
    assert len(analyzer.tasks.refused) == (0 if allowed else 1)
    if signer == "foreign":
        assert "cannot cancel it" in str(analyzer.tasks.refused[0])
    analyzer.close()


def test_series_that_replace_another(collection, make_series):
    """Only a cancelled one of the same author, and without rounds that overlap."""
    first, keys = prepared(collection, make_series)
    analyzer = collection.open(round_keys=keys)

    def replacing(**changes):
        changes = {"shuffler": collection.shuffler, "replaces": first.id, "per_device": 1, **changes}
        return make_series(**changes)[0]

    later = replacing(opens=first.task(1).closes)
    for series, words in (
        (later, "cancel it first"),
        (replacing(replaces=bytes(32)), "not known here"),
    ):
        with pytest.raises(ParameterError, match=words):
            analyzer.tasks.put(series.signed(collection.author))
    analyzer.tasks.put(Cancellation(first.id, 2, "why").signed(collection.author))
    with pytest.raises(ParameterError, match="The rounds overlap"):
        analyzer.tasks.put(replacing(opens=first.task(1).opens).signed(collection.author))
    assert analyzer.tasks.put(later.signed(collection.author))["kind"] == "series"
    with pytest.raises(ParameterError, match="has 3 rounds"):
        analyzer.tasks.put(Cancellation(first.id, 3, "why").signed(collection.author))
    with pytest.raises(ParameterError, match="no series"):
        analyzer.tasks.put(Cancellation(bytes(32), 1, "why").signed(collection.author))
    assert {accepted.series.id for accepted in analyzer.tasks.series} == {first.id, later.id}
    assert len(list((collection.folder / "work" / "documents").iterdir())) == 3
    analyzer.close()
