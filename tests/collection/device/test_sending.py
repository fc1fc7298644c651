"""Sending: the same bytes until they are answered; pauses that grow; whom to believe."""

import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shuffledp.collection.device.sending import Connection, Patience, deliver
from shuffledp.collection.transport import connection
from shuffledp.errors import DataError, ParameterError, RefusedError, UnreachableError

PATH = "/v1/tasks/00/reports"


def send(server, pauses=None, **options):
    with Connection(server.url, timeout=60) as connection:
        return deliver(connection, PATH, b"report", wait=(lambda _: None) if pauses is None else pauses, **options)


@pytest.mark.parametrize("status", [200, 201])
def test_taken(status, server, pauses):
    server.answers = [status]
    assert send(server, pauses).status == status
    assert (server.bodies, server.paths, pauses) == ([b"report"], [PATH], [])
    sent = server.headers[0]
    assert sent["Content-Type"] == "application/octet-stream"
    assert sent["User-Agent"] == "shuffledp"
    assert set(sent) == {"Host", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}


def test_a_receipt_may_be_json(server):
    server.answers = [(200, {"Content-Type": "application/json"}, b'{"state":"same"}')]
    assert send(server).status == 200


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_again_later(status, server, pauses, quick):
    server.answers = [status] * 3
    assert send(server, pauses, patience=quick).status == 201
    assert server.bodies == [b"report"] * 4
    assert len(pauses) == 3


def test_pauses_grow_and_are_random():
    patience = Patience(attempts=5000, first_pause=1.0, longest_pause=8.0)
    for attempt, limit in enumerate([1, 2, 4, 8, 8, 8]):
        drawn = [patience.pause(attempt) for _ in range(50)]
        assert limit / 2 <= min(drawn) < max(drawn) <= limit
        assert len(set(drawn)) > 40
    assert patience.pause(4999) <= 8
    assert 30 + 4 <= patience.pause(5, 30.0) <= 30 + 8


def test_what_the_server_asks_for_is_waited_for(server, pauses, quick):
    server.answers = [server.problem(503, "stopping", **{"Retry-After": "7"}), (429, {"Retry-After": "x"}), 503]
    send(server, pauses, patience=quick)
    assert 7 < pauses[0] < 8
    assert max(pauses[1:]) <= 2


def test_a_date_is_waited_for(server, pauses, quick):
    """As proxies may send it."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.answers = [(503, {"Retry-After": later})]
    send(server, pauses, patience=quick)
    assert 20 < pauses[0] < 32


DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None), ("", None), ("0", 0), ("120", 120), (" 120 ", 120), ("999999999999", 86_400), ("9" * 21, None),
        ("-1", None), ("1.5", None), ("1e9", None), ("0x10", None), ("\u0661", None), ("nan", None), ("inf", None),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60), ("Sunday, 06-Nov-94 08:50:37 GMT", 60), ("Sun Nov  6 08:50:37 1994", 60),
        (DATE, 0), ("Sun, 06 Nov 1994 08:49:36 GMT", 0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400), ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Sun, 99 Nov 1994 08:50:37 GMT", None), ("soon", None), ("06 Nov", None),
        ("Sun, 06 Nov 1994" + " " * 9999, None),
    ],
)  # fmt: skip
def test_retry_after(header, seconds):
    assert connection._retry_after(header, DATE) == seconds


def test_a_date_is_compared_with_that_of_the_answer_or_with_the_clock():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    for date in (None, "", "nonsense"):
        assert 500 < connection._retry_after(later, date) <= 600
    assert connection._retry_after(later, DATE) == 86_400


def test_a_server_that_asks_for_too_much_time(server, pauses, quick):
    server.answers = [server.problem(503, "overloaded", **{"Retry-After": "86400"})]
    with pytest.raises(UnreachableError, match="retry in 86400 s") as caught:
        send(server, pauses, patience=quick)
    assert (caught.value.values["retry_after"], pauses) == (86400, [])


def test_patience_ends(server, pauses, quick):
    server.answers = [503] * 9
    with pytest.raises(UnreachableError, match="after 5 attempts: 503"):
        send(server, pauses, patience=quick)
    assert (len(server.bodies), len(pauses)) == (5, 4)


def test_nobody_there(pauses, quick):
    connection = Connection("http://127.0.0.1:9", timeout=1)
    with pytest.raises(UnreachableError, match="Connection refused"):
        deliver(connection, PATH, b"report", patience=quick, wait=pauses)
    assert len(pauses) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 415, 422])
def test_no(status, server, pauses):
    server.answers = [server.problem(status, "made-up", "because")]
    with pytest.raises(RefusedError, match=rf"\({status} because\)") as caught:
        send(server, pauses)
    assert caught.value.values == {
        "status": status,
        "problem": "made-up",
        "final": status in (409, 410, 413, 422),
    }
    assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [409, 410, 413, 422])
def test_only_a_shuffler_can_say_never(status, server):
    """A proxy with a small limit says 413 too, and it can be mended."""
    for body in (b"<html>Too large</html>", b"", b"{}", b"[1]", b'{"type":"about:blank"}', b"\xff", b"[" * 60_000):
        server.answers = [(status, {}, body)]
        with pytest.raises(RefusedError) as caught:
            send(server)
        assert caught.value.values["final"] is False


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize("body", [b"<html>Log in to this network</html>", b"[]", b"ok"])
def test_a_page_is_no_receipt(status, body, server):
    server.answers = [(status, {"Content-Type": "text/html"}, body)]
    with pytest.raises(RefusedError, match=f"{status}"):
        send(server)


@pytest.mark.parametrize("status", [202, 204, 301, 302, 307, 308, 418])
def test_other_answers_are_no_receipts_and_are_not_followed(status, server):
    server.answers = [(status, {"Location": f"{server.url}/elsewhere"})]
    with pytest.raises(RefusedError):
        send(server, token="0123456789abcdef")
    assert server.paths == [PATH]


def test_what_a_server_says_cannot_steer_the_terminal(server):
    for said in ("\x1b[2Jred\x07\r\n\u202e", "x" * 1000, {"a": 1}, 5):
        server.answers = [(403, {}, json.dumps({"detail": said}).encode())]
        with pytest.raises(RefusedError) as caught:
            send(server)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


def test_tokens(server):
    send(server, token="abcdefgh01234567._~+/=-")
    assert server.headers[0]["Authorization"] == "Bearer abcdefgh01234567._~+/=-"
    for wrong in ("", "short", "a" * 513, "0123456789abcdef\r\nX: y", "0123456789abcdé", "0123456789 abcdef"):
        with pytest.raises(ParameterError, match="A token must"):
            send(server, token=wrong)
    assert len(server.bodies) == 1


def test_connections_are_kept_and_opened_again(server):
    def leave(handler):
        handler.answer(201)
        handler.close_connection = True  # without a word, as an idle connection ends

    with Connection(server.url) as connection:
        pauses = []
        for answer in (201, 201, leave, 201, 201):
            server.answers = [answer]
            deliver(connection, PATH, b"report", wait=pauses.append)
    assert server.connections == 2
    assert pauses == []  # what the server closed in between is no reason to wait


def test_a_broken_connection_is_tried_again(server, pauses, quick):
    def drop(handler):
        handler.close_connection = True

    def half(handler):
        handler.wfile.write(b"HTTP/1.1 2")
        handler.close_connection = True

    server.answers = [drop, half]
    assert send(server, pauses, patience=quick).status == 201
    assert server.bodies == [b"report"] * 3
    assert len(pauses) == 2


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n{}",
        b"HTTP/1.1 410 Gone\r\nContent-Type: application/problem+json\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_an_answer_that_is_cut_off_is_none(cut, pauses, quick):
    """A portal that drops the connection has not taken the report, and has not refused it for good."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = [cut, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"]

    def serve():
        for each in answers:
            peer, _ = listener.accept()
            with peer:
                got = b""
                while not got.endswith(b"report"):
                    got += peer.recv(1 << 16)
                peer.sendall(each)

    thread = threading.Thread(target=serve)
    thread.start()
    with Connection(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as connection:
        answer = deliver(connection, PATH, b"report", wait=pauses, patience=quick)
    thread.join(30)
    listener.close()
    assert (answer.status, len(pauses)) == (201, 1)


def test_what_is_said_before_the_end_of_a_long_report_is_heard():
    """A server that refuses a report after its headers closes the connection while the report is still coming."""
    listener = socket.create_server(("127.0.0.1", 0))
    said = json.dumps({"type": "urn:shuffledp:problem:too-long", "title": "Too long"}).encode()

    def refuse():
        peer, _ = listener.accept()
        peer.recv(1000)
        peer.sendall(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
        peer.shutdown(socket.SHUT_RDWR)  # not another byte is taken
        time.sleep(0.5)
        peer.close()

    thread = threading.Thread(target=refuse)
    thread.start()
    connection = Connection(f"http://127.0.0.1:{listener.getsockname()[1]}")
    with connection, pytest.raises(RefusedError, match="413 Too long") as caught:
        deliver(connection, PATH, bytes(20_000_000), wait=lambda _: None)
    assert caught.value.values["final"]
    thread.join()
    listener.close()


GIVES_UP_SECONDS = 60.0
"""It gives up after a fraction of a second, and the server goes on for five minutes; the machine may be busy."""


def test_a_server_that_never_finishes(server):
    def drip(handler):
        handler.wfile.write(b"HTTP/1.1 201 Created\r\nContent-Length: 60000\r\n\r\n")
        for _ in range(6000):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    server.answers = [drip]
    started = time.monotonic()
    with Connection(server.url, timeout=0.1) as connection, pytest.raises((RefusedError, UnreachableError)):
        deliver(connection, PATH, b"report", patience=Patience(attempts=1))
    assert time.monotonic() - started < GIVES_UP_SECONDS


def test_silence_ends(server):
    server.answers = [lambda _: time.sleep(1)]
    with Connection(server.url, timeout=0.1) as connection, pytest.raises(UnreachableError, match="timed out"):
        deliver(connection, PATH, b"report", patience=Patience(attempts=1))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shuffler.example",
        "ftp://shuffler.example",
        "https://",
        "https://shuffler.example?x=1",
        "https://shuffler.example#x",
        "https://user:secret@shuffler.example",
        "https://shuffler.example:x",
        "https://shuffler.example:70000",
        "https://shuffler.example:0",
        "https://shuffler.example/a b",
        "https://shuffler.example/\r\nX: y",
        "https://shuf fler.example",
        "https://shüffler.example",
        "https://[::1",
    ],
)
def test_addresses_that_are_none(url):
    with pytest.raises(ParameterError, match="server URL"):
        Connection(url)


def test_plain_http_only_to_this_machine():
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]"):
        Connection(f"http://{host}:8080")
    for host in ("shuffler.example", "10.0.0.1", "127.0.0.1.example", "0.0.0.0", "localhost.example", "[2001:db8::1]"):
        with pytest.raises(ParameterError, match="not encrypted"):
            Connection(f"http://{host}")
        Connection(f"http://{host}", insecure_http=True)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"first_pause": 0}, {"first_pause": 5, "longest_pause": 1}])
def test_patience_that_means_nothing(options):
    with pytest.raises(ParameterError, match="Patience needs"):
        Patience(**options)


def test_timeouts_that_mean_nothing():
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="timeout"):
            Connection("https://shuffler.example", timeout=timeout)


def test_a_path_below_the_address(server):
    with Connection(f"{server.url}/below/") as connection:
        deliver(connection, PATH, b"report")
    assert server.paths == [f"/below{PATH}"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key with certificates for this machine and for another."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    for file, names in (
        ("good", [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
        ("other", [x509.DNSName("elsewhere.example")]),
    ):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file)])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / f"{file}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def with_tls(folder, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / "key.pem")
    return context


def test_certificates_are_checked(certificate, start_server, pauses):
    good, other = (start_server(context=with_tls(certificate, name)) for name in ("good", "other"))
    with Connection(good.url, authorities=certificate / "good.pem") as connection:
        for _ in range(3):
            deliver(connection, PATH, b"report", token="0123456789abcdef")
    assert (len(good.bodies), good.connections) == (3, 1)
    for server, authorities in [(good, None), (good, "other.pem"), (other, "other.pem")]:
        trusted = authorities and certificate / authorities
        connection = Connection(server.url, authorities=trusted)
        with pytest.raises(UnreachableError, match="certificate of https://127"):
            deliver(connection, PATH, b"report", wait=pauses)
    assert pauses == []  # it would not get better
    assert (len(good.bodies), len(other.bodies)) == (3, 0)


def test_certificates_that_cannot_be_read(tmp_path):
    (tmp_path / "x.pem").write_text("no certificate")
    for name in ("x.pem", "none.pem"):
        with pytest.raises(DataError, match="Cannot read the certificates"):
            Connection("https://shuffler.example", authorities=tmp_path / name)


def test_an_interruption_leaves_no_half_used_connection(server):
    connection = Connection(server.url)
    real = http.client.HTTPConnection.getresponse

    def interrupted(self):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "getresponse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.request("POST", PATH, b"report")
    assert http.client.HTTPConnection.getresponse is real
    assert connection.request("POST", PATH, b"report").accepted
    connection.close()
