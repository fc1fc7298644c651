"""Reports of the web client for a chain of shufflers, which Python opens: every layer at its own hop only."""

import base64
import json

import pytest
from test_differential import ANALYZER, AUTHOR, task_of

from shuffledp.collection import SealingKey, ShufflerKeys, SigningKey, WireVersion2
from shuffledp.collection.device import authentic_task
from shuffledp.collection.wire.formats import HEADER_SIZE, ReportFormat
from shuffledp.collection.wire.layers import LayerOpener
from shuffledp.collection.wire.opening import Opener
from shuffledp.collection.wire.outer_seal import ReportOpener

SCRIPT = """
import { sealedReport } from "./src/report.ts";
import { verifyTask } from "./src/task.ts";
const [content, author] = JSON.parse(process.env["GIVEN"]).map((text) => Uint8Array.from(Buffer.from(text, "base64")));
const task = await verifyTask(content, author);
console.log(task.reportSize, Buffer.from(await sealedReport(task, 2)).toString("hex"));
"""


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_python_opens_the_layers_of_a_report(web, hops):
    shufflers = [SigningKey.create() for _ in range(hops)]
    keys = [SealingKey.create() for _ in range(hops)]
    parties = zip(shufflers, keys, strict=True)
    wire = WireVersion2(tuple(ShufflerKeys(signing.public, sealing.public) for signing, sealing in parties))
    changes = {"shuffler": shufflers[-1].public, "wire": wire}
    task = task_of("histogram", "uniform-blanket", users=1000, epsilon=1.0, delta=1e-6, changes=changes)
    signed = task.signed(AUTHOR).to_bytes()
    assert authentic_task(signed, AUTHOR.public) == task
    given = json.dumps([base64.b64encode(part).decode() for part in (signed, AUTHOR.public.raw)])
    run = web.run_node(
        "--input-type=module", "--eval", SCRIPT, capture_output=True, env=web.environment(GIVEN=given)
    )  # fmt: skip
    size, text = run.stdout.split()
    report, form = bytes.fromhex(text), ReportFormat.of(task)
    assert int(size) == len(report) == form.size

    opened = ReportOpener(keys[0], header_size=HEADER_SIZE, report_size=form.size).open(report)
    messages = [opened[i : i + form.sealed_size] for i in range(0, len(opened), form.sealed_size)]
    assert len(messages) == task.messages_per_report
    for hop in range(1, hops):
        length = len(messages[0])
        wrong = LayerOpener(keys[hop], hop + 1, task.id, length)  # the fault: the layer of another hop
        assert {wrong.open(message) for message in messages} == {None}
        messages = [LayerOpener(keys[hop], hop, task.id, length).open(message) for message in messages]
    contents = Opener(ANALYZER, task.id, task.message_size, 2).open(messages)
    assert len(contents.messages) + contents.dummies == task.messages_per_report
    assert contents.messages
    assert not contents.rejected
