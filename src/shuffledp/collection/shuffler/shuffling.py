"""Shuffling of a closed round: all its messages in uniformly random order, as a file with a signed manifest.

The name of the file contains the hash of its manifest, so that only the batch that is recorded in the store is
delivered. Leftovers of a killed process are removed by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shuffledp.collection.server.batches import Batches, BatchState
from shuffledp.collection.server.logs import event
from shuffledp.collection.server.round_keys import RoundKeyDirectory
from shuffledp.collection.server.scheduling import ShutdownError
from shuffledp.collection.shuffler.mixtures import BatchMixture, Mixture, ReportMixture
from shuffledp.collection.shuffler.store.interface import RoundState, Store, StoreError
from shuffledp.collection.shuffler.tasks import ServedTask
from shuffledp.collection.shuffler.traps import TrapDirectory, TrapMissingError
from shuffledp.collection.task.task import Task
from shuffledp.collection.wire.formats import HEADER_SIZE, Manifest, digest
from shuffledp.collection.wire.keys import SigningKey
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.durable_files import sync_directory
from shuffledp.shuffling.external import permute_file

_CHUNK_BYTES = 1 << 22
_MAX_CHUNKS = 1 << 16


@dataclass(frozen=True)
class ShuffledBatch:
    """A batch that is ready for delivery."""

    manifest: Manifest
    signed: bytes
    """The manifest with its signature, as recorded in the store."""
    file: Path

    def chunk(self, index: int) -> bytes:
        """The bytes of a chunk; OSError if their hash is not the one in the manifest."""
        with self.file.open("rb") as file:
            file.seek(index * self.manifest.chunk_records * self.manifest.record_size)
            content = file.read(self.manifest.chunk_size(index))
        if digest(content) != self.manifest.chunks[index]:
            raise OSError(f"{self.file} is damaged: chunk {index:,} does not have the hash in the manifest")
        return content


@dataclass(frozen=True)
class RoundShuffler:
    """Creates batches in the work directory."""

    store: Store
    key: SigningKey
    work: Path
    memory: int
    stopping: Callable[[], bool] = lambda: False
    round_keys: RoundKeyDirectory = field(default_factory=RoundKeyDirectory)
    received: Batches | None = None
    """The batches of shufflers before this one, in chains; None if it takes none."""
    traps: TrapDirectory | None = None
    """The traps that it sends in chains."""

    def shuffle(self, served: ServedTask) -> RoundState | None:
        """Advance a closed round to SHUFFLED, or to DESTROYED if it is below its minimum, and return the new state.

        None, without any change, if another process is shuffling it. KeylessError, without any change, if the round key
        is missing.
        """
        with self.store.claim(served.id) as claimed:
            if not claimed or self.store.state(served.id) is not RoundState.CLOSED:
                return None
            if served.hop > 0 and not self.has_received(served):
                return None
            self.clean(served.name)
            if served.hop == 0 and self.store.count(served.id) < served.task.minimum_users:
                return self._destroy(served)
            try:
                batch = self._permute(served)
            except TrapMissingError as error:
                event("trap-missing", level=logging.ERROR, task=served.name, reason=str(error))
                return self._destroy(served)
            except BaseException:
                self.clean(served.name)  # only before advance, which may have been committed even if it fails
                raise
            if batch is None:
                return self._destroy(served)
            self.store.advance(served.id, RoundState.SHUFFLED, batch.signed)
            # the messages of an augmented protocol would tell how many dummies it drew
            is_augmented = served.task.protocol.trust == "augmented"
            counted = {} if is_augmented else {"messages": batch.manifest.messages}
            if served.task.carriers is not None:
                counted["carriers"] = batch.manifest.carriers
            event("shuffled", task=served.name, reports=batch.manifest.reports, **counted)
            counts = batch.manifest.counts
            if counts is not None and (counts.unopenable or counts.repeated):
                what = {"reports": counts.unopenable} if served.hop == 0 else {"messages": counts.unopenable}
                event("unopenable", level=logging.WARNING, task=served.name, repeated=counts.repeated, **what)
            return RoundState.SHUFFLED

    def batch(self, served: ServedTask) -> ShuffledBatch | None:
        """The batch of a shuffled round, if its file is in the work directory."""
        signed = self.store.note(served.id)
        file = self._batch_file(served, signed)
        if not file.exists():
            return None
        return ShuffledBatch(Manifest.verified(signed, self.key.public, served.task.version), signed, file)

    def has_received(self, served: ServedTask) -> bool:
        """Whether all of the batch of the shuffler before has arrived, and is not yet mixed."""
        batch = None if self.received is None else self.received.get(served.id)
        return batch is not None and batch.state is BatchState.COMPLETE

    def delete_received(self, served: ServedTask, reason: str = "") -> None:
        """Delete the messages of the shuffler before; refuse its batch for good if a reason is given."""
        if self.traps is not None and served.hop > 0:
            self.traps.delete(served.id)
        if self.received is None or served.hop == 0 or self.received.get(served.id) is None:
            return
        if reason:
            self.received.give_up(served.id, reason)
        else:
            self.received.finish(served.id, BatchState.RELEASED)

    def destroy_key(self, served: ServedTask) -> None:
        """Destroy the round key; only of a round whose reports are destroyed, which nobody needs to open any more."""
        if served.round_key is not None:
            self.round_keys.destroy(served.round_key)

    def clean(self, task_name: str, *, keep: Path | None = None) -> None:
        """Delete all files of a round, except ``keep``."""
        for pattern in (f"{task_name}.*", f".{task_name}.*"):
            for file in self.work.glob(pattern):
                if file != keep:
                    file.unlink(missing_ok=True)
        sync_directory(self.work)

    def _destroy(self, served: ServedTask) -> RoundState:
        reports = self.store.count(served.id)
        self.clean(served.name)
        self.store.destroy(served.id)
        self.delete_received(served, "The batch has too few messages that open, or traps are missing.")
        minimum = served.task.minimum_users
        event("destroyed", level=logging.ERROR, task=served.name, reports=reports, minimum=minimum)
        return RoundState.DESTROYED

    def _permute(self, served: ServedTask) -> ShuffledBatch | None:
        """The batch of all messages in uniformly random order; None if there are too few reports or carriers."""
        permuted = self.work / f"{served.name}.shuffled"
        mixture = self._mixture(served)
        size = served.task.record_size(served.hop)
        messages = 0
        while not messages:  # an augmented shuffler may drop all reports and draw no dummy, whatever the values are
            messages = permute_file(mixture.blocks(), size, permuted, scratch=self.work, memory=self.memory)
            if not mixture.is_enough:
                self._note_carriers(served, mixture)
                return None
        if messages * size != mixture.size:
            raise StoreError(f"{messages:,} messages of {size:,} bytes cannot have {mixture.size:,} bytes.")
        manifest = self._describe(served, permuted, messages, mixture)
        signed = manifest.signed(self.key)
        file = self._batch_file(served, signed)
        permuted.rename(file)
        self.clean(served.name, keep=file)
        return ShuffledBatch(manifest, signed, file)

    def _note_carriers(self, served: ServedTask, mixture: Mixture) -> None:
        """Log that the round is destroyed for its number of carriers, if it is."""
        carriers = served.task.carriers
        counts = mixture.counts
        if carriers is not None and counts is not None and counts.carriers < carriers.minimum:
            event(
                "too-few-carriers",
                level=logging.ERROR,
                task=served.name,
                carriers=counts.carriers,
                minimum=carriers.minimum,
            )

    def _mixture(self, served: ServedTask) -> Mixture:
        """What this shuffler mixes: reports, or the batch of the one before."""
        key = None if served.round_key is None else self.round_keys.load(served.round_key)
        if served.hop > 0 and key is not None and self.received is not None:
            mixture = BatchMixture(served.task, self._check_stopping, self.received, key, served.hop)
            if self.traps is not None:
                mixture.new_watch = partial(self.traps.watch, served.task)
                self._note_traps(served.task, self.traps)
            return mixture

        def bodies() -> Iterable[bytes]:
            return self.store.reports(served.id)

        if key is None:
            return ReportMixture(served.task, self._check_stopping, bodies, served.format.records)
        form = served.format
        openers = {
            size: ReportOpener(key, header_size=HEADER_SIZE, report_size=size)
            for size in (form.size, form.carrier_size)
            if size is not None
        }

        def open_report(body: bytes) -> bytes | None:
            return openers[len(body)].open(body) if len(body) in openers else None

        return ReportMixture(served.task, self._check_stopping, bodies, open_report, form.is_carrier)

    @staticmethod
    def _note_traps(task: Task, traps: TrapDirectory) -> None:
        """Log how many traps were accepted, if not all: those that were not cannot detect anything."""
        wanted, watch = 0 if task.wire is None else task.wire.traps, traps.watch(task)
        if len(watch.accepted) < wanted:
            event(
                "traps-not-accepted",
                level=logging.WARNING,
                task=task.id.hex(),
                accepted=len(watch.accepted),
                unknown=len(watch.unknown),
                traps=wanted,
            )

    def _describe(self, served: ServedTask, file: Path, messages: int, mixture: Mixture) -> Manifest:
        """The manifest of a file of permuted messages."""
        size = served.task.record_size(served.hop)
        records = max(1, _CHUNK_BYTES // size, -(-messages // _MAX_CHUNKS))
        hashes = []
        with file.open("rb") as content:
            while chunk := content.read(records * size):
                self._check_stopping()
                hashes.append(digest(chunk))
        manifest = Manifest(served.id, mixture.reports, messages, size, records, tuple(hashes), mixture.counts)
        manifest.check_task(served.task, served.hop)
        return manifest

    def _batch_file(self, served: ServedTask, signed: bytes) -> Path:
        return self.work / f"{served.name}.{digest(signed).hex()[:32]}.batch"

    def _check_stopping(self) -> None:
        if self.stopping():
            raise ShutdownError
