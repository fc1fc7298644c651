"""The operator's page of a shuffler: on loopback only, for reading only; its numbers are those of the store."""

import http.client
import json
import re
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shuffledp.cli.rounds import _progress
from shuffledp.collection.server import operator_page
from shuffledp.collection.shuffler.operator import RoundStatus, shuffler_alerts

HOSTILE = '<img src=x onerror=alert(1)> & "quoted"'


class Page:
    """The page of a served shuffler."""

    def __init__(self, port):
        self.port = port

    def get(self, path="/operator", *, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def overview(self, query=""):
        return json.loads(self.get(f"/operator/v1/overview{query}")[2])


@pytest.fixture
def page(serve, caplog):
    """A shuffler with a page."""

    def run(**changes):
        served = serve(operator_port=0, **changes)
        (port,) = [record.fields["port"] for record in caplog.records if record.getMessage() == "operator-page"]
        return served, Page(port)

    caplog.set_level("INFO", "shuffledp.collection")
    return run


def metrics(served):
    return dict(re.findall(r"^shuffledp_shuffler_(\S+) (\S+)$", served.get("/metrics").text, re.MULTILINE))


def test_numbers_are_those_of_the_store_and_of_the_metrics(place, page, until):
    form = place.task(users=5, maximum=100)
    served, operator = page()
    for _ in range(7):
        assert served.post(form, place.report(form)).status_code == 201
    assert served.post(form, b"short").status_code == 422
    until(lambda: metrics(served).get(f'round_reports{{task="{form.task_id.hex()}"}}') == "7.0")
    document = operator.overview()
    (entry,) = document["rounds"]
    assert entry["reports"] == served.shuffler.store.count(form.task_id) == 7
    assert document["answers"] == {"201": 7, "422": 1}
    assert document["refusals"] == {"malformed": 1}
    assert float(metrics(served)['reports_total{status="201"}']) == document["answers"]["201"]
    assert float(metrics(served)['refusals_total{problem="malformed"}']) == document["refusals"]["malformed"]
    shown = operator.get()[2]
    assert "7 of 5 needed, at most 100" in shown
    assert '<th scope="row">201</th><td>7</td>' in shown


def test_numbers_below_the_minimum_are_rounded(place, page):
    form = place.task(users=50, maximum=100)
    served, operator = page()
    for _ in range(13):
        served.post(form, place.report(form))
    rounded, exact = operator.overview(), operator.overview("?exact=true")
    assert (rounded["rounds"][0]["reports"], exact["rounds"][0]["reports"]) == (10, 13)
    assert (rounded["answers"], exact["answers"]) == ({"201": 10}, {"201": 13})
    for document in (rounded, exact):
        assert document["rounds"][0]["predicted_error"]["users"] == 50
    assert "10 of 50 needed" in operator.get()[2]
    assert "13" not in re.sub(r"[0-9a-f]{16}|\d\d:\d\d:\d\d|20\d\d-\d\d-\d\d at \d\d:\d\d", "", operator.get()[2])
    assert "13 of 50 needed" in operator.get("/operator?exact=true")[2]


def test_unchanged_pages_are_not_sent_again(place, page):
    form = place.task(users=50, maximum=100)
    served, operator = page()
    for path in ("/operator", "/operator/v1/overview", "/static/operator.css"):
        status, headers, body = operator.get(path)
        assert status == 200, path
        assert body or path.startswith("/static")
        for _ in range(5):  # other programs may change the free disk space, which is shown, in between
            again = operator.get(path, If_None_Match=headers["etag"])
            if again[0] == 304:
                break
            headers = again[1]
        assert (again[0], again[2]) == (304, ""), path
        assert operator.get(path, If_None_Match='"other"')[0] == 200
    tag = operator.get()[1]["etag"]
    for _ in range(10):
        served.post(form, place.report(form))
    assert operator.get(If_None_Match=tag)[0] == 200, "what changed is sent"


def test_a_name_that_is_not_of_this_machine_gets_nothing(place, page):
    """DNS rebinding: the attacker's name resolves to 127.0.0.1, but browsers send the name."""
    place.task(name="commuting")
    _, operator = page()
    for host in (
        "attacker.example",
        "attacker.example:80",
        "127.0.0.1.attacker.example",
        "localhost.attacker.example",
        "",
    ):
        status, _, body = operator.get("/operator/v1/overview", Host=host)
        assert (status, "commuting" in body) == (421, False), host
    for host in ("127.0.0.1", f"localhost:{operator.port}", "[::1]:9999"):
        assert operator.get(Host=host)[0] == 200, host


def test_other_pages_cannot_read_or_send(place, page):
    place.task()
    _, operator = page()
    own = f"127.0.0.1:{operator.port}"
    assert operator.get(Origin="https://attacker.example")[0] == 403
    assert operator.get(Origin="null")[0] == 403
    assert operator.get(Host=own, Origin=f"http://{own}")[0] == 200
    for site in ("cross-site", "same-site"):
        assert operator.get("/operator/v1/overview", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors")[0] == 403
        assert operator.get(Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")[0] == 403
        assert operator.get(Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0] == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert operator.get(method=method)[0] == 405
    assert operator.get("/operator/v1/rounds/00/cancel", method="POST")[0] == 405
    for path in ("/operator/v1/rounds/00/cancel", "/metrics", "/static/../operator.html", "/static/%2e%2e/x"):
        assert operator.get(path)[0] == 404, path


def test_headers(place, page):
    place.task()
    _, operator = page()
    for path in ("/operator", "/operator/v1/overview", "/nothing"):
        headers = operator.get(path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == ("no-store" if path == "/nothing" else "no-cache")
        assert "server" not in headers


def test_it_is_unreachable_from_another_address(place, page):
    place.task()
    served, operator = page(host="0.0.0.0")
    assert served.get("/operator").status_code == 404, "not on the port of reports"
    for address in other_addresses():
        with pytest.raises(ConnectionRefusedError), socket.create_connection((address, operator.port), timeout=60):
            pass
        with socket.create_connection(("127.0.0.1", operator.port), timeout=60):
            pass


def other_addresses():
    """Addresses of this machine other than 127.0.0.1; the whole network 127.0.0.0/8 is loopback on Linux."""
    found = {"127.0.0.2"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            found.add(probe.getsockname()[0])
        except OSError:
            pass
    return found - {"127.0.0.1", "0.0.0.0"}


def test_without_the_setting_there_is_no_page(place, serve, caplog):
    caplog.set_level("INFO", "shuffledp.collection")
    place.task()
    served = serve()
    assert "operator-page" not in [record.getMessage() for record in caplog.records]
    assert served.get("/operator").status_code == 404


def test_a_taken_port_is_logged_and_reports_are_taken(place, serve, caplog):
    form = place.task()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        served = serve(operator_port=taken.getsockname()[1])
        assert "operator-unavailable" in [record.getMessage() for record in caplog.records]
        assert served.post(form, place.report(form)).status_code == 201


def test_names_are_escaped(place, page):
    place.task(name=HOSTILE)
    (place.folder / "tasks" / "<script>\u202ealert(1).json").write_bytes(b"{}")
    served, operator = page()
    served.shuffler.tasks.refresh(lambda _: None)
    shown = operator.get()[2]
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; &#34;quoted&#34;" in shown
    assert "<img" not in shown
    assert shown.count("<script") == 1, "that of the page"


def test_alerts_come_first(place, page, analyzer, until):
    analyzer.refuse["PUT"] = 403
    form = place.task(users=5, maximum=5, name="lunch")
    served, operator = page()
    for _ in range(5):
        served.post(form, place.report(form))
    until(lambda: operator.overview()["alerts"])
    (alert,) = operator.overview()["alerts"]
    assert alert == {"level": "act", "task": form.task_id.hex(), "message": "The analyzer answered 403 made-up."}
    shown = operator.get()[2]
    assert shown.index("The analyzer answered 403 made-up.") < shown.index('id="rounds"')


def test_a_round_that_will_not_reach_its_minimum(place, page):
    form = place.task(users=50, maximum=100, opens=-3600, closes=1800, name="slow")
    served, operator = page()
    for _ in range(20):
        served.post(form, place.report(form))
    (entry,) = operator.overview()["rounds"]
    assert entry["projected_reports"] == 30
    (alert,) = operator.overview()["alerts"]
    assert alert["level"] == "watch"
    assert "about 30 reports, and the guarantee requires 50" in alert["message"]
    assert "60 an hour are needed" in operator.get()[2]


def test_the_page_of_a_server_whose_store_fails(place, page, monkeypatch):
    place.task()
    served, operator = page()

    def fail():
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(served.shuffler.store, "snapshot", fail)
    status, _, shown = operator.get()
    assert status == 200
    assert "The state of the server cannot be read: Input/output error." in shown
    assert operator.get("/operator/v1/overview")[0] == 503


def test_a_page_without_its_guard_would_be_noticed(place, page, monkeypatch):
    """The planted fault: without the check of the name, another name gets the page."""
    monkeypatch.setattr("shuffledp.collection.server.loopback._refusal", lambda _: None)
    place.task(name="commuting")
    _, operator = page()
    status, _, body = operator.get("/operator/v1/overview", Host="attacker.example")
    assert (status, "commuting" in body) == (200, True)


def test_durations():
    shown = [operator_page._duration(seconds) for seconds in (59, 60, 3599, 3660, 90_000)]
    assert shown == ["less than a minute", "1 min", "59 min", "1 h 1 min", "1 d 1 h"]


@pytest.mark.parametrize("hop", [0, 1])
def test_a_later_shuffler_waits_for_a_batch_and_not_for_reports(place, serve, hop):
    """Its page shows no progress and no pace, and nobody is alarmed that no report comes."""
    form = place.task(users=5, opens=-7200)
    task = serve().shuffler.tasks.find(form.task_id.hex())
    status = RoundStatus(task=form.task_id.hex(), served=replace(task, hop=hop), state="collecting", reports=0)
    entry = status.to_json(exact=False, now=time.time())
    view = operator_page._round_view(entry, datetime.now(UTC), "")
    overview = {"refused_tasks": [], "store": {"free_bytes": None}, "clock_offset_seconds": 0, "series": []}
    alerts = [alert.to_json()["message"] for alert in shuffler_alerts(overview | {"rounds": [entry]})]
    assert entry["hop"] == hop
    assert ([message[:12] for message in alerts] == ["At this pace"]) == (hop == 0)
    assert (view["progress"] is None) == (hop == 1)
    assert any("has not arrived yet" in line for line in view["lines"]) == (hop == 1)
    assert any("average pace" in line for line in view["lines"]) == (hop == 0)
    assert ("reports" in _progress(entry)) == (hop == 0)
