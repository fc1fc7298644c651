"""The page of a session: every answer and the report in one file, and refusals before it is written."""

import pytest

import shuffledp as sdp
from shuffledp.errors import OutputError, ParameterError

USERS = 2_000
BITS = [True, False] * (USERS // 2)


def new(**options):
    return sdp.Session(users=USERS, epsilon=2.0, delta=1e-7, **options)


def test_a_page_has_every_answer_and_the_report(tmp_path):
    session, path = new(), tmp_path / "answers.html"
    count = session.count(BITS, share=0.5, label="cars & <b>bikes</b>", protocol="balcer-cheu")
    session.histogram(["bus"] * USERS, categories=["bus", "<script>"], share=0.2, protocol="correlated-noise")
    session.page(path, title="Answers <1>", confidence=0.9)
    page = path.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "Answers &lt;1&gt;" in page
    assert "cars &amp; &lt;b&gt;bikes&lt;/b&gt;" in page
    assert "<script" not in page
    assert f"<td>{count.shown(0.9)[0].text}</td>" in page
    assert "90% interval" in page
    assert "Privacy and methods" in page
    assert "NOT PRIVATE" not in page


def test_seeded_noise_is_not_private(tmp_path):
    session, path = new(), tmp_path / "answers.html"
    session.count(BITS, share=0.5, protocol="balcer-cheu", source=sdp.InsecureSeededRandomness(1))
    session.page(path)
    assert "NOT PRIVATE" in path.read_text(encoding="utf-8")


def test_answers_of_another_process_are_counted_but_not_shown(tmp_path):
    new(path=tmp_path / "session.json").count(BITS, share=0.2, protocol="balcer-cheu", label="first")
    continued, path = sdp.Session.load(tmp_path / "session.json"), tmp_path / "answers.html"
    continued.count(BITS, share=0.2, protocol="balcer-cheu", label="second")
    continued.page(path)
    page = path.read_text(encoding="utf-8")
    assert "<h2>second</h2>" in page
    assert "<h2>first</h2>" not in page
    assert "of 2 releases" in page


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("answers.txt", {}, OutputError, "must end in .html"),
        ("none/answers.html", {}, OutputError, "there is no directory"),
        ("answers.html", {"confidence": float("nan")}, ParameterError, "confidence"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(name, options, error, message, tmp_path):
    session = new()
    session.count(BITS, share=0.2, protocol="balcer-cheu")
    with pytest.raises(error, match=message):
        session.page(tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_session_without_answers_has_no_page(tmp_path):
    with pytest.raises(ParameterError, match="no answers"):
        new().page(tmp_path / "answers.html")
    assert not list(tmp_path.iterdir())
