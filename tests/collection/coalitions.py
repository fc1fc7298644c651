"""What parties learn about one person if they put together all they have: with real reports, keys and requests.

Each party has the bytes that it sees in a deployment. A coalition tries every key on every report that it knows, and
every way to a sender: a connection, a request that a relay forwarded, a token.
"""

import itertools
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shuffledp.collection.device import sealed_report
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.transport.oblivious import GatewayKey
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat
from shuffledp.collection.wire.keys import SealingKey, SigningKey
from shuffledp.collection.wire.layers import LayerOpener
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.collection.wire.tokens import authorization, token_hash, token_id

PARTIES = ("shuffler", "second shuffler", "analyzer", "author", "TLS end", "store thief", "relay", "token issuer")
NOTHING, TOOK_PART, REPORTS, VALUE = "nothing", "took part", "reports", "**value**"
LEVELS = (NOTHING, TOOK_PART, REPORTS, VALUE)
PEOPLE = ("Ann", "Bob", "Cleo")


@dataclass
class Knowledge:
    """What a coalition has."""

    reports: set[bytes] = field(default_factory=set)
    senders: dict[bytes, str] = field(default_factory=dict)
    """The sender of a report or of a sealed request, as its connection shows."""
    forwarded: dict[bytes, bytes] = field(default_factory=dict)
    """The report in a sealed request, as a gateway opens it."""
    spent: dict[bytes, bytes] = field(default_factory=dict)
    """The id of the token of a report."""
    issued: dict[bytes, str] = field(default_factory=dict)
    """Who got the token with an id."""
    keys: list[SealingKey] = field(default_factory=list)

    def __or__(self, other: "Knowledge") -> "Knowledge":
        joined = Knowledge()
        for each in (self, other):
            joined.reports |= each.reports
            joined.keys += each.keys
            for name in ("senders", "forwarded", "spent", "issued"):
                getattr(joined, name).update(getattr(each, name))
        return joined

    def sender(self, report: bytes) -> str | None:
        """Who sent a report."""
        requests = (request for request, inner in self.forwarded.items() if inner == report)
        ways = [self.senders.get(report), *(self.senders.get(request) for request in requests)]
        ways.append(self.issued.get(self.spent.get(report, b"")))
        return next((sender for sender in ways if sender is not None), None)


class Deployment:
    """A round with real reports of three people, and what each party has of it."""

    def __init__(self, parties, version: int, *, relay: bool = False, shufflers: int = 1) -> None:
        signing = [parties.shuffler, *(SigningKey.create() for _ in range(shufflers - 1))]
        keys = [SealingKey.create() for _ in signing] if version == 2 else []
        pairs = zip(signing, keys, strict=False)
        shuffler_keys = tuple(ShufflerKeys(sign.public, seal.public) for sign, seal in pairs)
        wire = WireVersion2(shuffler_keys) if version == 2 else None
        self.task = parties.task("histogram/balcer-cheu", wire=wire, shuffler=signing[-1].public)
        self.form = ReportFormat.of(self.task)
        reports = {
            person: sealed_report(self.task, value)
            for person, value in zip(PEOPLE, ["bus", "bike", "car"], strict=True)
        }
        tokens = {person: f"a-token-for-{person}-alone" for person in PEOPLE}
        ids = {person: token_id(token_hash(token.encode())) for person, token in tokens.items()}
        assert all(ids[person].hex() in authorization(tokens[person], reports[person], 2) for person in PEOPLE)
        gateway = GatewayKey(1, X25519PrivateKey.generate().public_key().public_bytes_raw())
        requests = {person: gateway.encapsulate(report)[0] for person, report in reports.items()}
        senders = {reports[person]: person for person in PEOPLE}
        sent = {requests[person]: person for person in PEOPLE}
        spent = {reports[person]: ids[person] for person in PEOPLE}
        seen = {"reports": set(reports.values()), "spent": spent}
        connections = {} if relay else {"senders": senders}
        gate = {"forwarded": {requests[person]: reports[person] for person in PEOPLE}} if relay else {}
        every_key = [*keys, parties.analyzer]
        self.known = {
            "shuffler": Knowledge(**seen, **connections, **gate, keys=keys[:1]),
            "second shuffler": Knowledge(keys=keys[1:]),
            "analyzer": Knowledge(keys=[parties.analyzer]),
            "author": Knowledge(keys=every_key),  # it can name keys of its own for every role
            "TLS end": Knowledge() if relay else Knowledge(**seen, **connections),
            "store thief": Knowledge(**seen),  # of the disk and the database's log, after the round key was destroyed
            "relay": Knowledge(senders=sent) if relay else Knowledge(),
            "token issuer": Knowledge(issued={ids[person]: person for person in PEOPLE}),
        }

    def learns(self, coalition) -> str:
        """The most that the coalition learns about a person."""
        joined = Knowledge()
        for party in coalition:
            joined |= self.known[party]
        read = {report for report in joined.reports if self._content(report, joined.keys)}
        linked = {report for report in joined.reports if joined.sender(report) is not None}
        if read & linked:
            return VALUE
        if read:
            return REPORTS
        return TOOK_PART if linked or joined.senders else NOTHING

    def _content(self, report: bytes, keys) -> bool:
        """Whether the keys open all messages of a report."""
        for records in self._records(report, keys):
            size = self.form.sealed_size
            messages = [bytes(records[start : start + size]) for start in range(0, len(records), size)]
            for hop in range(1, self.task.hops):
                messages = self._without_layer(messages, hop, keys)
            openers = [Opener(key, self.task.id, self.task.message_size, self.task.version) for key in keys]
            if messages and any(not opener.open(messages).rejected for opener in openers):
                return True
        return False

    def _without_layer(self, messages, hop: int, keys):
        """The messages without the layer of a shuffler; none if no key opens it."""
        for key in keys:
            opener = LayerOpener(key, hop, self.task.id, self.task.record_size(hop - 1))
            opened = [opener.open(message) for message in messages]
            if None not in opened:
                return opened
        return []

    def _records(self, report: bytes, keys):
        """The sealed messages of a report, as far as the keys show them."""
        if self.form.version == 1:
            return [bytes(self.form.records(report))]
        openers = (ReportOpener(key, header_size=HEADER_SIZE, report_size=self.form.size) for key in keys)
        return [records for opener in openers if (records := opener.open(report)) is not None]


def coalitions(size: int):
    return list(itertools.combinations(PARTIES, size))


def more_than_its_pairs(deployments, triple) -> bool:
    """Whether three parties learn more than any two of them, in one of the deployments."""
    return any(
        LEVELS.index(deployment.learns(triple))
        > max(LEVELS.index(deployment.learns(pair)) for pair in itertools.combinations(triple, 2))
        for deployment in deployments
    )


def table(deployments: dict[str, "Deployment"], rows) -> str:
    """A table in Markdown: what each coalition learns in each deployment."""
    lines = [f"| who | {' | '.join(deployments)} |", f"| --- |{' --- |' * len(deployments)}"]
    lines += [
        f"| {' + '.join(row)} | {' | '.join(deployment.learns(row) for deployment in deployments.values())} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"
