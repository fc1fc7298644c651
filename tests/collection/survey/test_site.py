"""Sites of surveys: what is written into the page, what is refused, warnings, integrity, and how they are served."""

import dataclasses
import gzip
import hashlib
import html
import http.client
import json
import math
import re
import secrets
import subprocess
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest

import shuffledp as sdp
from shuffledp.collection.device.policy import Policy
from shuffledp.collection.survey import site
from shuffledp.collection.survey.serving import SiteServer
from shuffledp.collection.survey.site import CLIENT_FILES, LANGUAGES, NOT_SERVED, BuiltSite, Survey, write_site
from shuffledp.collection.task.series import RoundKeys, Series
from shuffledp.collection.task.wire_version_2 import (
    SeriesRound,
    ShufflerKeys,
    WireVersion2,
)
from shuffledp.collection.wire.keys import HybridKey, SealingKey, SigningKey, to_base64
from shuffledp.errors import DataError, OutputError, ParameterError, PolicyError
from shuffledp.pages.assets import read_asset
from shuffledp.pages.headers import security_headers
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import least_epsilon

SERVER = "https://shuffler.example"


@pytest.fixture(scope="module")
def signed(parties):
    return parties.task("histogram/uniform-blanket").signed(parties.author)


@pytest.fixture
def survey(parties, signed):
    def make(task=None, **options):
        content = (task or signed).to_bytes()
        given = {"server": SERVER, "asker": "City"} | options
        return Survey.verified(content, author=parties.author.public, **given)

    return make


class Settings(HTMLParser):
    """The settings of a page, read as a browser reads them."""

    def __init__(self, content):
        super().__init__()
        self.reading, self.text, self.tags = False, "", []
        self.feed(content.decode())
        self.settings = json.loads(self.text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.reading = dict(attributes).get("id") == "settings"

    def handle_endtag(self, tag):
        self.reading = False

    def handle_data(self, data):
        self.text += data if self.reading else ""


def test_the_page_pins_the_task_the_author_and_its_files(survey, signed, parties):
    files = survey().files()
    settings = Settings(files["index.html"]).settings
    assert settings["task"] == signed.task.id.hex()
    assert settings["author"] == to_base64(parties.author.public.raw)
    assert settings["server"] == SERVER
    assert files["task.json"].removesuffix(b"\n") == signed.to_bytes()
    page = files["index.html"].decode()
    for name in ("survey.js", "survey.css"):
        assert re.search(rf'(src|href)="{name}" integrity="sha384-[A-Za-z0-9+/=]+"', page)
    assert f"connect-src 'self' {SERVER};" in html.unescape(page)
    assert "unsafe" not in page
    assert json.loads(files["result.json"]) == {"url": None}


def test_the_same_survey_gives_the_same_bytes(survey):
    assert survey().files() == survey().files()
    assert survey(asker="Another").files()["integrity.txt"] != survey().files()["integrity.txt"]


def test_sha256sum_checks_the_integrity_file(survey, tmp_path):
    write_site(survey(), tmp_path / "site")
    check = ["sha256sum", "--check", "--strict", "integrity.txt"]
    assert subprocess.run(check, cwd=tmp_path / "site", capture_output=True).returncode == 0
    (tmp_path / "site" / "survey-worker.js").write_text("alert(1)")
    assert subprocess.run(check, cwd=tmp_path / "site", capture_output=True).returncode == 1


def test_hostile_strings_stay_strings(survey, parties):
    name = "</title><script>alert(1)</script><!-- \" ' &"
    task = parties.task("histogram/uniform-blanket", name=name).signed(parties.author)
    page = Settings(survey(task, asker="<img src=x>\N{HEBREW LETTER ALEF}</script>").files()["index.html"])
    assert page.settings["asker"] == "<img src=x>\N{HEBREW LETTER ALEF}</script>"
    assert page.tags.count("script") == 2
    assert "img" not in page.tags


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"asker": ""}, "asker of a survey must have 1 to 200"),
        ({"asker": "City \N{RIGHT-TO-LEFT OVERRIDE}"}, "U+202E"),
        ({"server": "http://shuffler.example"}, "must be https"),
        ({"server": "https://[::1]:8080"}, "host name or an IPv4"),
        ({"server": "https://a.example;script-src *"}, "valid server URL"),
        ({"server": "nonsense"}, "valid server URL"),
        ({"origin": "https://survey.example/page"}, "no path"),
        ({"language": "fr"}, "en, de"),
    ],
)
def test_bad_options(survey, options, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        survey(**options)


def test_tasks_that_are_refused(survey, signed, parties):
    fragile = parties.task("sum/split-and-mix").signed(parties.author)
    with pytest.raises(PolicyError, match="single visitor"):
        survey(fragile)
    with pytest.raises(PolicyError, match="allows epsilon"):
        survey(policy=Policy(max_epsilon=0.5))
    with pytest.raises(ParameterError, match="not signed by a key"):
        Survey.verified(signed.to_bytes(), author=SigningKey.create().public, server=SERVER, asker="City")
    forged = signed.to_bytes().replace(b'"delta":"1e-06"', b'"delta":"1e-09"')
    with pytest.raises(ParameterError, match="not a valid signature"):
        Survey.verified(forged, author=parties.author.public, server=SERVER, asker="City")


CLIENT = Path(__file__).parents[3] / "clients" / "web" / "src"


def test_the_client_has_the_same_default_limits():
    """A page names only those that differ."""
    text = re.search(r"DEFAULT_POLICY: Policy = \{ (.*) \};", (CLIENT / "policy.ts").read_text(encoding="utf-8"))[1]
    numbers = {"65_536": 65_536, "1 << 24": 1 << 24, "false": False}
    pairs = (pair.split(": ") for pair in text.split(", "))
    stated = {name: numbers.get(value) if value in numbers else float(value) for name, value in pairs}
    defaults = vars(Policy())
    assert stated == {re.sub("_(.)", lambda match: match[1].upper(), name): value for name, value in defaults.items()}


def test_the_client_has_a_file_for_every_protocol():
    registry = CLIENT / "protocols" / "registry.ts"
    rows = re.findall(r'import\("\./(\w+)\.ts"\), \[(.*?)\]\]', registry.read_text(encoding="utf-8"))
    found = {f"client-{file.replace('_', '-')}.js": tuple(re.findall('"(.*?)"', names)) for file, names in rows}
    versionless = {file: tuple(re.sub("/[23]$", "", name) for name in names) for file, names in CLIENT_FILES.items()}
    assert found == versionless


def test_protocols_that_the_page_does_not_have(survey, monkeypatch):
    monkeypatch.setattr(site, "_ANSWERED", {"histogram/k-rr": "client-local-responses.js"})
    with pytest.raises(PolicyError, match="cannot answer histogram/uniform-blanket; choose one of k-rr"):
        survey()


def test_a_page_loads_just_what_its_task_needs(survey, parties):
    files = survey(parties.task("strings/tree-blanket").signed(parties.author), language="de").files()
    client = {name for name in files if name.startswith("client")}
    assert client == {"client.js", "client-tree-blanket.js", "client-de.js"}


MAX_PAGE_BYTES = 25_000


def loaded_bytes(files):
    """What a browser loads before somebody answers, by gzip, besides the task, whose size its author chooses."""
    data = {"task.json", "result.json", "integrity.txt", NOT_SERVED}
    return sum(len(gzip.compress(content, 9, mtime=0)) for name, content in files.items() if name not in data)


ANSWERED = sorted(
    name.removesuffix("/2")
    for names in CLIENT_FILES.values()
    for name in names
    if name != "sum/split-and-mix" and f"{name}/2" not in site._ANSWERED  # smaller than version 2: see below
)
ALLOWED = Policy(max_epsilon=2.0, allow_augmented=True)


def task_for(parties, protocol, **changes):
    """A task that needs the file of the client for this protocol; with carriers, and of wire version 2, as it says."""
    name = protocol.removesuffix("/3")
    if name != protocol:
        changes["options"] = {"carriers": 0.3}
    if name != protocol or "/shuffler-" in name:
        changes["wire"] = WireVersion2((ShufflerKeys(parties.shuffler.public, SealingKey.create().public),))
    if name == "histogram/shuffler-geometric":
        changes["delta"] = 0.0
    return parties.task(name, **changes)


class TestSize:
    def test_the_page_of_every_protocol_is_small(self, parties):
        options = {"author": parties.author.public, "server": SERVER, "asker": "City", "tokens": True, "kiosk": True}
        sizes = {}
        for protocol in ANSWERED:
            content = task_for(parties, protocol, users=3000).signed(parties.author).to_bytes()
            survey = Survey.verified(content, policy=ALLOWED, **options)
            for language in LANGUAGES:
                sizes[protocol, language] = loaded_bytes(dataclasses.replace(survey, language=language).files())
        largest = max(sizes, key=sizes.get)
        print(f"{len(sizes)} pages of {min(sizes.values()):,} to {sizes[largest]:,} bytes: {' '.join(largest)}")
        assert {page: size for page, size in sizes.items() if size > MAX_PAGE_BYTES} == {}
        for first, second in (("correlated-count", "clustered-count"), ("correlated-noise", "clustered-noise")):
            assert len(read_asset(f"client-{first}.js")) < len(read_asset(f"client-{second}.js"))

    def test_an_asset_that_is_too_large_is_found(self, survey):
        files = survey().files()
        files["client-blankets.js"] += secrets.token_hex(4000).encode()
        assert loaded_bytes(files) > MAX_PAGE_BYTES


def test_warnings(survey, parties):
    collusion, honest = "they can learn every answer", "without tokens anyone can send dishonest ones"
    kinds = {
        "histogram/uniform-blanket": {collusion, honest},
        "histogram/k-rr": set(),
        "histogram/shuffled-k-rr": {honest},
    }
    for protocol, expected in kinds.items():
        task = parties.task(protocol).signed(parties.author)
        text = " ".join(survey(task).warnings())
        assert {part for part in (collusion, honest) if part in text} == expected, protocol
    assert honest not in " ".join(survey(tokens=True).warnings())
    shared = survey(tokens=True, origin="https://one.example", analyzer="https://one.example:444").warnings()
    assert any("the page and the analyzer share the host name one.example" in warning for warning in shared)
    assert any("one person can answer several times" in warning for warning in survey(kiosk=True).warnings())


def test_partial_honesty_needs_no_warning(survey, parties):
    domain = sdp.Categories.of(["a", "b"])
    fields = parties.rest()
    task = sdp.collection.Task.create(
        kind=sdp.find("histogram", "uniform-blanket"),
        settings={"users": 1000, "honest_fraction": 0.5, "categories": domain},
        epsilon=1.0,
        delta=1e-6,
        maximum_users=2000,
        **fields,
    ).signed(parties.author)
    assert "dishonest" not in " ".join(survey(task).warnings())


class TestWriting:
    def test_nothing_is_overwritten(self, survey, tmp_path):
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "mine.txt").write_text("mine")
        with pytest.raises(OutputError, match="not an empty directory"):
            write_site(survey(), tmp_path / "site")
        assert [path.name for path in tmp_path.rglob("*")] == ["site", "mine.txt"]

    def test_an_empty_directory_is_used(self, survey, tmp_path):
        (tmp_path / "site").mkdir()
        write_site(survey(), tmp_path / "site")
        assert {path.name for path in (tmp_path / "site").iterdir()} == set(survey().files())

    def test_no_parent(self, survey, tmp_path):
        with pytest.raises(OutputError, match="create it first"):
            write_site(survey(), tmp_path / "no" / "site")

    @pytest.mark.parametrize("name", ["index.html", "survey-worker.js", "task.json"])
    def test_changed_files_are_not_served(self, survey, tmp_path, name):
        write_site(survey(), tmp_path / "site")
        BuiltSite.load(tmp_path / "site")
        file = tmp_path / "site" / name
        file.write_bytes(file.read_bytes() + b" ")
        with pytest.raises(DataError, match="was changed"):
            BuiltSite.load(tmp_path / "site")

    def test_a_site_without_the_protocol_of_its_task_is_not_served(self, survey, tmp_path):
        write_site(survey(), tmp_path / "site")
        integrity = tmp_path / "site" / "integrity.txt"
        lines = integrity.read_text().splitlines(keepends=True)
        integrity.write_text("".join(line for line in lines if "client-blankets.js" not in line))
        with pytest.raises(DataError, match="lacks files"):
            BuiltSite.load(tmp_path / "site")

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"0  ../../etc/passwd\n"])
    def test_other_directories_are_not_served(self, tmp_path, content):
        (tmp_path / "integrity.txt").write_bytes(content)
        with pytest.raises(DataError, match="not a site"):
            BuiltSite.load(tmp_path)


@pytest.fixture
def served(survey, tmp_path):
    write_site(survey(), tmp_path / "site")
    server = SiteServer(BuiltSite.load(tmp_path / "site"), 0)
    with server.running():
        yield server


def ask(server, method, path, headers=None):
    with closing(http.client.HTTPConnection(*server.server_address, timeout=60)) as connection:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


class TestServing:
    def test_every_file_has_the_headers(self, served):
        expected = security_headers(connect=[SERVER], trusted_types=["survey"])
        assert set(served.site.served) == {path.name for path in served.site.directory.iterdir()} - {NOT_SERVED}
        for name, kind in served.site.served.items():
            status, headers, content = ask(served, "GET", f"/{name}")
            assert (status, headers["Content-Type"]) == (200, kind)
            assert expected.items() <= headers.items()
            assert content == (served.site.directory / name).read_bytes()
        assert "frame-ancestors 'none'" in expected["Content-Security-Policy"]
        assert ask(served, "GET", "/")[2] == ask(served, "GET", "/index.html")[2]
        assert ask(served, "HEAD", "/")[2] == b""

    @pytest.mark.parametrize("path", ["/nginx.conf", "/../integrity.txt", "//etc/passwd", "/index.html?x", "/%2e%2e/x"])
    def test_nothing_else(self, served, path):
        status, headers, _ = ask(served, "GET", path)
        assert status == 404
        assert "Content-Security-Policy" in headers

    def test_other_host_names(self, served):
        assert ask(served, "GET", "/", {"Host": "attacker.example"})[0] == 421

    def test_other_methods(self, served):
        assert ask(served, "POST", "/")[0] == 501

    def test_only_loopback(self, served):
        assert served.server_address[0] == "127.0.0.1"

    def test_a_port_that_is_taken(self, served):
        with pytest.raises(OutputError, match="choose another"):
            SiteServer(served.site, served.server_address[1])
        with pytest.raises(OutputError, match="choose another"):
            SiteServer(served.site, 70_000)


def test_nginx_sends_the_same_headers(survey):
    conf = survey(origin="https://survey.city.example").files()["nginx.conf"].decode()
    sent = dict(re.findall(r'^    add_header (\S+) "(.*)" always;$', conf, re.MULTILINE))
    expected = security_headers(connect=[SERVER], trusted_types=["survey"])
    assert expected.items() <= sent.items()
    assert "server_name survey.city.example;" in conf
    listed = re.search(r'location ~ "\^/\((.*)\)\$"', conf)[1].replace("\\", "").split("|")
    assert set(listed) == set(survey().files()) - {NOT_SERVED}


def test_texts_of_all_languages_agree():
    from importlib.resources import files

    texts = {
        language: json.loads(files("shuffledp.pages").joinpath("texts", f"survey.{language}.json").read_bytes())
        for language in LANGUAGES
    }
    for language, translated in texts.items():
        assert translated.keys() == texts["en"].keys(), language
        for name, text in translated.items():
            assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", texts["en"][name])), name
            assert text.strip() == text != ""


def test_the_fingerprint_covers_every_file(survey):
    files = survey().files()
    listed = dict(line.split("  ")[::-1] for line in files["integrity.txt"].decode().splitlines())
    assert set(listed) == set(files) - {"integrity.txt", "result.json", NOT_SERVED}
    for name, digest in listed.items():
        assert hashlib.sha256(files[name]).hexdigest() == digest


class TestVersion2:
    @pytest.fixture
    def keys(self, parties):
        return ShufflerKeys(parties.shuffler.public, SealingKey.create().public)

    def test_a_page_is_built(self, parties, survey, keys, tmp_path):
        task = parties.task("histogram/uniform-blanket", wire=WireVersion2((keys,)))
        write_site(survey(task.signed(parties.author)), tmp_path / "site")
        assert BuiltSite.load(tmp_path / "site").task == task

    @pytest.mark.parametrize(
        ("changes", "feature"),
        [
            ({"series": SeriesRound(bytes(32), 0)}, "rounds of a series"),
            ({"shufflers": "hybrid"}, "the hybrid outer seal"),
        ],
    )
    def test_what_browsers_do_not_carry_out_is_refused_in_one_line(self, parties, survey, keys, changes, feature):
        signed = parties.task("histogram/uniform-blanket", wire=WireVersion2((keys,))).signed(parties.author)
        if "shufflers" in changes:
            changes = {"shufflers": (ShufflerKeys(keys.signing, HybridKey.create().public),)}
        task = dataclasses.replace(signed.task, wire=dataclasses.replace(signed.task.wire, **changes))
        with pytest.raises(
            PolicyError, match=f"^A survey page cannot answer a task with {feature}; create one without"
        ):
            dataclasses.replace(survey(signed), task=task)

    def test_a_page_of_carriers_has_their_part_of_the_client(self, parties, survey, tmp_path):
        signed = task_for(parties, "count/correlated-noise/3").signed(parties.author)
        write_site(survey(signed), tmp_path / "site")
        assert "client-carried-count.js" in BuiltSite.load(tmp_path / "site").served
        longest = signed.task.max_messages_per_report
        with pytest.raises(PolicyError, match=f"has {longest} messages"):
            survey(signed, policy=Policy(max_messages=longest - 1))

    @pytest.mark.parametrize("protocol", CLIENT_FILES["client-shuffler-noise.js"])
    def test_an_augmented_page_is_built_only_if_that_is_allowed(self, parties, survey, tmp_path, protocol):
        signed = task_for(parties, protocol).signed(parties.author)
        with pytest.raises(PolicyError, match=r"^This task trusts the shuffler to add all noise"):
            survey(signed)
        page = survey(signed, policy=ALLOWED, origin="https://survey.example")
        write_site(page, tmp_path / "site")
        assert BuiltSite.load(tmp_path / "site").task == signed.task
        assert "client-shuffler-noise.js" in page.files()
        limits = Settings(page.files()["index.html"]).settings["policy"]
        assert limits == {"maxEpsilon": 2.0, "allowAugmented": True}
        assert Settings(survey().files()["index.html"]).settings["policy"] == {}
        text = " ".join(page.warnings())
        assert "The shuffler adds all noise" in text
        assert "they can learn every answer" in text
        assert "dishonest" not in text  # the honesty of others does not matter


MAX_SERIES_BYTES = 30_000
"""Of the page of a series, which loads the client for series and another page and worker; others load none of them."""
OF_SERIES = {"survey-series.js", "survey-series-worker.js", "client-series.js"}


class TestSeries:
    @pytest.fixture
    def series_survey(self, parties, make_series):
        def make(series=None, **options):
            chosen = series or make_series(users=500, shuffler=parties.shuffler)[0]
            given = {"author": parties.author.public, "server": SERVER, "asker": "City"} | options
            return Survey.of_series(chosen.signed(parties.author), **given)

        return make

    def test_a_page_is_built_and_read(self, series_survey, make_series, tmp_path):
        series, _, _ = make_series(users=500)
        survey = series_survey(series)
        write_site(survey, tmp_path / "site")
        built = BuiltSite.load(tmp_path / "site")
        assert (built.series, built.task, built.id) == (series, series.task(0), series.id)
        settings = Settings(survey.files()["index.html"]).settings
        assert settings["task"] == series.id.hex()
        assert set(survey.files()) >= {"series.json", *OF_SERIES}
        assert set(survey.files()).isdisjoint({"task.json", "survey.js", "survey-worker.js"})
        assert not any(name.startswith("series_") for name in settings["texts"])

    def test_pages_of_one_round_have_nothing_of_it(self, survey):
        files = survey().files()
        assert OF_SERIES.isdisjoint(files)
        assert not any("series" in name for name in Settings(files["index.html"]).settings["texts"])

    def test_what_is_refused(self, series_survey, parties, make_series):
        with pytest.raises(PolicyError, match="cannot be a kiosk"):
            series_survey(kiosk=True)
        with pytest.raises(PolicyError, match="allows epsilon"):
            series_survey(policy=Policy(max_epsilon=0.5))
        content = make_series(users=500)[0].signed(SigningKey.create())
        with pytest.raises(ParameterError, match="not signed by a key"):
            Survey.of_series(content, author=parties.author.public, server=SERVER, asker="City")

    @pytest.mark.parametrize("name", ["series.json", "survey-series-worker.js", "client-series.js"])
    def test_changed_or_missing_files_are_not_served(self, series_survey, tmp_path, name):
        write_site(series_survey(), tmp_path / "site")
        file = tmp_path / "site" / name
        content = file.read_bytes()
        file.write_bytes(content + b" ")
        with pytest.raises(DataError, match="was changed"):
            BuiltSite.load(tmp_path / "site")
        file.write_bytes(content)
        integrity = tmp_path / "site" / "integrity.txt"
        lines = integrity.read_text().splitlines(keepends=True)
        integrity.write_text("".join(line for line in lines if f"  {name}" not in line))
        with pytest.raises(DataError, match=r"not a site|lacks files"):
            BuiltSite.load(tmp_path / "site")

    @pytest.mark.parametrize("language", LANGUAGES)
    @pytest.mark.parametrize(
        "protocol",
        ["histogram/uniform-blanket", "histogram/k-rr", "count/shuffler-laplace", "histogram/shuffler-geometric"],
    )
    def test_the_sentence_about_all_rounds_is_true(self, parties, series_survey, protocol, language):
        """The factor is not below that of two rounds, and at most a hundredth above it; "1 in N" is not below delta."""
        key = ShufflerKeys(parties.shuffler.public, SealingKey.create().public)
        target = 0.0 if protocol == "histogram/shuffler-geometric" else 3.3e-7
        first = parties.task(protocol, epsilon=0.9, delta=target, wire=WireVersion2((key,)))
        keys = [RoundKeys(first.analyzer, (key.sealing,))]
        keys += [RoundKeys(SealingKey.create().public, (SealingKey.create().public,)) for _ in range(5)]
        series = Series(first, period=86_400, keys=tuple(keys), rounds_per_device=2)
        survey = series_survey(series, language=language, policy=ALLOWED)
        text = Settings(survey.files()["index.html"]).settings["texts"]["total"]
        plain = text.replace(".", "").replace(",", ".") if language == "de" else text.replace(",", "")
        factor = float(re.search(r"(?:factor of at most|Faktor) (\d+(?:\.\d+)?)", plain)[1])
        guarantee = first.guarantee
        others = {"en": "people take part honestly", "de": "Personen ehrlich teilnehmen"}[language]
        assert (others in text) == (guarantee.trust == "shuffled")
        if guarantee.trust == "local":
            exact = math.exp(2 * guarantee.local_epsilon)
        elif target == 0:
            exact = math.exp(1.8)
            assert not re.search(r"1 (?:in|zu) \d", plain)
        else:
            exact = math.exp(least_epsilon(compose(guarantee.curve, 2), 2 * first.delta))
            assert exact < math.exp(1.8)  # less than the sum
            odds = int(re.search(r"1 (?:in|zu) (\d+)", plain)[1])
            assert 0.99 < odds * 2 * first.delta <= 1
        assert exact <= factor <= 1.01 * exact
        assert re.search(r"\b2\b.*\b6\b", plain)

    def test_the_page_is_small(self, parties, series_survey):
        """The largest protocol; the fault is an asset that grew."""
        largest = task_for(parties, "histogram/correlated-noise/3", users=3000)
        series = Series(largest, 86_400, (RoundKeys(largest.analyzer, (largest.wire.shufflers[0].sealing,)),), 1)
        survey = series_survey(series, policy=Policy(max_epsilon=2.0), tokens=True)
        sizes = [
            loaded_bytes({name: content for name, content in files.items() if name != "series.json"})
            for files in (dataclasses.replace(survey, language=language).files() for language in LANGUAGES)
        ]
        print(f"the page of a series: {max(sizes):,} bytes at most")
        assert max(sizes) <= MAX_SERIES_BYTES
        assert max(sizes) + 3000 > MAX_SERIES_BYTES
