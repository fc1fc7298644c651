"""The outer seal of a report: one HPKE seal (RFC 9180) over all its messages, to a key of the round.

The shuffler opens it while it mixes, never before, and destroys the key afterwards. Until then, bytes that anyone sees
or stores, including the shuffler's own store, reveal nothing about the messages of the report. The header of the report
is part of the context of the seal: a copy under another id or for another task does not open.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag

from shuffledp.collection.wire.keys import RoundKey, RoundPublicKey
from shuffledp.collection.wire.outer_suites import suite_of

_LABEL = b"shuffledp report v2\x00shuffler\x00"


def outer_info(header: bytes) -> bytes:
    """The context that an outer seal is bound to: version, recipient, ids of task and report."""
    return _LABEL + header


def seal_report(header: bytes, messages: bytes, round_key: RoundPublicKey) -> bytes:
    """A report of version 2: the header, then the sealed messages under the outer seal."""
    return header + suite_of(round_key).hpke.encrypt(messages, round_key.public, info=outer_info(header))


class ReportOpener:
    """Opens the outer seals of the reports of one round; the messages inside stay sealed to the analyzer."""

    def __init__(self, key: RoundKey, *, header_size: int, report_size: int) -> None:
        self._private, self._suite = key.private, suite_of(key).hpke
        self._header_size, self._report_size = header_size, report_size

    def open(self, report: bytes) -> bytes | None:
        """The concatenated sealed messages; None if the report was not sealed to this key with this header."""
        if len(report) != self._report_size:
            return None
        header = report[: self._header_size]
        try:
            return self._suite.decrypt(report[self._header_size :], self._private, info=outer_info(header))
        except (InvalidTag, ValueError):
            return None
