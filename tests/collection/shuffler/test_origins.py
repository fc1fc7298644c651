"""Reports of web pages: refused unless the page's origin is listed; what a browser asks, and what it reads."""

import pytest

from shuffledp.errors import ParameterError

PAGE, OTHER = "https://survey.example", "https://elsewhere.example"
SIMPLE_TYPES = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data"]
"""What a page may send to anybody without asking first."""


def name_of(answer) -> str:
    return answer.json()["type"].removeprefix("urn:shuffledp:problem:")


def cors_of(answer) -> dict[str, str]:
    return {key: value for key, value in answer.headers.items() if key.startswith("access-control-") or key == "vary"}


READABLE = {
    "access-control-allow-origin": PAGE,
    "access-control-expose-headers": "Retry-After",
    "vary": "Origin",
}


def test_other_types_are_refused(place, serve):
    """A page that does ``fetch(address, {method: "POST", mode: "no-cors", body})`` can only send these."""
    form = place.task()
    here = serve(origins=(PAGE,))
    for origin in (None, OTHER, PAGE):
        expected = (403, "origin-not-allowed") if origin == OTHER else (415, "wrong-type")
        for kind in [*SIMPLE_TYPES, "", "application/json", "application/octet-stream-x", "text/plain, x"]:
            headers = {"Content-Type": kind} | ({"Origin": origin} if origin else {})
            answer = here.post(form, place.report(form), headers=headers)
            assert (answer.status_code, name_of(answer)) == expected
    assert here.shuffler.store.count(form.task_id) == 0


def test_the_type_may_be_written_in_other_ways(place, serve):
    form = place.task()
    here = serve()
    for kind in ("application/octet-stream", "Application/Octet-Stream", "application/octet-stream; x=y"):
        assert here.post(form, place.report(form), headers={"Content-Type": kind}).status_code == 201


def test_two_types_are_refused(place, serve, exchange):
    form = place.task()
    here = serve()
    head = (
        f"POST /v1/tasks/{form.task_id.hex()}/reports HTTP/1.1\r\nContent-Length: {form.size}\r\nConnection: close\r\n"
    )
    types = "Content-Type: application/octet-stream\r\nContent-Type: text/plain\r\n"
    assert exchange(here.port, (head + types + "\r\n").encode() + place.report(form)).startswith(b"HTTP/1.1 415 ")
    origins = f"Content-Type: application/octet-stream\r\nOrigin: {PAGE}\r\nOrigin: {OTHER}\r\n"
    assert exchange(here.port, (head + origins + "\r\n").encode() + place.report(form)).startswith(b"HTTP/1.1 403 ")
    assert here.shuffler.store.count(form.task_id) == 0


class TestPreflight:
    def ask(self, here, form, origin, path="/v1/tasks/{}/reports"):
        headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        headers |= {"Origin": origin} if origin else {}
        return here.request("OPTIONS", path.format(form.task_id.hex()), headers=headers)

    def test_of_a_listed_page(self, place, serve):
        form = place.task()
        answer = self.ask(serve(origins=(OTHER, PAGE)), form, PAGE)
        assert answer.status_code == 204
        assert answer.content == b""
        assert "content-length" not in answer.headers
        assert cors_of(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "POST",
            "access-control-allow-headers": "Content-Type, Authorization",
            "access-control-max-age": "7200",
            "vary": "Origin",
        }

    @pytest.mark.parametrize("origins", [(), (PAGE,)])
    def test_of_another(self, place, serve, origins):
        form = place.task()
        here = serve(origins=origins)
        for origin in (OTHER, "null", "https://survey.example:444", "http://survey.example", PAGE + "/"):
            answer = self.ask(here, form, origin)
            assert (answer.status_code, name_of(answer)) == (403, "origin-not-allowed")
            assert cors_of(answer) == {}

    def test_without_an_origin(self, place, serve):
        form = place.task()
        assert self.ask(serve(origins=(PAGE,)), form, None).status_code == 405

    def test_elsewhere(self, place, serve):
        form = place.task()
        here = serve(origins=(PAGE,))
        assert self.ask(here, form, PAGE, "/v1/tasks/{}").status_code == 405
        assert self.ask(here, form, PAGE, "/v1/x/{}").status_code == 404


class TestReports:
    def test_of_a_listed_page_every_answer_can_be_read(self, place, serve):
        form, late = place.task(), place.task(closes=-5)
        here = serve(origins=(PAGE,), reports_per_second=0.001, burst=4)
        body = place.report(form)
        expected = [201, 200, 413, 422, 429]
        for status, content in zip(expected, [body, body, body + b"x", b"x", body], strict=True):
            answer = here.post(form, content, headers={"Origin": PAGE})
            assert answer.status_code == status
            assert cors_of(answer) == READABLE
        assert answer.headers["retry-after"]
        assert cors_of(here.post(late, body, headers={"Origin": PAGE})) == READABLE
        assert cors_of(here.request("POST", "/v1/tasks/unknown/reports", body, {"Origin": PAGE})) == READABLE
        here.shuffler.stop()
        answer = here.post(form, body, headers={"Origin": PAGE})
        assert answer.status_code == 503
        assert cors_of(answer) == READABLE

    def test_a_fault_can_be_read_too(self, place, serve, monkeypatch):
        form = place.task()
        here = serve(origins=(PAGE,))
        monkeypatch.setattr(here.shuffler.tasks, "get", lambda _: 1 / 0)
        answer = here.post(form, place.report(form), headers={"Origin": PAGE})
        assert answer.status_code == 500
        assert cors_of(answer) == READABLE

    def test_of_another_page_nothing_is_read(self, place, serve, exchange):
        """It is answered when its headers are here, and costs nothing of the rate."""
        form = place.task()
        here = serve(origins=(PAGE,), reports_per_second=0.001, burst=1)
        path = f"/v1/tasks/{form.task_id.hex()}/reports"
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/octet-stream\r\nOrigin: {OTHER}\r\n"
        for _ in range(3):
            answer = exchange(here.port, f"{head}Content-Length: {form.size}\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"access-control" not in answer.lower()
        assert here.post(form, place.report(form)).status_code == 201
        assert 'refusals_total{problem="origin-not-allowed"} 3.0' in here.get("/metrics").text

    def test_without_an_origin_as_ever(self, place, serve):
        form = place.task()
        answer = serve().post(form, place.report(form))
        assert answer.status_code == 201
        assert cors_of(answer) == {}
        answer = serve(origins=(PAGE,), store_folder=place.folder / "other", work=place.folder).post(
            form, place.report(form)
        )
        assert answer.status_code == 201
        assert cors_of(answer) == {"vary": "Origin"}


def test_the_task(place, serve):
    form = place.task()
    here = serve(origins=(PAGE,))
    path = f"/v1/tasks/{form.task_id.hex()}"
    for headers, cors in (({}, {"vary": "Origin"}), ({"Origin": PAGE}, READABLE)):
        answer = here.request("GET", path, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert cors_of(answer) == cors
    assert here.request("GET", path, headers={"Origin": OTHER}).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "*", "null", "", "survey.example", "https://", "https://survey.example/", "https://survey.example/page",
        "https://*.example", "HTTPS://survey.example", "https://Survey.example", "https://survey.example:443",
        "https://survey.example:0", "https://survey.example:99999", "https://user@survey.example", "ftp://survey.example",
        "https://survey.example?", "https://survey.example#", " https://survey.example", "http://survey.example",
        "http://10.0.0.1", "https://a,https://b", "https://s\u00fcrvey.example",
    ],
)  # fmt: skip
def test_origins_that_are_refused(place, origin):
    with pytest.raises(ParameterError, match="origins must"):
        place.settings(origins=(origin,))


def test_origins_that_can_be_listed(place):
    good = (
        PAGE,
        "https://survey.example:8443",
        "http://localhost:8000",
        "http://127.0.0.1:8000",
        "https://[2001:db8::1]",
    )
    assert place.settings(origins=good).origins == good
