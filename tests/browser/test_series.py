"""Series in the web client: the tasks that Python derives, its verdicts, and one draw per device in Chromium.

Series are drawn anew in every run; a failure prints them.
"""

import base64
import hashlib
import json
import random
import secrets
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from signed_series import make_series
from test_reporting import AUTHOR

from shuffledp.collection.device.budget import DeviceBudget
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.device.series import Participation, SeriesClient
from shuffledp.collection.device.spending import Spending, usage
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.series import Cancellation, authentic_series
from shuffledp.collection.wire.keys import to_base64
from shuffledp.errors import ParameterError

SERIES, ALTERED = 12, 150
PROTOCOLS = {
    "count/balcer-cheu": {"users": 500},
    "count/randomized-response": {"users": 500},
    "histogram/k-rr": {"users": 500, "domain_size": 4},
    "histogram/uniform-blanket": {"users": 1000, "domain_size": 3, "categories": ["bus", "bike", "car"]},
    "histogram/correlated-noise": {"users": 1000, "domain_size": 3, "carriers": 0.5},
    "histogram/shuffler-laplace": {"users": 1000, "domain_size": 3},
    "sum/privacy-blanket": {"users": 500, "lower": 0.0, "upper": 9.0},
}


def random_series():
    protocol = random.choice(list(PROTOCOLS))
    rounds, open_seconds = random.choice([1, 2, 7, 52]), random.randint(1, 500_000)
    return make_series(
        rounds=rounds,
        per_device=random.randint(1, rounds),
        hops=1 if "carriers" in PROTOCOLS[protocol] else random.choice([1, 1, 2, 3]),
        opens=datetime(random.randint(1000, 9990), random.randint(1, 12), random.randint(1, 28), 3, 4, 5, tzinfo=UTC),
        open_seconds=open_seconds,
        period=random.choice([open_seconds, open_seconds + 1, 604_800]),
        protocol=protocol,
        settings=PROTOCOLS[protocol],
        epsilon=random.choice([0.5, 1.0]),
        name=random.choice(["Commuting", 'Rad "Bus" \\ \N{GRINNING FACE}', "\N{CJK UNIFIED IDEOGRAPH-8ECA}"]),
        replaces=random.choice([None, secrets.token_bytes(32)]),
    )


@pytest.fixture
def derived(web, tmp_path):
    """What the web client makes of the contents of signed series."""

    def run(cases):
        path = tmp_path / "series.json"
        listed = [
            {"name": name, "content": base64.b64encode(content).decode(), "moments": moments}
            for name, (content, moments) in cases.items()
        ]
        path.write_text(json.dumps({"author": to_base64(AUTHOR.public.raw), "cases": listed}))
        lines = web.run_node("test/derived.ts", path, capture_output=True).stdout.splitlines()
        return {verdict.pop("name"): verdict for verdict in map(json.loads, lines)}

    return run


def moments_of(series):
    """Around every border of a round, and some others, in milliseconds."""
    first, step = series.first.opens, timedelta(seconds=series.period)
    borders = [series.task(i).opens for i in range(len(series.keys))] + [
        series.task(i).closes for i in range(len(series.keys))
    ]
    return [*(b + timedelta(milliseconds=ms) for b in borders for ms in (-1, 0, 1)), first - step]


def test_the_tasks_are_those_of_python(derived):
    made = {f"{i}": random_series() for i in range(SERIES)}
    now = {name: moments_of(series) for name, series in made.items()}
    cases = {name: (series.signed(AUTHOR), [_milliseconds(m) for m in now[name]]) for name, series in made.items()}
    for name, found in derived(cases).items():
        series = made[name]
        tasks = [series.task(index) for index in range(len(series.keys))]
        assert found["reason"] is None, series.to_document()
        assert found["id"] == series.id.hex()
        assert found["tasks"] == [
            [task.id.hex(), hashlib.sha256(canonical(task.to_document())).hexdigest()] for task in tasks
        ]
        assert found["open"] == [series.round_at(moment) for moment in now[name]]
        assert found["roundsPerDevice"] == series.rounds_per_device
        assert found["replaces"] == (None if series.replaces is None else series.replaces.hex())
        assert (found["epsilon"], found["delta"]) == (series.first.epsilon, series.first.delta)
        assert len({task.id for task in tasks}) == len(tasks)


def _milliseconds(moment):
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def test_a_task_with_the_keys_of_another_round_is_noticed(derived):
    """The planted fault: round 1 with the keys of round 2."""
    series = make_series(rounds=3)
    found = derived({"series": (series.signed(AUTHOR), [])})["series"]["tasks"]
    faulty = series.task(1).to_document() | {"analyzer": series.task(2).to_document()["analyzer"]}
    assert found[1][1] == hashlib.sha256(canonical(series.task(1).to_document())).hexdigest()
    assert found[1][1] != hashlib.sha256(canonical(faulty)).hexdigest()


NUMBERS = [
    0,
    1,
    2,
    3,
    399,
    400,
    401,
    7200,
    86_400,
    31_622_400,
    31_622_401,
    1 << 40,
    -1,
    True,
    "1",
    None,
    "0x20000000000000",
]
TIMES = [
    "2026-02-29T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0999-01-01T00:00:00Z",
    "2026-01-01",
    "2026-01-01T00:00:00.000Z",
]


def altered(document):
    """The document with one or two values of it replaced by others that are near, extreme or of another type."""
    changed = json.loads(json.dumps(document))
    for _ in range(random.choice([1, 1, 2])):
        key = random.choice([*changed, "template", "keys"])
        if key in ("period", "open", "rounds", "rounds_per_device", "version"):
            changed[key] = random.choice(NUMBERS)
        elif key == "first_opens":
            changed[key] = random.choice([*TIMES, 5, None])
        elif key == "replaces":
            changed[key] = random.choice([None, "0" * 64, "A" * 64, "0" * 63, 0, {}])
        elif key == "keys":
            _alter_keys(changed)
        elif key == "template":
            _alter_template(changed["template"])
        else:
            changed[key] = random.choice(["shuffledp-task", None, 1, {}])
    return changed


def _alter_keys(document):
    keys, low_order = document["keys"], to_base64(bytes(32))
    if not isinstance(keys, dict) or not keys.get("shufflers"):
        return
    fresh = to_base64(secrets.token_bytes(32))
    column = random.choice([keys["analyzer"], *keys["shufflers"]])
    change = random.randrange(7)
    if change == 0 and column:
        column[random.randrange(len(column))] = random.choice([fresh, low_order, fresh + "=", fresh[:-1], 7, None])
    elif change == 1:
        column.append(fresh)
    elif change == 2:
        column[:] = column[:-1]
    elif change == 3:
        keys["shufflers"].append(list(keys["analyzer"]))
    elif change == 4:
        random.shuffle(column)
    elif change == 5:
        keys["shufflers"] = random.choice([[], {}, None, [[]]])
    else:
        keys["more"] = []


def _alter_template(template):
    key = random.choice(
        ["guarantee", "version", "format", "shufflers", "opens", "series", "name", "minimum_users", "traps", "carriers"]
    )
    if key == "guarantee":
        template[key] |= random.choice([{"epsilon": "0.01"}, {"delta": "0.0"}, {"delta": "1e-05"}, {"epsilon": 1}])
    elif key == "shufflers":
        hops = template[key]
        template[key] = random.choice([[], None, hops * 2, [hop | {"sealing": hop["signing"]} for hop in hops], [{}]])
    else:
        template[key] = random.choice([None, 1, 2, "", "x", [], {}, "shuffledp-task"])


def signed(document):
    signature = AUTHOR.sign(b"shuffledp series v1\n" + canonical(document))
    return canonical({"series": document, "author": AUTHOR.public.id, "signature": to_base64(signature)})


def reason_of(content):
    try:
        series = authentic_series(content, AUTHOR.public)
    except ParameterError as error:
        return error.values["reason"]
    try:
        series.first.wire.check_supported()
    except ParameterError as error:
        return error.values["reason"]
    return None


def test_altered_series_have_the_same_verdict(derived):
    documents = [random_series().to_document() for _ in range(5)]
    contents = {str(i): signed(altered(random.choice(documents))) for i in range(ALTERED)}
    expected = {name: reason_of(content) for name, content in contents.items()}
    found = derived({name: (content, []) for name, content in contents.items()})
    for name, verdict in found.items():
        # a document that breaks several rules may fail at another of them first
        assert (verdict["reason"] is None) == (expected[name] is None), (contents[name], verdict, expected[name])
        assert verdict["reason"] in (None, "malformed", "inconsistent", "bad-guarantee", "version", "unsupported")
    assert sum(reason is None for reason in expected.values()) >= 3
    assert sum(reason is not None for reason in expected.values()) >= 30


@pytest.fixture
def new_page(context, site, bundle):
    """Pages of one origin that share their storage, as tabs do."""
    directory, address = site
    (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")

    def opened():
        page = context.new_page()
        page.goto(address)
        page.add_script_tag(url="test.js", type="module")
        page.wait_for_function("() => 'seriesOf' in globalThis")
        return page

    return opened


DRAW = "async ([content, author]) => (await seriesOf(content, author)).participation"
START = """([content, author]) => {
  seriesOf(content, author).then(({ participation }) => { globalThis.drawn = participation; });
}"""
AT_THE_END = """async ([content, author, options]) => {
  const client = await seriesOf(content, author, options), { series } = client, reported = [];
  for (let round = 0; round < series.rounds; round++) {
    const now = series.opensAt(round) + 1000 * series.open - 1;
    reported.push(await outcome(client.report("bus", { now })));
  }
  return reported;
}"""


def test_tabs_and_reloads_of_a_browser_have_one_draw(new_page, browser, site):
    series = make_series(rounds=20, per_device=5)
    given = [series.signed(AUTHOR).decode(), AUTHOR.public.raw.hex()]
    pages = [new_page() for _ in range(3)]
    for page in pages:
        page.evaluate(START, given)
    for page in pages:
        page.wait_for_function("() => globalThis.drawn")
    draws = [page.evaluate("globalThis.drawn") for page in pages]
    pages[0].close()
    draws.append(new_page().evaluate(DRAW, given))
    assert draws == [draws[0]] * 4
    assert len(draws[0]["rounds"]) == 5
    outcomes = pages[1].evaluate(AT_THE_END, [*given, {}])
    assert [index for index, outcome in enumerate(outcomes) if outcome == index] == draws[0]["rounds"]
    assert set(outcomes) == {*draws[0]["rounds"], "not-drawn"}
    again = new_page().evaluate(AT_THE_END, [*given, {}])
    assert set(again) == {"already-reported", "not-drawn"}


def test_a_draw_of_every_tab_is_noticed(new_page):
    """The planted fault: a store that forgets, so that 20 starts take part in more than 5 of 20 rounds."""
    series = make_series(rounds=20, per_device=5)
    given = [series.signed(AUTHOR).decode(), AUTHOR.public.raw.hex()]
    forgetting = "{ draws: () => ({ update: async (change) => { await change(null); } }) }"
    faulty = f"""async ([content, author]) => {{
      const seen = new Set();
      for (let i = 0; i < 20; i++) {{
        for (const round of (await seriesOf(content, author, {forgetting})).participation.rounds) seen.add(round);
      }}
      return seen.size;
    }}"""
    assert new_page().evaluate(faulty, given) > 5


def test_a_draw_that_cannot_be_stored_is_no_draw(new_page):
    series = make_series(rounds=4, per_device=1)
    given = [series.signed(AUTHOR).decode(), AUTHOR.public.raw.hex()]
    page = new_page()
    page.evaluate("() => { IDBObjectStore.prototype.put = () => { throw new Error('planted'); }; }")
    assert page.evaluate("([content, author]) => outcome(seriesOf(content, author))", given) == "no-storage"
    draws = [new_page().evaluate(DRAW, given) for _ in range(2)]
    assert draws[0] == draws[1]


SHARED = """
import { readFileSync } from "node:fs";
const { FileOutbox, FileRecord } = await import("./src/node.ts");
const { Budget } = await import("./src/budget/index.ts");
const { SeriesClient } = await import("./src/series/index.ts");
const { content, author, state, round } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const outbox = await FileOutbox.open(state), budget = await Budget.open({}, await FileRecord.open(state));
const client = await SeriesClient.create(new TextEncoder().encode(content), { author, outbox, budget });
const { series, participation } = client, index = participation.rounds[round];
if (index !== undefined) await client.report("bus", { now: series.opensAt(index) + 1000 * series.open - 1 });
console.log(JSON.stringify(participation));
"""


@pytest.mark.parametrize("first", ["python", "node"])
def test_python_and_node_share_a_draw_a_cancellation_and_a_budget(web, tmp_path, first):
    """One directory, used by one after the other: the rounds of both are one series in the record, and one draw."""
    series, state = make_series(rounds=12, per_device=3, epsilon=0.5), tmp_path / "device"
    content = series.signed(AUTHOR)

    def python():
        return SeriesClient(content, author=AUTHOR.public, state=state, policy=Policy())

    def node(position):
        given = {"content": content.decode(), "author": to_base64(AUTHOR.public.raw), "state": str(state)}
        (tmp_path / "given.json").write_text(json.dumps(given | {"round": position}))
        (tmp_path / "shared.mjs").write_text(SHARED.replace('"./src/', f'"{web.WEB.as_uri()}/src/'))
        done = web.run_node(tmp_path / "shared.mjs", tmp_path / "given.json", capture_output=True)
        found = json.loads(done.stdout)
        return Participation(tuple(found["rounds"]), tuple(found["delays"]), found["cancelledFrom"])

    if first == "node":
        node(0)
    client = python()
    if first == "python":
        assert node(0) == client.participation
    own = client.participation.rounds[1]
    client.report("bike", now=series.task(own).closes - timedelta(seconds=1))
    client.cancel(Cancellation(series.id, 11, "Enough.").signed(AUTHOR))
    assert node(99) == python().participation == client.participation
    budget = DeviceBudget()
    spent = usage(Spending(state, budget).read(), budget, now=series.task(0).opens)
    assert (spent.releases, spent.series) == (2, 1)


DRAWING = """
import { readFileSync } from "node:fs";
const { FileOutbox } = await import("./src/node.ts");
const { SeriesClient } = await import("./src/series/index.ts");
const { content, author, state, devices } = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (let i = 0; i < devices; i++) {
  const outbox = await FileOutbox.open(`${state}/${i}`);
  const { participation } = await SeriesClient.create(new TextEncoder().encode(content), { author, outbox });
  console.log(JSON.stringify(participation));
}
"""


def test_a_process_that_is_killed_does_not_draw_again(web, tmp_path):
    """Devices draw one after the other until the process is killed; the draws that were seen are those of the next."""
    content = make_series(rounds=50, per_device=5).signed(AUTHOR).decode()
    given = {"content": content, "author": to_base64(AUTHOR.public.raw), "state": str(tmp_path), "devices": 40}
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "drawing.mjs").write_text(DRAWING.replace('"./src/', f'"{web.WEB.as_uri()}/src/'))
    command = [web.node(), tmp_path / "drawing.mjs", tmp_path / "given.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=web.environment()) as process:
        seen = [process.stdout.readline() for _ in range(random.randint(3, 20))]
        process.kill()
        seen += [line for line in process.stdout if line.endswith("\n")]
    again = web.run_node(*command[1:], capture_output=True).stdout.splitlines(keepends=True)
    assert again[: len(seen)] == seen
    assert len(set(again)) == len(again) == 40
