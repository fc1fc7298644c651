"""The cost of the outer seal: opening it while mixing takes a small part of the time that the analyzer needs."""

import secrets
import time
from dataclasses import replace

import pytest

from shuffledp.collection.device.client import sealed_report
from shuffledp.collection.task.wire_version_2 import ShufflerKeys, WireVersion2
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.collection.wire.sealing import Sealer

MESSAGES, REPORTS, LARGEST_SHARE = 20, 60, 0.2


@pytest.fixture(scope="module")
def round_key():
    return SealingKey.create()


@pytest.fixture(scope="module")
def task(parties, round_key):
    wire = WireVersion2((ShufflerKeys(parties.shuffler.public, round_key.public),))
    return parties.task("histogram/balcer-cheu", wire=wire)


def seconds(work):
    """Processor time of the quickest of three runs, so that other processes do not matter."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def test_mixing_costs_a_fifth_of_the_opening_of_messages_at_most(parties, task, round_key):
    """Of reports of 20 messages, about 0.08; a shuffler that opened a seal for each message would need as long."""
    form = replace(ReportFormat.of(task), messages=MESSAGES)
    sealer = Sealer(task.analyzer, task.id, task.message_size, 2)
    sealed = [sealer.seal([bytes(task.message_size)] * MESSAGES, MESSAGES) for _ in range(REPORTS)]
    reports = [form.build(secrets.token_bytes(16), messages) for messages in sealed]
    opener = ReportOpener(round_key, header_size=HEADER_SIZE, report_size=form.size)
    analyzer = Opener(parties.analyzer, task.id, task.message_size, 2)
    assert [opener.open(report) for report in reports] == [b"".join(messages) for messages in sealed]
    outer = seconds(lambda: [opener.open(report) for report in reports])
    inner = seconds(lambda: analyzer.open([message for messages in sealed for message in messages]))
    assert outer <= LARGEST_SHARE * inner
    each = seconds(lambda: [opener.open(report) for report in reports for _ in range(MESSAGES)])
    assert each > LARGEST_SHARE * inner


def test_a_device_seals_to_the_round_key(parties, task, round_key):
    """What a device sends opens with the round key, then message by message with the analyzer's."""
    form, report = ReportFormat.of(task), sealed_report(task, "bike")
    content = ReportOpener(round_key, header_size=HEADER_SIZE, report_size=form.size).open(report)
    size = form.sealed_size
    messages = [content[at : at + size] for at in range(0, len(content), size)]
    opened = Opener(parties.analyzer, task.id, task.message_size, 2).open(messages)
    assert (len(opened.messages) + opened.dummies, opened.rejected) == (form.messages, {})
    other = ReportOpener(SealingKey.create(), header_size=HEADER_SIZE, report_size=form.size)
    assert other.open(report) is None
