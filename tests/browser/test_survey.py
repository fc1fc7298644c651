"""The survey page in a real Chromium, with real servers: what it sends, to whom, how often; and what it must not do."""

import json
import math
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from page_checks import Watcher
from survey_rounds import MODES, Faults, Round, forged, resigned

import shuffledp as sdp
from shuffledp.collection.device import Connection
from shuffledp.collection.device.release import fetch_release
from shuffledp.collection.device.simulation import Devices
from shuffledp.collection.rehearsal import ROUND_KEYS
from shuffledp.collection.task.canonical import canonical
from shuffledp.collection.task.series import Cancellation
from shuffledp.collection.wire.formats import ReportFormat
from shuffledp.collection.wire.keys import SealingKey
from shuffledp.collection.wire.outer_seal import ReportOpener
from shuffledp.collection.wire.tokens import authorization

HEADER_BYTES = 53
ANSWERS = {
    "count/correlated-noise": ["Yes", "No"],
    "histogram/balcer-cheu": MODES,
    "sum/privacy-blanket": ["0", "120", "57"],
    "quantiles/uniform-blanket": ["0", "120", "57.5"],
    "strings/tree-blanket": ["a", " Twelvesymbol ", "tram"],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A round of version 2; its servers also have tasks of version 1."""
    return Round.prepare(tmp_path_factory.mktemp("round"), version=2)


@pytest.fixture(scope="module")
def histogram(prepared):
    return prepared.task(served=True)


@pytest.fixture(scope="module")
def sized(prepared):
    """One task of each kind of question."""
    return {
        protocol: prepared.task(protocol, users=200, served=True, version=1 + i % 2)
        for i, protocol in enumerate(ANSWERS)
    }


@pytest.fixture(scope="module")
def asked_in_rounds(prepared):
    """A series for a release, one with devices that do not take part in every round, and one that is cancelled."""
    own = {"settings": {"users": 100, "categories": sdp.Categories.of(MODES)}}
    noise = {"protocol": "histogram/correlated-noise", "epsilon": 6.0, "maximum_users": 100}
    return {
        "released": prepared.series(rounds=3, per_device=3, **own, **noise),
        "some": prepared.series(rounds=4, per_device=2, **own),
        "cancelled": prepared.series(rounds=4, per_device=4, cancelled_from=2, **own),
    }


@pytest.fixture(scope="module")
def servers(prepared, histogram, sized, asked_in_rounds):
    with prepared.rehearsal.servers():
        yield prepared
    prepared.stop()


@pytest.fixture
def collection(servers):
    """The servers, with a proxy that has recorded nothing and has no faults."""
    servers.proxy.requests.clear()
    servers.proxy.faults = Faults()
    return servers


@pytest.fixture
def watch(collection):
    """Start watching a context: it must contact only the page and the shuffler, and violate no policy."""
    watchers = []

    def start(context):
        reports = (f"{collection.proxy.url}/{path}/" for path in ("v1/tasks", "v2/tasks", "v2/series"))
        allowed = (f"http://127.0.0.1:{collection.port}/", *reports, "data:")
        watchers.append(Watcher(context, allowed))
        return watchers[-1]

    yield start
    for watcher in watchers:
        watcher.check()


@contextmanager
def served(collection, signed, tmp_path, *, replace_task=None, planted="", **options):
    """The page of a task; ``planted`` is code that its worker runs first."""
    directory = tmp_path / f"site-{len(list(tmp_path.iterdir()))}"
    with collection.served(signed, directory, **options) as (origin, site):
        if replace_task is not None:
            (directory / "task.json").write_bytes(replace_task)
        worker = directory / "survey-worker.js"
        if planted:
            worker.write_text(f"{planted}\n{worker.read_text(encoding='utf-8')}", encoding="utf-8")
        yield origin, site


def state(page, *names):
    page.wait_for_function("(names) => names.includes(document.body.dataset.state)", arg=list(names))
    return page.evaluate("document.body.dataset.state")


def choose(page, label):
    state(page, "question")
    page.get_by_role("radio", name=label, exact=True).check()
    page.get_by_role("button").click()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        {"version": 1},
        {"version": 2, "hops": 2},
        {"version": 2, "carriers": 0.6},
        {"version": 2, "protocol": "shuffler-laplace"},
    ],
    ids=["version-1", "chain", "carriers", "augmented"],
)
def test_other_releases_of_answers_from_the_page(context, tmp_path, kind):
    (tmp_path / "round").mkdir()
    round_ = Round.prepare(tmp_path / "round", **kind)
    try:
        with round_.rehearsal.servers():
            check_release(round_, context, tmp_path)
    finally:
        round_.stop()


def test_a_release_of_answers_from_the_page(collection, context, watch, tmp_path):
    watch(context)
    assert collection.rehearsal.task.task.version == 2
    check_release(collection, context, tmp_path)


def check_release(collection, context, tmp_path):
    """Seven people answer on a kiosk, 93 on simulated devices; the noise is so small that one wrong label shows."""
    rehearsal, truth = collection.rehearsal, dict.fromkeys(MODES, 0)
    devices = ["Walk"] * 40 + ["Car"] * 53
    summary = Devices(rehearsal.task.task, devices, connect=lambda: Connection(rehearsal.shuffler_url)).report()
    assert summary.delivered == len(devices)
    page, answers = context.new_page(), ["Bicycle"] * 4 + ["Walk", "Bus or tram", "Car"]
    with served(collection, rehearsal.task, tmp_path, kiosk=True) as (origin, site):
        page.goto(origin)
        for answer in answers:
            choose(page, answer)
            state(page, "delivered")
            page.get_by_role("button", name="Next person").click()
            page.wait_for_load_state()
    for answer in devices + answers:
        truth[answer] += 1
    release = rehearsal.release()
    publish = ["survey", "publish", str(site.directory), "--server", rehearsal.analyzer_url]
    subprocess.run([sys.executable, "-m", "shuffledp", *publish], check=True, capture_output=True)
    url = json.loads((site.directory / "result.json").read_bytes())["url"]
    assert url == f"{rehearsal.analyzer_url}/v1/releases/{rehearsal.task.task.id.hex()}/page"

    def within_five_errors(expected):
        off = [
            abs(count - expected[name]) for name, count in zip(release["categories"], release["counts"], strict=True)
        ]
        return all(error <= 5 * scale for error, scale in zip(off, release["standard_errors"], strict=True))

    assert release["reports"] == 100
    assert release["messages"]["rejected"] == 0
    assert within_five_errors(truth)
    shifted = truth | {"Bicycle": truth["Bicycle"] - 4, "Walk": truth["Walk"] + 4}  # a page that sends the first answer
    assert not within_five_errors(shifted)
    bodies = [request.body for request in collection.proxy.reports()]
    assert len(set(bodies)) == len(answers)
    form = ReportFormat.of(rehearsal.task.task)
    assert {len(body) for body in bodies} <= {form.size, form.carrier_size}


@pytest.mark.parametrize("protocol", ANSWERS)
def test_every_answer_has_the_same_size(collection, sized, context, watch, tmp_path, protocol):
    watch(context)
    signed, answers = sized[protocol], ANSWERS[protocol]
    with served(collection, signed, tmp_path, kiosk=True) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        for answer in answers:
            state(page, "question")
            if protocol.startswith(("sum", "quantiles", "strings")):
                page.get_by_label("How did you get").fill(answer)
                page.get_by_role("button").click()
            else:
                choose(page, answer)
            state(page, "delivered")
            page.get_by_role("button", name="Next person").click()
            page.wait_for_load_state()
    size = ReportFormat.of(signed.task).size
    assert sizes(collection) == [(size, str(size), 201)] * len(answers)
    bodies = [report.body for report in collection.proxy.reports()]
    assert len(set(bodies)) == len(answers)
    if signed.task.version == 2:
        check_outer_seals(collection, signed.task, bodies)


def check_outer_seals(collection, task, bodies):
    """Reports open with the round key; the planted fault is a report that was moved to another id."""
    keys = task.wire.shufflers[0]
    file = collection.rehearsal.directory / ROUND_KEYS / f"{keys.sealing.id}.key"
    opener = ReportOpener(SealingKey.load(file), header_size=HEADER_BYTES, report_size=ReportFormat.of(task).size)
    for body in bodies:
        assert len(opener.open(body)) == task.messages_per_report * task.sealed_size
        moved = body[: HEADER_BYTES - 16] + bytes(16) + body[HEADER_BYTES:]
        assert opener.open(moved) is None


def sizes(collection):
    """Bytes, stated bytes and status of every report."""
    return [
        (len(report.body), report.headers["Content-Length"], report.status) for report in collection.proxy.reports()
    ]


SIZE_OF_THE_ANSWER = """
const { fetch } = globalThis;
let answer = "";
addEventListener("message", ({ data }) => { if (data.call === "answer") answer = data.arguments.value; });
globalThis.fetch = (url, options) =>
  fetch(url, options?.body ? { ...options, body: new Blob([options.body, answer]) } : options);
"""


def test_a_size_that_depends_on_the_answer_is_noticed(collection, histogram, context, tmp_path):
    """The planted fault: a client that adds the answer to the report."""
    with served(collection, histogram, tmp_path, kiosk=True, planted=SIZE_OF_THE_ANSWER) as (origin, _):
        page = context.new_page()
        for answer in ("Car", "Bicycle"):
            page.goto(origin)
            choose(page, answer)
            state(page, "refused", "delivered")
            page.get_by_role("button", name="Next person").click()
            page.wait_for_load_state()
    size = ReportFormat.of(histogram.task).size
    assert [sent for sent, _, _ in sizes(collection)] == [size + len("Car"), size + len("Bicycle")]


def answer_with_a_lost_answer(collection, histogram, context, tmp_path, planted=""):
    """Answer while the answer of the shuffler is lost, open the page again, and answer again if it asks: its states."""
    collection.proxy.faults.lose_answers = 1  # the shuffler has the report, the page does not know it; then all fails
    with served(collection, histogram, tmp_path, planted=planted) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        choose(page, "Car")
        state(page, "waiting")
        page.get_by_role("button", name="Send now").wait_for()
        assert "cannot be counted twice" in page.locator("main").inner_text()
        page.close()
        collection.proxy.faults.down = False
        again = context.new_page()
        again.goto(origin)
        seen = [state(again, "delivered", "refused", "closed", "question")]
        if seen == ["question"]:
            choose(again, "Car")
            state(again, "delivered", "refused", "closed")
        again.reload()
        seen.append(state(again, "delivered", "question"))
    return seen


def test_the_same_bytes_after_a_lost_answer(collection, histogram, context, watch, tmp_path):
    watch(context)
    before = collection.accepted()
    assert answer_with_a_lost_answer(collection, histogram, context, tmp_path) == ["delivered", "delivered"]
    reports = collection.proxy.reports()
    assert len(reports) >= 2
    assert {report.status for report in reports} - {0} == {200, 201}
    assert len({report.body for report in reports}) == 1
    assert collection.accepted() == before + 1


def test_an_outbox_that_forgets_is_noticed(collection, histogram, context, tmp_path):
    """The planted fault: what a page has stored is gone when it is opened again, so that it makes another report."""
    before, planted = collection.accepted(), "indexedDB.deleteDatabase('shuffledp');"
    assert answer_with_a_lost_answer(collection, histogram, context, tmp_path, planted)[0] == "question"
    assert len({report.body for report in collection.proxy.reports()}) == 2
    assert collection.accepted() == before + 2


ONCE = {
    "a write that fails": "IDBObjectStore.prototype.put = () => { throw new Error('planted'); };",
    "a read that fails": "let reads = 0; const { get } = IDBObjectStore.prototype; IDBObjectStore.prototype.get = "
    "function (...key) { if (++reads > 4) throw new Error('planted'); return get.apply(this, key); };",
    "a report that is not stored": "IDBObjectStore.prototype.add = () => { throw new Error('planted'); };",
    "a lock that is denied": "LockManager.prototype.request = async () => { throw new Error('planted'); };",
    "a key that is not made": "crypto.subtle.generateKey = async () => { throw new Error('planted'); };",
    "a worker that ends": "addEventListener('message', ({ data }) => { if (data.call === 'answer') throw 1; });",
}


@pytest.mark.parametrize("fault", ONCE)
def test_a_worker_that_fails_is_replaced(collection, histogram, context, watch, tmp_path, fault):
    """What a busy machine may deny once; with a worker that fails every time nothing is delivered, and it is said."""
    watch(context)
    before = collection.accepted()
    with served(collection, histogram, tmp_path, planted=ONCE[fault]) as (origin, site):
        page = context.new_page()
        page.goto(origin)
        state(page, "question")
        worker = site.directory / "survey-worker.js"
        worker.write_text(worker.read_text(encoding="utf-8").removeprefix(ONCE[fault]), encoding="utf-8")
        choose(page, "Car")
        assert state(page, "delivered", "broken", "unsupported") == "delivered"
    assert collection.accepted() == before + 1
    assert len({report.body for report in collection.proxy.reports()}) == 1


def test_a_worker_that_always_fails_is_noticed(collection, histogram, context, tmp_path):
    with served(collection, histogram, tmp_path, planted=ONCE["a lock that is denied"]) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        choose(page, "Car")
        assert state(page, "delivered", "broken") == "broken"
        assert "planted" in page.inner_text("main")
    assert collection.proxy.reports() == []


@pytest.mark.parametrize("devices", [1, 2])
def test_two_tabs_at_once_make_one_report(collection, histogram, browser, watch, tmp_path, devices):
    """With two devices the same test sees two reports: it can tell them apart."""
    before = collection.accepted()
    contexts = [browser.new_context() for _ in range(devices)]
    for context in contexts:
        watch(context)
    with served(collection, histogram, tmp_path) as (origin, _):
        pages = [contexts[0].new_page(), contexts[-1].new_page()]
        for page, answer in zip(pages, ("Walk", "Car"), strict=True):
            page.goto(origin)
            state(page, "question")
            page.get_by_role("radio", name=answer).check()
        for page in pages:
            page.evaluate("() => { setTimeout(() => document.querySelector('form').requestSubmit(), 300); }")
        assert [state(page, "delivered", "refused", "broken") for page in pages] == ["delivered"] * 2
    for context in contexts:
        context.close()
    assert len({report.body for report in collection.proxy.reports()}) == devices
    assert collection.accepted() == before + devices


class TestNotTrusted:
    def shown(self, collection, context, tmp_path, signed, **options):
        with served(collection, signed, tmp_path, **options) as (origin, _):
            page = context.new_page()
            page.goto(origin)
            return state(page, "untrusted", "question", "broken"), page.locator("main").inner_text()

    def test_a_good_task_is_asked(self, collection, histogram, context, watch, tmp_path):
        watch(context)
        assert self.shown(collection, context, tmp_path, histogram)[0] == "question"

    @pytest.mark.parametrize(
        ("reason", "replaced"),
        [
            ("bad-guarantee", lambda servers, signed: forged(signed, servers.author, epsilon="0.01")),
            (
                "unknown-author",
                lambda servers, signed: resigned(signed.task.to_document(), sdp.collection.SigningKey.create()),
            ),
            ("bad-signature", lambda _, signed: signed.to_bytes().replace(b"How did you", b"Why did you")),
            ("other-task", lambda servers, _: servers.task(name="Another question").to_bytes()),
            ("not-canonical", lambda *_: b"<html>404</html>"),
        ],
    )
    def test_sends_nothing(self, collection, histogram, context, watch, tmp_path, reason, replaced):
        watch(context)
        task = replaced(collection, histogram)
        shown, text = self.shown(collection, context, tmp_path, histogram, replace_task=task)
        assert shown == "untrusted"
        assert f"What failed: {reason}" in text
        assert "Nothing was sent" in text
        assert collection.proxy.requests == []

    def test_invisible_characters_in_a_signed_task(self, collection, histogram, context, watch, tmp_path):
        watch(context)
        document = histogram.task.to_document() | {"name": "safe \N{RIGHT-TO-LEFT OVERRIDE}evas"}
        shown, text = self.shown(
            collection, context, tmp_path, histogram, replace_task=resigned(document, collection.author)
        )
        assert shown == "untrusted"
        assert "malformed" in text


def test_hostile_strings_of_a_task(collection, context, watch, tmp_path):
    watch(context)
    dialogs = []
    name, description = '<img src=x onerror="alert(1)">', "</title></script><script>alert(2)</script>"
    answers = ["<b>bold</b>", '"><svg onload=alert(3)>', "{users}", "אוטובוס (bus)"]
    signed = collection.task(name=name, description=description, domain={"categories": sdp.Categories.of(answers)})
    page = context.new_page()
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    with served(collection, signed, tmp_path, language="de") as (origin, _):
        page.goto(origin)
        state(page, "question")
        assert page.title() == name
        assert page.locator("h1").inner_text() == name
        assert page.locator("legend").inner_text() == description
        assert page.locator("label").all_inner_texts() == answers
        assert (
            page.evaluate("document.querySelectorAll('img, svg, b, script:not([id=settings]):not([src])').length") == 0
        )
        assert page.evaluate("[...document.querySelectorAll('label bdi')].every((e) => e.childElementCount === 0)")
    assert dialogs == []


ATTEMPTS = [
    ("no-cors", ""),
    ("no-cors", "text/plain"),
    ("no-cors", "application/octet-stream"),
    ("cors", "application/octet-stream"),
    ("cors", "text/plain"),
]
SEND = """async ([url, bytes, mode, type]) => {
  const body = new Blob([new Uint8Array(bytes)], type ? { type } : {});
  try {
    const answer = await fetch(url, { method: "POST", mode, body });
    return answer.type + " " + answer.status;
  } catch {
    return "blocked";
  }
}"""


def report_from(page, url, task):
    """Try to send valid reports from a page in all ways that a browser has; what the page is told."""
    outcomes = [
        page.evaluate(SEND, [url, list(sdp.collection.sealed_report(task, "Walk")), mode, kind])
        for mode, kind in ATTEMPTS
    ]
    beacon = "([url, bytes]) => navigator.sendBeacon(url, new Blob([new Uint8Array(bytes)], { type: 'text/plain' }))"
    assert page.evaluate(beacon, [url, list(sdp.collection.sealed_report(task, "Walk"))])
    page.wait_for_timeout(300)
    return outcomes


def test_other_origins_cannot_report(collection, histogram, context, page, site, tmp_path):
    """A page of another origin makes browsers send valid reports: only that of the listed page may be counted."""
    path = f"/v1/tasks/{histogram.task.id.hex()}/reports"
    before = collection.accepted()
    page.goto(site[1])
    outcomes = report_from(page, f"{collection.rehearsal.shuffler_url}{path}", histogram.task)
    assert outcomes == ["opaque 0", "opaque 0", "opaque 0", "blocked", "blocked"]
    assert collection.accepted() == before
    with served(collection, histogram, tmp_path) as (origin, _):
        listed = context.new_page()
        listed.goto(origin)
        state(listed, "question")
        report = list(sdp.collection.sealed_report(histogram.task, "Walk"))
        sent = listed.evaluate(SEND, [f"{collection.proxy.url}{path}", report, "cors", "application/octet-stream"])
        assert sent == "cors 201"
    assert collection.accepted() == before + 1


def test_reports_of_other_origins_would_be_noticed(collection, histogram, page, site):
    """The planted fault: a shuffler that looks at neither type nor origin. Its answers are as unreadable as before."""
    collection.proxy.faults.hide_browser = True
    before = collection.accepted()
    page.goto(site[1])
    outcomes = report_from(page, f"{collection.proxy.url}/v1/tasks/{histogram.task.id.hex()}/reports", histogram.task)
    assert outcomes == ["opaque 0", "opaque 0", "opaque 0", "blocked", "blocked"]
    assert collection.accepted() > before


def test_the_watcher_sees_other_requests_and_violations(collection, histogram, context, site, tmp_path):
    watcher = Watcher(context, (f"http://127.0.0.1:{collection.port}/",))
    with served(collection, histogram, tmp_path) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        state(page, "question")
        watcher.check()
        page.evaluate("(url) => fetch(url).catch(() => {})", site[1])
        assert any("connect-src" in complaint for complaint in watcher.complaints)
        watcher.complaints.clear()
        page.evaluate("() => { try { document.body.innerHTML = '<b>x</b>'; } catch { } }")
        assert any("Trusted" in complaint for complaint in watcher.complaints)
        assert page.locator("b").count() == 0
        choose(page, "Walk")
        state(page, "delivered")
    assert any(url.startswith(collection.proxy.url) for url in watcher.outside())  # requests of the worker are seen too


def test_the_task_is_small_and_the_result_is_linked(collection, histogram, context, watch, tmp_path):
    watch(context)
    with served(collection, histogram, tmp_path) as (origin, site):
        page = context.new_page()
        page.goto(origin)
        choose(page, "Walk")
        state(page, "delivered")
        page.get_by_text("Then the result is published").wait_for()
        assert page.locator("a").count() == 0
        site.publish("javascript:alert(1)")
        page.reload()
        page.get_by_text("Then the result is published").wait_for()
        assert page.locator("a").count() == 0
        site.publish("https://analyzer.example/v1/releases/0/page")
        page.reload()
        link = page.get_by_role("link", name="See the published result")
        link.wait_for()
        assert link.get_attribute("href") == "https://analyzer.example/v1/releases/0/page"


class TestTokens:
    TOKEN = "a-token-of-the-invitation-0001"

    def test_leaves_the_address_and_is_sent(self, collection, histogram, context, watch, tmp_path):
        watch(context)
        with served(collection, histogram, tmp_path, tokens=True) as (origin, _):
            page = context.new_page()
            page.goto(f"{origin}/#t={self.TOKEN}")
            state(page, "question")
            assert page.url == f"{origin}/"
            assert page.locator("#code").count() == 0
            collection.proxy.faults.down = True
            choose(page, "Walk")
            page.get_by_role("button", name="Send now").wait_for()
            page.close()
            collection.proxy.faults.down, collection.proxy.faults.problem = False, (403, "token-spent")
            page = context.new_page()
            page.goto(origin)  # without the token in the address
            assert state(page, "refused", "delivered") == "refused"
            assert "has been used already" in page.locator("main").inner_text()
            collection.proxy.faults.problem = None
            page.get_by_label("Enter another code").fill("short")
            page.get_by_role("button").click()
            assert "at least 16 characters" in page.get_by_role("alert").inner_text()
            page.get_by_label("Enter another code").fill("another-token-of-the-invitation")
            page.get_by_role("button").click()
            state(page, "delivered")
            assert page.evaluate("localStorage.length") == 0
        sent = [report.headers.get("Authorization") for report in collection.proxy.reports()]
        assert set(sent[:-1]) == {f"Bearer {self.TOKEN}"}
        assert sent[-1] == "Bearer another-token-of-the-invitation"
        assert all(self.TOKEN not in request.path for request in collection.proxy.requests)

    @pytest.mark.parametrize("version", [1, 2])
    def test_is_asked_for_if_the_address_has_none(
        self, collection, histogram, sized, context, watch, tmp_path, version
    ):
        """In version 2 the token is not sent, but a proof for these bytes."""
        watch(context)
        signed = histogram if version == 1 else sized["histogram/balcer-cheu"]
        with served(collection, signed, tmp_path, tokens=True) as (origin, _):
            page = context.new_page()
            page.goto(origin)
            choose(page, "Walk")
            assert "code from your invitation" in page.get_by_role("alert").inner_text()
            assert page.evaluate("document.activeElement.id") == "code"
            page.get_by_label("Your code").fill(self.TOKEN)
            page.get_by_role("button").click()
            state(page, "delivered")
        (report,) = collection.proxy.reports()
        assert report.headers["Authorization"] == authorization(self.TOKEN, report.body, version)
        assert (self.TOKEN in str(report.headers)) == (version == 1)
        assert authorization(self.TOKEN, report.body[:-1], 2) != authorization(self.TOKEN, report.body, 2)


def test_the_server_refuses_for_good(collection, histogram, context, watch, tmp_path):
    watch(context)
    collection.proxy.faults.problem = (410, "full")
    with served(collection, histogram, tmp_path) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        choose(page, "Walk")
        assert state(page, "closed", "refused", "delivered") == "closed"
        assert "was not counted" in page.locator("main").inner_text()
        sent = len(collection.proxy.reports())
        page.reload()
        assert state(page, "closed", "question") == "closed"
    assert sent == len(collection.proxy.reports()) == 1


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("protocol", ["histogram/balcer-cheu", "histogram/k-rr", "histogram/solh"])
def test_the_sentences_state_the_numbers_of_the_task(collection, context, watch, tmp_path, protocol, language):
    """Factors are not below e^epsilon, and 1 in N is not below delta; both by at most 1 percent."""
    watch(context)
    signed = collection.task(protocol, users=1234, epsilon=0.987, delta=3.3e-7)
    with served(collection, signed, tmp_path, language=language) as (origin, _):
        page = context.new_page()
        page.goto(origin)
        state(page, "question")
        sentences = page.locator("section li").all_inner_texts()
        page.locator("summary").click()
        facts = page.locator("dl").inner_text()
    guarantee = signed.task.guarantee
    text = " ".join(sentences)
    if language == "de":
        text = re.sub(r"(?<=\d),(?=\d)", "#", text).replace(".", "").replace("#", ".")
    text = re.sub(r"(?<=\d),(?=\d\d\d)", "", text)

    def is_bound(shown, exact):
        return exact <= shown <= 1.01 * exact

    factor = {"en": "factor of at most ", "de": "Faktor "}[language]
    factors = [float(number) for number in re.findall(factor + r"([\d.]*\d)", text)]
    exact = [math.exp(guarantee.epsilon)]
    if math.isfinite(guarantee.local_epsilon):
        exact.insert(0, math.exp(guarantee.local_epsilon))
    assert len(factors) == len(exact)
    assert all(map(is_bound, factors, exact))
    assert not is_bound(math.floor(100 * exact[-1]) / 100, exact[-1])  # rounding to the wrong side
    colluding = {"en": "they can learn your answer", "de": "können sie Ihre Antwort erfahren"}[language]
    assert (colluding in text) == (not math.isfinite(guarantee.local_epsilon))
    if guarantee.trust != "local":
        odds = float(re.search({"en": r"1 in (\d+)", "de": r"1 zu (\d+)"}[language], text)[1])
        assert is_bound(1 / odds, guarantee.delta)
        assert f"{guarantee.honest_users}" in text
    assert signed.task.id.hex() in facts


HOUR, DAY = 3600, 86_400
OVER = 4 * DAY
"""Seconds from now on: rounds of a series open every day, the first one opened an hour ago, each for two hours."""


class Clock:
    """The time of a page, and of its workers that start from now on, in seconds from now."""

    def __init__(self, page, site, when_answering=0):
        """The time of a worker moves on by ``when_answering`` seconds when somebody has answered."""
        self._page, self._worker = page, site.directory / "survey-series-worker.js"
        self._script, self._when_answering = self._worker.read_text(encoding="utf-8"), when_answering
        page.clock.install()

    def at(self, offset):
        moved = f"if (data.call === 'answer') offset += {1000 * self._when_answering};"
        planted = f"let offset = {1000 * offset}; const now = Date.now; Date.now = () => now() + offset;"
        planted += f"addEventListener('message', ({{ data }}) => {{ {moved} }});"
        self._worker.write_text(f"{{ {planted} }}\n{self._script}", encoding="utf-8")
        self._page.clock.set_system_time(time.time() + offset)


class TestSeries:
    def visit(self, page, origin, clock, offset):
        """What the page shows at a time: its state and its text."""
        clock.at(offset)
        page.goto(origin)
        return state(page, "question", "closed", "untrusted", "broken"), page.locator("main").inner_text()

    def test_a_release_of_a_round(self, collection, asked_in_rounds, browser, watch, tmp_path):
        """Four people answer in browsers of their own, 96 on simulated devices; one wrong label would show."""
        series, truth = asked_in_rounds["released"], dict.fromkeys(MODES, 0)
        devices, answers = ["Walk"] * 36 + ["Car"] * 60, ["Bicycle", "Bicycle", "Bus or tram", "Walk"]
        url = collection.rehearsal.shuffler_url
        summary = Devices(series.task(0), devices, connect=lambda: Connection(url)).report()
        assert summary.delivered == len(devices)
        with served(collection, series, tmp_path) as (origin, site):
            for answer in answers:
                context = browser.new_context()
                watch(context)
                page = context.new_page()
                page.goto(origin)
                state(page, "question")
                assert "Round 1 of 3, open until" in page.locator("main").inner_text()
                choose(page, answer)
                state(page, "delivered")
                text = page.locator("main").inner_text()
                assert "you have answered in this one" in text
                assert "takes part next in round 2 of 3" in text
                page.reload()
                assert state(page, "delivered", "question") == "delivered"
                context.close()
        for answer in devices + answers:
            truth[answer] += 1
        task = series.task(0)
        released = fetched(collection, task)
        assert (released["reports"], released["series"]) == (100, {"id": series.id.hex(), "round": 0})
        for name, count, error in zip(
            released["categories"], released["counts"], released["standard_errors"], strict=True
        ):
            assert abs(count - truth[name]) <= 5 * error, released
        errors = dict(zip(released["categories"], released["standard_errors"], strict=True))
        assert truth["Car"] - truth["Walk"] > 5 * errors["Car"]  # the first answer instead of the chosen one would show
        reports = collection.proxy.reports()
        assert {report.path for report in reports} == {f"/v2/tasks/{task.id.hex()}/reports"}
        assert {(len(report.body), report.status) for report in reports} == {(ReportFormat.of(task).size, 201)}
        publish = ["survey", "publish", str(site.directory), "--server", collection.rehearsal.analyzer_url]
        subprocess.run([sys.executable, "-m", "shuffledp", *publish], check=True, capture_output=True)
        assert task.id.hex() in json.loads((site.directory / "result.json").read_bytes())["url"]

    def test_what_is_shown_at_every_time(self, collection, asked_in_rounds, context, watch, tmp_path):
        """Each device is asked in exactly two of four rounds, in the same ones at every visit."""
        watch(context)
        page, asked = context.new_page(), set()
        with served(collection, asked_in_rounds["some"], tmp_path) as (origin, site):
            clock = Clock(page, site)
            for index in (0, 1, 2, 3, 1):
                shown, text = self.visit(page, origin, clock, index * DAY)
                if shown == "question":
                    asked.add(index)
                    assert f"Round {index + 1} of 4, open until" in text
                    assert "at most 2 of the 4 rounds" in text
                    continue
                assert "does not take part in this round" in text
                assert f"Round {index + 1} of 4 is open until" in text
                assert "Nothing was sent" in text
            assert len(asked) == 2
            for index in (0, 2):
                shown, text = self.visit(page, origin, clock, index * DAY + 3 * HOUR)
                assert (shown, "No round is open now" in text) == ("closed", True)
                assert f"Round {index + 2} of 4 opens on" in text
                coming = next((each for each in sorted(asked) if each > index), None)
                assert ("no further round" in text) == (coming is None)
                assert coming is None or f"takes part next in round {coming + 1} of 4" in text
            assert "All rounds are over" in self.visit(page, origin, clock, OVER)[1]
            assert "No round is open now" in self.visit(page, origin, clock, -DAY)[1]
        assert collection.proxy.reports() == []
        path = f"/v2/series/{asked_in_rounds['some'].id.hex()}"
        assert {(request.path, request.status) for request in collection.proxy.requests} == {(path, 200)}

    def test_an_open_page_follows_the_clock(self, collection, asked_in_rounds, context, watch, tmp_path):
        watch(context)
        page = context.new_page()
        with served(collection, asked_in_rounds["released"], tmp_path) as (origin, site):
            clock = Clock(page, site)
            assert self.visit(page, origin, clock, DAY)[0] == "question"
            clock.at(DAY + 2 * HOUR)
            page.clock.fast_forward(6000)
            page.get_by_role("heading", name="No round is open now").wait_for()
            clock.at(2 * DAY)
            page.clock.fast_forward(6000)
            assert state(page, "question") == "question"
            assert "Round 3 of 3" in page.locator("main").inner_text()

    def test_an_answer_is_not_sent_to_another_round(self, collection, asked_in_rounds, context, watch, tmp_path):
        """The round closes while somebody answers: the answer was to that round."""
        watch(context)
        page = context.new_page()
        with served(collection, asked_in_rounds["released"], tmp_path) as (origin, site):
            clock = Clock(page, site, when_answering=2 * HOUR)
            assert self.visit(page, origin, clock, DAY)[0] == "question"
            clock.at(2 * DAY)  # of the page, and of the worker that is started then
            choose(page, "Walk")
            page.get_by_text("Round 3 of 3, open until").wait_for()
            assert page.locator("input:checked").count() == 0
        assert collection.proxy.reports() == []

    def test_a_cancellation(self, collection, asked_in_rounds, context, watch, tmp_path):
        watch(context)
        page = context.new_page()
        with served(collection, asked_in_rounds["cancelled"], tmp_path) as (origin, site):
            clock = Clock(page, site)
            for offset, shown in ((DAY, "question"), (DAY + 3 * HOUR, "closed"), (2 * DAY, "closed"), (OVER, "closed")):
                found, text = self.visit(page, origin, clock, offset)
                assert found == shown
                assert ("ended it before round 3 of 4" in text) == (shown == "closed")
            collection.proxy.faults.down = True  # it is remembered
            assert "ended it before round 3 of 4" in self.visit(page, origin, clock, 2 * DAY)[1]
        assert collection.proxy.reports() == []

    def test_what_a_hostile_server_says_is_no_cancellation(self, collection, asked_in_rounds, context, watch, tmp_path):
        watch(context)
        series, other = asked_in_rounds["released"], asked_in_rounds["some"]
        stranger = Cancellation(series.id, 0, "No more.").signed(sdp.collection.SigningKey.create())
        forged = collection.cancellation(series, 2).replace(b'"from_round":2', b'"from_round":0')
        answers = [
            answer_about(collection.cancellation(other, 0)),
            answer_about(stranger),
            answer_about(forged),
            answer_about(b"{}"),
            b'{"cancellation":{"from_round":NaN}}',
            b"null",
            b"<html>",
            canonical({"cancellation": None, "task": "x" * (1 << 20)}),
            b"",
        ]
        page = context.new_page()
        with served(collection, series, tmp_path) as (origin, site):
            clock = Clock(page, site)
            for answer in answers:
                collection.proxy.faults.series = answer
                assert self.visit(page, origin, clock, DAY)[0] == "question", answer[:200]
            collection.proxy.faults.series = answer_about(collection.cancellation(series, 1))  # a true one is taken
            assert "ended it before round 2 of 3" in self.visit(page, origin, clock, DAY)[1]

    @pytest.mark.parametrize(
        ("reason", "replaced"),
        [
            ("other-task", lambda collection, other: other.signed(collection.author)),
            ("unknown-author", lambda _, other: other.signed(sdp.collection.SigningKey.create())),
            ("not-canonical", lambda *_: b"<html>404</html>"),
        ],
    )
    def test_other_series_are_not_trusted(
        self, collection, asked_in_rounds, context, watch, tmp_path, reason, replaced
    ):
        watch(context)
        page = context.new_page()
        with served(collection, asked_in_rounds["some"], tmp_path) as (origin, site):
            (site.directory / "series.json").write_bytes(replaced(collection, asked_in_rounds["cancelled"]))
            page.goto(origin)
            assert state(page, "untrusted", "question", "closed", "broken") == "untrusted"
            assert f"What failed: {reason}" in page.locator("main").inner_text()
        assert collection.proxy.reports() == []


def answer_about(cancellation):
    """The answer of a server about a series with this cancellation, which need not be valid."""
    return b'{"cancellation":' + cancellation + b',"round":null,"series":null,"task":null}'


def fetched(collection, task, seconds=120):
    """The release of a task, once there is one."""
    deadline = time.monotonic() + seconds
    with Connection(collection.rehearsal.analyzer_url) as connection:
        while (release := fetch_release(connection, task)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    return release.document
