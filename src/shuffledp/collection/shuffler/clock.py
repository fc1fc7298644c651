"""Wall-clock time for rounds that does not follow jumps of the system clock.

Closing a round cannot be undone, so the system clock alone does not decide it. It is compared with a clock that cannot
be set (CLOCK_BOOTTIME, which also runs while the machine is suspended), even across restarts of the process until the
machine reboots, and with the clock of the store if it has one.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from shuffledp.collection.server.logs import event
from shuffledp.collection.server.metrics import Metrics
from shuffledp.durable_files import open_regular, write_durably

_JUMP_SECONDS = 5.0
_SLEW = 0.0005
"""Maximum rate at which a system clock is slewed (adjusted without a step), in seconds per second."""
_ANCHOR_SECONDS = 60.0
_SETTLE_SECONDS = 900.0
_DISAGREEMENT_SECONDS = 30.0
_LOG_SECONDS = 10.0
_READ_SECONDS, _READ_ATTEMPTS = 0.5, 3
_STATE_BYTES = 4096
_LATEST = 253_402_300_799.0
"""The end of the year 9999: a saved time beyond it is damaged."""


def boot_seconds() -> float:
    """Seconds of a clock that cannot be set; includes time in suspension where the system supports it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def boot_id() -> str | None:
    """An id that changes with every boot of the machine; None if the system has none."""
    with suppress(OSError, UnicodeDecodeError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    return None


class RoundClock:
    """A callable that returns seconds since 1970. Safe to use from several threads.

    A jump of the system clock by more than five seconds is ignored until the clock has been stable for 15 minutes.
    ``state`` is a file that preserves the time for the next process.
    """

    def __init__(
        self,
        state: Path | None = None,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = boot_seconds,
        boot: str | None = None,
    ) -> None:
        self._wall, self._steady, self._state = wall, steady, state
        self._boot = boot_id() if boot is None else boot
        self._lock = Lock()
        self._jump: tuple[float, float] | None = None
        """The deviation of the system clock after a jump, and the time of the jump on the steady clock."""
        self._logged_at, self._is_logged = -math.inf, False
        self._behind = 0.0
        """The store's clock minus this one, in seconds, if the store is behind by more than the tolerance; else 0."""
        self._disagrees = False
        self._offset = 0.0
        steady_now, wall_now = self._read()
        self._anchor = self._restore(wall_now, steady_now)
        self._saved: tuple[float, float] | None = None if self._anchor == (wall_now, steady_now) else self._anchor
        self()
        self.save()

    @property
    def offset(self) -> float:
        """The system clock minus the time in use, in seconds; 0 while the system clock is trusted."""
        return self._offset - self._behind

    def export(self, metrics: Metrics) -> None:
        """Export the offset as a metric."""
        gauge = metrics.gauge("clock_offset_seconds", "The system clock minus the time that rounds use")
        gauge.set_function(lambda: self.offset)

    def steady(self) -> float:
        """Seconds of the clock that cannot be set, for durations."""
        return self._steady()

    def __call__(self) -> float:
        """The time, in seconds since 1970."""
        with self._lock:
            return self._trusted() + self._behind

    def compare(self, reference: float) -> None:
        """Compare with the clock of the store, which other processes use too; the earlier of the two is used."""
        with self._lock:
            difference = reference - self._trusted()
            self._behind = difference if difference < -_DISAGREEMENT_SECONDS else 0.0
            disagrees = abs(difference) > _DISAGREEMENT_SECONDS
            if disagrees and not self._disagrees:
                event("clock-disagrees", level=logging.ERROR, store_ahead_seconds=round(difference))
            elif self._disagrees and not disagrees:
                event("clock-agrees-again")
            self._disagrees = disagrees

    def save(self) -> None:
        """Save the time for the next process if it has changed; a failure is ignored."""
        with self._lock:
            anchor = self._anchor
        if self._state is None or self._boot is None or anchor == self._saved:
            return
        document = {"boot": self._boot, "wall": anchor[0], "steady": anchor[1]}
        with suppress(OSError):
            content = json.dumps(document).encode("ascii")
            write_durably(self._state, content, temporary=self._state.with_name(f"{self._state.name}.new"))
            self._saved = anchor

    def _trusted(self) -> float:
        """The time according to this machine's clocks."""
        steady, wall = self._read()
        anchor_wall, anchor_steady = self._anchor
        elapsed = steady - anchor_steady
        expected = anchor_wall + elapsed
        deviation = wall - expected
        if abs(deviation) <= _JUMP_SECONDS + _SLEW * elapsed:
            if self._jump is not None:
                event("clock-back", seconds=round(self._jump[0]))
                self._jump = None
            if elapsed >= _ANCHOR_SECONDS:
                self._anchor = (wall, steady)
            self._offset = 0.0
            return wall
        if self._jump is None or abs(deviation - self._jump[0]) > _JUMP_SECONDS:
            self._jump, self._is_logged = (deviation, steady), False
        elif steady - self._jump[1] >= _SETTLE_SECONDS:
            event("clock-adopted", level=logging.ERROR, seconds=round(deviation))
            self._jump = None
            self._anchor = (wall, steady)
            self._offset = 0.0
            return wall
        if not self._is_logged and steady >= self._logged_at + _LOG_SECONDS:
            event("clock-jumped", level=logging.ERROR, seconds=round(deviation))
            self._logged_at, self._is_logged = steady, True
        self._offset = deviation
        return expected

    def _read(self) -> tuple[float, float]:
        """Both clocks at one moment; read again if the process was interrupted in between."""
        for _ in range(_READ_ATTEMPTS):
            before, wall, after = self._steady(), self._wall(), self._steady()
            if after - before < _READ_SECONDS:
                break
        return after, wall

    def _restore(self, wall: float, steady: float) -> tuple[float, float]:
        """Both clocks as the previous process saved them; if it saved nothing, their current values."""
        saved = self._load()
        if saved is None:
            return wall, steady
        boot, saved_wall, saved_steady = saved
        if boot == self._boot and saved_steady <= steady:
            return saved_wall, saved_steady
        # after a reboot the time must not be earlier than the saved one
        return (saved_wall, steady) if wall < saved_wall - _JUMP_SECONDS else (wall, steady)

    def _load(self) -> tuple[str | None, float, float] | None:
        if self._state is None or self._boot is None:
            return None
        try:
            with open_regular(self._state) as file:
                document = json.loads(file.read(_STATE_BYTES))
            boot, wall, steady = document["boot"], float(document["wall"]), float(document["steady"])
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return (boot, wall, steady) if 0 <= wall <= _LATEST and 0 <= steady <= _LATEST else None
