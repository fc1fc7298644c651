"""Every status that a report can be answered with, and what is left behind."""

import hashlib
import json
import secrets
import socket

import pytest

from shuffledp.collection.server import bodies
from shuffledp.collection.shuffler.store.interface import StoreError
from shuffledp.collection.wire import privacy_pass
from shuffledp.collection.wire.privacy_pass import token_header
from shuffledp.collection.wire.tokens import Credentials, authorization
from tests.collection.test_privacy_pass import Issuer

BINARY = "Host: x\r\nContent-Type: application/octet-stream\r\n"


def check_problem(answer, status: int, name: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["type"] == f"urn:shuffledp:problem:{name}"
    assert document["title"].endswith(".")


def test_a_report_is_taken_once(place, serve):
    form = place.task()
    here = serve()
    body = place.report(form)
    first, again = here.post(form, body), here.post(form, body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.content == again.content == b""
    assert here.shuffler.store.count(form.task_id) == 1


def test_another_report_with_the_same_id(place, serve):
    form = place.task()
    here = serve()
    body = place.report(form)
    here.post(form, body)
    other = place.report(form, form.report_id(body))
    check_problem(here.post(form, other), 409, "conflict")
    assert here.post(form, body).status_code == 200


def test_the_signed_task_is_served(place, serve):
    form = place.task()
    here = serve()
    answer = here.get(f"/v1/tasks/{form.task_id.hex()}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    (file,) = (place.folder / "tasks").glob("*.json")
    assert answer.content == file.read_bytes()
    check_problem(here.get(f"/v1/tasks/{'0' * 64}"), 404, "unknown-task")


@pytest.mark.parametrize("change", ["empty", "one byte less", "magic", "version", "task"])
def test_malformed(place, serve, change):
    form = place.task()
    here = serve()
    body = bytearray(place.report(form))
    if change == "empty":
        body.clear()
    elif change == "one byte less":
        del body[-1]
    else:
        body[{"magic": 0, "version": 4, "task": 5}[change]] ^= 1
    answer = here.post(form, bytes(body))
    check_problem(answer, 422, "malformed")
    assert here.shuffler.store.count(form.task_id) == 0


def test_too_long(place, serve):
    form = place.task()
    here = serve()
    answer = here.post(form, place.report(form) + b"x")
    check_problem(answer, 413, "too-long")
    assert answer.headers["connection"] == "close"


def test_too_long_without_saying_so_stops_early(place, serve):
    """The sender tells no length and never ends; the answer comes all the same, and the connection is closed."""
    form = place.task()
    here = serve()
    with socket.create_connection(("127.0.0.1", here.port), timeout=20) as connection:
        head = f"POST /v1/tasks/{form.task_id.hex()}/reports HTTP/1.1\r\n{BINARY}Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"%x\r\n" % (form.size + 1) + b"x" * (form.size + 1) + b"\r\n")
        received = b""
        while piece := connection.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 413 ")
    assert here.shuffler.memory.bytes == 0


def test_unknown_task_and_address(place, serve):
    form = place.task()
    here = serve()
    for name in ("0" * 64, "x", form.task_id.hex().upper(), "%2e%2e"):
        answer = here.request("POST", f"/v1/tasks/{name}/reports", place.report(form))
        check_problem(answer, 404, "unknown-task")
    check_problem(here.get("/"), 404, "not-found")
    check_problem(here.get(f"/v1/tasks/{form.task_id.hex()}/"), 404, "not-found")
    answer = here.get(f"/v1/tasks/{form.task_id.hex()}/reports")
    check_problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"


def test_before_and_after(place, serve):
    form, late = place.task(opens=1800), place.task(opens=-7200, closes=-3600)
    here = serve()
    check_problem(here.post(form, place.report(form)), 403, "not-open-yet")
    check_problem(here.post(late, place.report(late)), 410, "closed")


def test_full(place, serve, until):
    form = place.task(users=3, maximum=3)
    here = serve()
    statuses = [here.post(form, place.report(form)).status_code for _ in range(5)]
    assert statuses == [201] * 3 + [410] * 2
    until(lambda: place.analyzer.has(form.task_id.hex()))
    check_problem(here.post(form, place.report(form)), 410, "closed")


def test_the_rate(place, serve):
    form = place.task()
    here = serve(reports_per_second=0.5, burst=3)
    answers = [here.post(form, place.report(form)) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201] * 3 + [429]
    check_problem(answers[3], 429, "over-the-rate")
    assert answers[3].headers["retry-after"] == "2"


def test_no_room(place, serve):
    form = place.task()
    here = serve(waiting_reports=1, waiting_seconds=0.05)
    here.shuffler.memory.reports = 1
    answer = here.post(form, place.report(form))
    check_problem(answer, 503, "overloaded")
    assert int(answer.headers["retry-after"]) > 0
    here.shuffler.memory.reports = 0
    assert here.post(form, place.report(form)).status_code == 201


def test_slow_senders_take_no_room_from_quick_ones(place, serve, until):
    """Three begin and send little or nothing; there is room for one report and a half."""
    form = place.task(size=10)
    here = serve(waiting_reports=1, waiting_seconds=0.05)
    here.shuffler.memory._max_bytes = form.size * 3 // 2
    head = f"POST /v1/tasks/{form.task_id.hex()}/reports HTTP/1.1\r\n{BINARY}Content-Length: {form.size}\r\n\r\n"
    slow = [socket.create_connection(("127.0.0.1", here.port), timeout=20) for _ in range(3)]
    for each in slow:
        each.sendall(head.encode() + b"SDPR")
    until(lambda: here.shuffler.memory.bytes == 12)
    assert here.post(form, place.report(form)).status_code == 201
    for each in slow:
        each.close()
    until(lambda: here.shuffler.memory.bytes == 0)
    assert here.shuffler.memory.reports == 0


def test_slow_senders_are_sent_away_when_memory_is_short(place, serve, until, monkeypatch):
    monkeypatch.setattr(bodies, "_SLOW_SECONDS", 0.0)
    form = place.task(size=10)
    here = serve()
    here.shuffler.memory._max_bytes = form.size * 3 // 2
    head = f"POST /v1/tasks/{form.task_id.hex()}/reports HTTP/1.1\r\n{BINARY}Content-Length: {form.size}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", here.port), timeout=20) as slow:
        slow.sendall(head.encode() + place.report(form)[:-1])
        until(lambda: here.shuffler.memory.bytes == form.size - 1)
        assert here.post(form, place.report(form)).status_code == 201
        received = b""
        while piece := slow.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: " in received
    assert here.shuffler.memory.bytes == 0


def test_stopping(place, serve):
    form = place.task()
    here = serve()
    here.shuffler.stop()
    answer = here.post(form, place.report(form))
    check_problem(answer, 503, "stopping")
    assert int(answer.headers["retry-after"]) > 0
    check_problem(here.get("/readyz"), 503, "not-ready")
    assert here.get("/healthz").json() == {"state": "alive"}


def test_a_store_that_fails(place, serve, monkeypatch):
    form = place.task()
    here = serve()
    store = here.shuffler.store
    works = store.accept

    def fail(*_):
        raise StoreError("no room left")

    assert here.get("/readyz").json() == {"state": "ready"}
    monkeypatch.setattr(store, "accept", fail)
    body = place.report(form)
    answer = here.post(form, body)
    check_problem(answer, 503, "store-fails")
    assert int(answer.headers["retry-after"]) > 0
    check_problem(here.get("/readyz"), 503, "not-ready")
    monkeypatch.setattr(store, "accept", works)
    assert here.post(form, body).status_code == 201
    assert here.get("/readyz").status_code == 200


def test_a_fault_of_ours_is_no_acknowledgement(place, serve, monkeypatch):
    form = place.task()
    here = serve()

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(here.shuffler.store, "accept", fail)
    check_problem(here.post(form, place.report(form)), 503, "store-fails")


class TestEnrolment:
    @pytest.fixture
    def enrolled(self, place, serve):
        form = place.task()
        self.tokens = [secrets.token_urlsafe(32) for _ in range(3)]
        hashes = [hashlib.sha256(token.encode()).hexdigest() for token in self.tokens]
        (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text("\n".join(hashes[:2]) + "\n")
        self.hashes = hashes
        return form, serve(enrolment=place.folder / "enrolment")

    def bearer(self, index: int) -> dict:
        return {"Authorization": f"Bearer {self.tokens[index]}"}

    def test_a_token_pays_for_one_report(self, place, enrolled):
        form, here = enrolled
        body, other = place.report(form), place.report(form)
        assert here.post(form, body, headers=self.bearer(0)).status_code == 201
        assert here.post(form, body, headers=self.bearer(0)).status_code == 200
        check_problem(here.post(form, other, headers=self.bearer(0)), 403, "token-spent")
        assert here.post(form, other, headers=self.bearer(1)).status_code == 201

    def test_without_and_unknown(self, place, enrolled):
        form, here = enrolled
        answer = here.post(form, place.report(form))
        check_problem(answer, 401, "token-missing")
        assert answer.headers["www-authenticate"] == "Bearer, SDP-Token"
        forged = f"SDP-Token id={'0' * 32}, mac={'0' * 63}"
        for value in ("Bearer", "Bearer x", "Basic " + self.tokens[0], "Bearer " + "x" * 600, forged):
            check_problem(here.post(form, place.report(form), headers={"Authorization": value}), 401, "token-missing")
        check_problem(here.post(form, place.report(form), headers=self.bearer(2)), 403, "token-unknown")
        assert here.shuffler.store.count(form.task_id) == 0

    def bound(self, index: int, body: bytes) -> dict:
        return {"Authorization": authorization(self.tokens[index], body, 2)}

    def test_a_bound_token_is_for_its_report_alone(self, place, enrolled):
        form, here = enrolled
        body, other = place.report(form), place.report(form)
        moved = self.bound(0, body)
        assert self.tokens[0] not in moved["Authorization"]
        check_problem(here.post(form, other, headers=moved), 403, "token-of-another-report")
        assert here.shuffler.store.count(form.task_id) == 0
        assert here.post(form, body, headers=moved).status_code == 201
        assert here.post(form, body, headers=moved).status_code == 200
        check_problem(here.post(form, other, headers=self.bound(0, other)), 403, "token-spent")
        check_problem(here.post(form, other, headers=self.bearer(0)), 403, "token-spent")
        assert here.post(form, other, headers=self.bound(1, other)).status_code == 201
        third = place.report(form)
        check_problem(here.post(form, third, headers=self.bound(2, third)), 403, "token-unknown")

    def test_a_bound_token_of_another_task_is_unknown(self, place, serve):
        form, other = place.task(), place.task(name="Other")
        self.tokens = [secrets.token_urlsafe(32)]
        hashed = hashlib.sha256(self.tokens[0].encode()).hexdigest()
        (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text(hashed + "\n")
        here = serve(enrolment=place.folder / "enrolment")
        body = place.report(other)
        check_problem(here.post(other, body, headers=self.bound(0, body)), 403, "token-unknown")

    def test_a_proof_that_is_not_compared_would_be_noticed(self, place, enrolled, monkeypatch):
        """The planted fault: with it, the proof of one report pays for another."""
        form, here = enrolled
        body, other = place.report(form), place.report(form)
        monkeypatch.setattr(Credentials, "authenticate", lambda *_: True)
        assert here.post(form, other, headers=self.bound(0, body)).status_code == 201

    def test_who_has_no_token_takes_nothing_from_those_who_have(self, place, serve):
        form = place.task()
        self.tokens = [secrets.token_urlsafe(32) for _ in range(2)]
        hashed = hashlib.sha256(self.tokens[0].encode()).hexdigest()
        (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text(hashed + "\n")
        here = serve(enrolment=place.folder / "enrolment", reports_per_second=0.01, burst=10)
        missing = [here.post(form, place.report(form)).status_code for _ in range(12)]
        unknown = [here.post(form, place.report(form), headers=self.bearer(1)).status_code for _ in range(12)]
        assert missing == [401] * 12
        assert unknown == [403] + [429] * 11
        body = place.report(form)
        known = [here.post(form, body, headers=self.bearer(0)).status_code for _ in range(11)]
        assert known == [201] + [200] * 9 + [429]

    def test_new_tokens_are_noticed(self, place, enrolled, until):
        form, here = enrolled
        here.post(form, place.report(form), headers=self.bearer(0))
        (place.folder / "enrolment" / f"{form.task_id.hex()}.tokens").write_text("\n".join(self.hashes) + "\n")
        body = place.report(form)
        until(lambda: here.post(form, body, headers=self.bearer(2)).status_code == 201)
        check_problem(here.post(form, place.report(form), headers=self.bearer(0)), 403, "token-spent")

    def test_no_token_file_means_no_report(self, place, serve):
        form = place.task()
        here = serve(enrolment=place.folder / "enrolment")
        self.tokens = [secrets.token_urlsafe(32)]
        check_problem(here.post(form, place.report(form), headers=self.bearer(0)), 403, "token-unknown")


@pytest.fixture(scope="module")
def issuer():
    return Issuer()


class TestIssuedTokens:
    @pytest.fixture
    def issued(self, place, serve, issuer):
        form = place.task()
        file = place.folder / "issuer.key"
        file.write_bytes(issuer.public.key)
        return form, serve(token_issuer="issuer.example", token_issuer_keys=(file,))

    def test_a_token_is_for_its_report_alone(self, place, issued, issuer):
        form, here = issued
        body, other = place.report(form), place.report(form)
        token = issuer.token(issuer.public.token_input(form.task_id, body))
        headers = {"Authorization": token_header(token)}
        check_problem(here.post(form, other, headers=headers), 403, "token-of-another-report")
        assert here.post(form, body, headers=headers).status_code == 201
        assert here.post(form, body, headers=headers).status_code == 200
        check_problem(here.post(form, other, headers=headers), 403, "token-of-another-report")
        assert here.shuffler.store.count(form.task_id) == 1

    def test_without_a_token_the_challenge_is_shown(self, place, issued, issuer):
        form, here = issued
        answer = here.post(form, place.report(form))
        check_problem(answer, 401, "token-missing")
        assert answer.headers["www-authenticate"] == issuer.public.challenge_header(form.task_id)

    def test_tokens_of_others(self, place, issued, issuer):
        form, here = issued
        body, stranger = place.report(form), Issuer()
        unknown = stranger.token(stranger.public.token_input(form.task_id, body))
        check_problem(here.post(form, body, headers={"Authorization": token_header(unknown)}), 403, "token-unknown")
        forged = stranger.token(issuer.public.token_input(form.task_id, body))
        check_problem(
            here.post(form, body, headers={"Authorization": token_header(forged)}), 403, "token-of-another-report"
        )
        other_task = issuer.token(issuer.public.token_input(bytes(32), body))
        check_problem(here.post(form, body, headers={"Authorization": token_header(other_task)}), 403, "token-unknown")
        assert here.shuffler.store.count(form.task_id) == 0

    def test_a_nonce_that_is_not_compared_would_be_noticed(self, place, issued, issuer, monkeypatch):
        """The planted fault: with it, the token of one report pays for another."""
        form, here = issued
        body, other = place.report(form), place.report(form)
        token = issuer.token(issuer.public.token_input(form.task_id, body))
        monkeypatch.setattr(privacy_pass, "report_nonce", lambda _: token[2:34])
        assert here.post(form, other, headers={"Authorization": token_header(token)}).status_code == 201


def test_metrics_tell_nothing_of_a_user(place, serve):
    form = place.task()
    here = serve()
    body = place.report(form)
    for _ in range(2):
        here.post(form, body, headers={"User-Agent": "a-very-special-device"})
    here.post(form, b"")
    text = here.get("/metrics").text
    assert 'shuffledp_shuffler_reports_total{status="201"} 1.0' in text
    assert 'shuffledp_shuffler_reports_total{status="200"} 1.0' in text
    assert 'shuffledp_shuffler_reports_total{status="422"} 1.0' in text
    assert "shuffledp_shuffler_commit_reports_count 2.0" in text
    assert "shuffledp_shuffler_report_seconds_bucket" in text
    assert "shuffledp_shuffler_waiting_reports 0.0" in text
    for secret in (form.report_id(body).hex(), "special", "127.0.0.1", "_created"):
        assert secret not in text


def test_what_is_refused_is_counted_by_its_reason(place, serve):
    early, form = place.task(opens=1800), place.task()
    here = serve()
    here.post(form, b"")
    here.post(form, bytes(form.size + 1))
    here.post(early, place.report(early))
    here.get("/v1/tasks/0")
    here.get("/nowhere")
    here.request("DELETE", "/healthz")
    with socket.create_connection(("127.0.0.1", here.port)) as peer:
        peer.sendall(b"nonsense\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 400 ")
    text = here.get("/metrics").text
    names = ("malformed", "too-long", "not-open-yet", "unknown-task", "not-found", "method-not-allowed", "not-http")
    for name in names:
        assert f'shuffledp_shuffler_refusals_total{{problem="{name}"}} 1.0' in text, name
    assert text.count("shuffledp_shuffler_refusals_total{") == len(names)


def test_problems_do_not_repeat_what_was_sent(place, serve):
    form = place.task()
    here = serve()
    payload = b"SDPR\x01" + form.task_id + b"a secret that must not come back" * 3
    answer = here.post(form, payload)
    assert answer.status_code == 422
    assert b"secret" not in answer.content
    assert set(json.loads(answer.content)) == {"type", "title", "status", "detail"}


def test_new_tasks_are_noticed_and_open_before_they_are_seen(place, serve, until):
    here = serve()
    form = place.task()
    address = f"/v1/tasks/{form.task_id.hex()}"
    until(lambda: here.get(address).status_code == 200)
    assert here.post(form, place.report(form)).status_code == 201
