"""Benchmark of a later shuffler of a chain against the analyzer: opening layers and permuting, opening and counting."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.finding import Finding, at_most
from benchmarks.measuring import side_by_side

__all__ = ["measure"]

_MESSAGES = 1 << 12  # few enough to be opened in one process
_BOUND = 1.3


def measure(quick: bool) -> Iterator[Finding]:
    """The time of a hop for each message, in one process, against that of the analyzer; both take turns."""
    from shuffledp.collection.analyzer.counting import count_messages, pieces_of
    from shuffledp.collection.server.batches import Batches
    from shuffledp.collection.shuffler.mixtures import BatchMixture
    from shuffledp.collection.task.task import Task
    from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
    from shuffledp.collection.wire.formats import HopCounts, Manifest, digest
    from shuffledp.collection.wire.keys import SealingKey, SigningKey
    from shuffledp.collection.wire.layers import add_layers
    from shuffledp.collection.wire.sealing import Sealer
    from shuffledp.protocols.registry import find
    from shuffledp.shuffling.external import permute_file

    signing, keys = [SigningKey.create() for _ in range(2)], [SealingKey.create() for _ in range(2)]
    pairs = zip(signing, keys, strict=True)
    analyzer, now = SealingKey.create(), datetime.now(UTC).replace(microsecond=0)
    task = Task.create(
        kind=find("histogram", "shuffled-k-rr"),
        settings={"users": 1000, "domain_size": 10},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=1_000_000,
        name="benchmark",
        description="",
        population="benchmark",
        opens=now,
        closes=now + timedelta(hours=1),
        analyzer=analyzer.public,
        shuffler=signing[-1].public,
        wire=WireVersion2(tuple(ShufflerKeys(sign.public, key.public) for sign, key in pairs)),
    )
    sealed = Sealer(analyzer.public, task.id, task.message_size, 2).seal(
        [bytes(task.message_size)] * _MESSAGES, _MESSAGES
    )
    layered = b"".join(add_layers(sealed, [key.public for key in keys], task.id, after=0))
    with TemporaryDirectory() as directory:
        file = Path(directory) / "sealed"
        file.write_bytes(b"".join(sealed))
        batches = Batches(Path(directory))
        size = task.record_size(0)
        manifest = Manifest(task.id, _MESSAGES, _MESSAGES, size, _MESSAGES, (digest(layered),), HopCounts())
        batches.put_manifest(manifest, manifest.signed(signing[0]))
        batches.put_chunk(task.id, 0, layered)

        def hop() -> None:
            mixture = BatchMixture(task, lambda: None, batches, keys[1], 1)
            permute_file(mixture.blocks(), task.record_size(1), Path(directory) / "out", scratch=Path(directory))

        pieces = list(pieces_of(task, [(file, file.stat().st_size)]))
        times = side_by_side(
            {"hop": hop, "analyzer": partial(count_messages, task, analyzer, pieces)}, repetitions=7 if quick else 21
        )
        batches.close()
    each = {name: times.processor_seconds(name) / _MESSAGES * 1e6 for name in ("hop", "analyzer")}
    yield at_most(
        "open a layer and permute, against opening and counting at the analyzer, processor time",
        each["hop"] / each["analyzer"],
        _BOUND,
        "x",
        f"{each['hop']:.1f} against {each['analyzer']:.1f} us each",
    )
