"""Reporting in Chromium: at most one report, the same bytes after a lost answer, one size, nothing sent unasked."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import shuffledp as sdp
from shuffledp.collection import SealingKey, SigningKey, Task

AUTHOR = SigningKey.create()
CATEGORIES = ["bus", "bike", "car"]


def signed_task():
    now = datetime.now(UTC).replace(microsecond=0)
    task = Task.create(
        kind=sdp.find("histogram", "uniform-blanket"),
        settings={"users": 1_000, "domain_size": 3, "categories": CATEGORIES},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=10_000,
        name="Commuting",
        description="",
        population="city",
        opens=now - timedelta(hours=1),
        closes=now + timedelta(days=7),
        analyzer=SealingKey.create().public,
        shuffler=SigningKey.create().public,
    )
    return task, task.signed(AUTHOR).to_bytes().decode()


class Shuffler:
    """Answers the preflight of a page, then each report with the next of these statuses; 0 loses the answer."""

    def __init__(self, *statuses):
        self.statuses, self.reports = list(statuses), []
        shuffler = self

        class Handler(BaseHTTPRequestHandler):
            def do_OPTIONS(self):
                self.send_response(204)
                self.cors()
                self.send_header("Access-Control-Allow-Headers", "Content-Type, Authorization")
                self.end_headers()

            def do_POST(self):
                shuffler.reports.append(self.rfile.read(int(self.headers["Content-Length"])))
                status = shuffler.statuses.pop(0) if len(shuffler.statuses) > 1 else shuffler.statuses[0]
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.cors()
                self.send_header("Content-Length", "0")
                self.end_headers()

            def cors(self):
                self.send_header("Access-Control-Allow-Origin", self.headers["Origin"] or "*")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def shuffler():
    started = []

    def start(*statuses):
        started.append(Shuffler(*statuses))
        return started[-1]

    yield start
    for each in started:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture
def new_page(context, site, bundle):
    """Pages of one origin that share their storage, as tabs do."""
    directory, address = site
    (directory / "test.js").write_text(bundle("test/in_browser.ts"), encoding="utf-8")

    def opened():
        page = context.new_page()
        page.goto(address)
        page.add_script_tag(url="test.js", type="module")
        page.wait_for_function("() => 'clientOf' in globalThis")
        return page

    return opened


def call(page, content, body):
    """Run the body in the page, with ``client`` and what its promises became."""
    script = f"async ([content, author]) => {{ const client = await clientOf(content, author); {body} }}"
    return page.evaluate(script, [content, AUTHOR.public.raw.hex()])


SEND = "return outcome(client.send({url!r}, {{ patience: {{ attempts: 3, firstPause: 0.01 }} }}))"


def test_the_same_bytes_after_a_lost_answer_and_a_restart(new_page, shuffler):
    task, content = signed_task()
    server, page = shuffler(0, 0, 0, 201), new_page()
    assert call(page, content, "return client.state()") == "none"
    assert call(page, content, "return outcome(client.report('bus'))") is None
    assert call(page, content, SEND.format(url=server.url)) == "unreachable"
    page.close()
    page = new_page()
    assert call(page, content, "return client.state()") == "pending"
    assert call(page, content, SEND.format(url=server.url)) == "delivered"
    # a browser repeats a request by itself if the connection is lost; the bytes are the same
    assert len(server.reports) >= 3
    assert len(set(server.reports)) == 1
    assert len(server.reports[0]) == 53 + task.messages_per_report * (49 + task.message_size)
    assert call(new_page(), content, "return outcome(client.report('car'))") == "already-reported"


def test_two_tabs_at_once_make_one_report(new_page, shuffler):
    _, content = signed_task()
    server, pages = shuffler(201), [new_page(), new_page()]
    start = (
        "client.report({value!r}).then(() => {{ globalThis.done = 'stored' }}, (e) => {{ globalThis.done = e.reason }})"
    )
    for page, value in zip(pages, ("bus", "car"), strict=True):
        call(page, content, start.format(value=value))
    for page in pages:
        page.wait_for_function("() => globalThis.done")
    assert sorted(page.evaluate("globalThis.done") for page in pages) == ["already-reported", "stored"]
    for page in pages:
        assert call(page, content, SEND.format(url=server.url)) == "delivered"
    assert len(server.reports) == 1


def test_many_at_once_in_one_tab_make_one_report(new_page):
    """Without the outbox deciding, each of these would be stored: the planted fault is an outbox that always agrees."""
    _, content = signed_task()
    reports = (
        "const all = await Promise.all(['bus', 'car', 'bike', 'bus'].map((value) => outcome(client.report(value))));"
    )
    assert sorted(map(str, call(new_page(), content, reports + "return all"))) == ["None"] + ["already-reported"] * 3
    agreeing = (
        "{ get: async () => ({ state: 'none' }), add: async () => true, finish: async () => {},"
        " exclusively: (task, work) => work() }"
    )
    body = f"const client = await clientOf(content, author, {{ outbox: {agreeing} }}); {reports} return all"
    faulty = new_page().evaluate(f"async ([content, author]) => {{ {body} }}", [content, AUTHOR.public.raw.hex()])
    assert faulty == [None] * 4


def test_reports_of_all_values_have_one_size(context, new_page, shuffler):
    sizes = set()
    for value in CATEGORIES * 2:
        _, content = signed_task()
        server, page = shuffler(201), new_page()
        assert call(page, content, f"return outcome(client.report({value!r}))") is None
        assert call(page, content, SEND.format(url=server.url)) == "delivered"
        sizes |= {len(report) for report in server.reports}
    assert len(sizes) == 1


def test_a_claim_too_strong_sends_nothing(context, new_page):
    _, content = signed_task()
    document = json.loads(content)
    document["task"]["guarantee"]["epsilon"] = "0.5"
    page, requests = new_page(), []
    context.on("request", lambda request: requests.append(request.url))
    script = "([content, author]) => outcome(clientOf(content, author))"
    assert page.evaluate(script, [json.dumps(document), AUTHOR.public.raw.hex()]) in ("bad-signature", "not-canonical")
    task, _ = signed_task()
    boast = replace(task, epsilon=0.5).signed(AUTHOR).to_bytes().decode()
    assert page.evaluate(script, [boast, AUTHOR.public.raw.hex()]) == "bad-guarantee"
    assert requests == []


def test_without_storage_nothing_is_randomized(new_page):
    _, content = signed_task()
    page = new_page()
    page.evaluate("() => Object.defineProperty(globalThis, 'indexedDB', { value: undefined })")
    script = "([content, author]) => outcome(clientOf(content, author))"
    assert page.evaluate(script, [content, AUTHOR.public.raw.hex()]) == "no-storage"


CHARGE = """async ([content, author, store]) => {
  const budget = await Budget.open({ epsilon: 1.2, delta: 1e-5 }, store ? globalThis[store] : undefined);
  const client = await clientOf(content, author, { budget });
  const done = (text) => { globalThis.done = text; };
  client.report("bus").then(() => done("stored"), (error) => done(`${error.reason} ${error.possible}`));
}"""


def test_two_tabs_do_not_share_what_is_left_of_a_budget(new_page):
    """Two tasks at once, of which the budget allows one; the other gets the day from which it is possible."""
    pages, tasks = [new_page(), new_page()], [signed_task(), signed_task()]
    for page, (_, content) in zip(pages, tasks, strict=True):
        page.evaluate(CHARGE, [content, AUTHOR.public.raw.hex(), None])
    for page in pages:
        page.wait_for_function("() => globalThis.done")
    possible = (datetime.now(UTC) + timedelta(days=365)).date().isoformat()
    assert sorted(page.evaluate("globalThis.done") for page in pages) == [f"budget {possible}", "stored"]
    states = [call(page, content, "return client.state()") for page, (_, content) in zip(pages, tasks, strict=True)]
    assert sorted(states) == ["none", "pending"]


def test_a_record_that_each_tab_has_for_itself_is_noticed(new_page):
    """The planted fault: tabs that do not see what the others have spent."""
    for _ in range(2):
        page, (_, content) = new_page(), signed_task()
        page.evaluate("() => { globalThis.own = { update: (change) => change(null) }; }")
        page.evaluate(CHARGE, [content, AUTHOR.public.raw.hex(), "own"])
        page.wait_for_function("() => globalThis.done")
        assert page.evaluate("globalThis.done") == "stored"


class TestStorageThatFails:
    """Nothing is drawn twice, and nothing is sent that was not stored; every failure is a refusal with a reason."""

    def test_a_full_disk(self, new_page, shuffler):
        _, content = signed_task()
        server, page = shuffler(201), new_page()
        page.evaluate("""() => {
          const add = IDBObjectStore.prototype.add;
          IDBObjectStore.prototype.add = function (...values) {
            const request = add.apply(this, values);
            this.transaction.abort();
            return request;
          };
        }""")
        assert call(page, content, "return outcome(client.report('bus'))") == "no-storage"
        assert call(page, content, "return client.state()") == "none"
        assert call(page, content, SEND.format(url=server.url)) == "nothing-to-send"
        assert server.reports == []

    def test_a_delivery_that_cannot_be_recorded(self, new_page, shuffler):
        _, content = signed_task()
        server, page = shuffler(201), new_page()
        assert call(page, content, "return outcome(client.report('bus'))") is None
        page.evaluate("() => { IDBObjectStore.prototype.put = () => { throw new Error('no more writes'); }; }")
        assert call(page, content, SEND.format(url=server.url)) == "no-storage"
        assert call(page, content, "return outcome(client.report('car'))") == "already-reported"
        assert call(new_page(), content, SEND.format(url=server.url)) == "delivered"
        assert len(server.reports) == 2
        assert len(set(server.reports)) == 1

    def test_a_database_that_is_deleted_meanwhile(self, new_page):
        """The connection is closed, and a report on another one would not be known to this one."""
        _, content = signed_task()
        body = """
          await new Promise((resolve) => { indexedDB.deleteDatabase('shuffledp').onsuccess = resolve; });
          return [await outcome(client.report('bus')), await outcome(client.state())];
        """
        assert call(new_page(), content, body) == ["no-storage", "no-storage"]

    @pytest.mark.parametrize(
        ("entry", "sending"),
        [
            ("{ state: 'pending' }", "refused"),
            ("{ state: 'pending', report: 'text' }", "damaged"),
            ("{ state: 'pending', report: new Uint8Array(1000) }", "damaged"),
            ("{ state: 'pending', report: Array.from(good) }", "damaged"),
            ("{ state: 'pending', report: good.map((byte, i) => (i >= 5 && i < 37 ? 0 : byte)) }", "damaged"),
            ("{ state: 'unheard of' }", "refused"),
            ("'garbage'", "refused"),
        ],
    )  # fmt: skip
    def test_entries_that_nobody_wrote(self, new_page, shuffler, entry, sending):
        _, content = signed_task()
        server, page = shuffler(201), new_page()
        body = f"""
          await client.report('bus');
          const store = async (mode) => (await new Promise((resolve) => {{
            const request = indexedDB.open('shuffledp', 1); request.onsuccess = () => resolve(request.result);
          }})).transaction('reports', mode).objectStore('reports');
          const id = client.task.id;
          const done = (request) => new Promise((resolve) => {{ request.onsuccess = () => resolve(request.result); }});
          const good = (await done((await store('readonly')).get(id))).report;
          await done((await store('readwrite')).put({entry}, id));
          return [await outcome(client.report('car')), await outcome(client.send({server.url!r}))];
        """
        assert call(page, content, body) == ["already-reported", sending]
        assert server.reports == []
