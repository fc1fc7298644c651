"""Building of the static site of a survey: the page for a task or series, its integrity file, settings for nginx."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from shuffledp.collection.device.policy import Policy
from shuffledp.collection.task.authentic import authentic_task
from shuffledp.collection.task.display_strings import check_string
from shuffledp.collection.task.series import Series, authentic_series
from shuffledp.collection.task.task import MAX_TASK_BYTES, Task
from shuffledp.collection.task.wire_version_2 import WireVersion2
from shuffledp.collection.transport.connection import ServerUrl
from shuffledp.collection.wire.keys import VerifyingKey, from_base64, to_base64
from shuffledp.collection.wire.outer_suites import X25519_SUITE
from shuffledp.domain import Bins, Domain, Interval, Numbered, Strings
from shuffledp.durable_files import read_limited
from shuffledp.errors import DataError, OutputError, ParameterError, PolicyError
from shuffledp.output import write_whole
from shuffledp.pages.assets import read_asset
from shuffledp.pages.headers import content_security_policy, security_headers
from shuffledp.pages.rendering import render_page
from shuffledp.privacy.composition import compose
from shuffledp.privacy.guarantee import least_epsilon
from shuffledp.protocols.protocol import Protocol
from shuffledp.protocols.strings.protocol import StringsProtocol

LANGUAGES = ("en", "de")
CLIENT_FILES: dict[str, tuple[str, ...]] = {
    "client-balcer-cheu.js": ("count/balcer-cheu", "histogram/balcer-cheu"),
    "client-bits.js": ("histogram/fake-users", "histogram/unary"),
    "client-blankets.js": ("histogram/uniform-blanket",),
    "client-carried-count.js": ("count/correlated-noise/3",),
    "client-carried-noise.js": ("histogram/correlated-noise/3",),
    "client-cheu.js": ("count/cheu", "histogram/cheu", "sum/cheu"),
    "client-clustered-count.js": ("count/correlated-noise/2",),
    "client-clustered-noise.js": ("histogram/correlated-noise/2",),
    "client-correlated-count.js": ("count/correlated-noise",),
    "client-correlated-noise.js": ("histogram/correlated-noise",),
    "client-correlated-tree.js": ("quantiles/correlated-noise",),
    "client-count-min.js": ("histogram/count-min",),
    "client-hadamard.js": ("histogram/bassily-smith", "histogram/hadamard-blanket", "histogram/hadamard-response"),
    "client-hashing.js": ("histogram/hashed-blanket", "histogram/local-hashing"),
    "client-local-responses.js": ("count/randomized-response", "histogram/k-rr", "sum/duchi"),
    "client-local-sums.js": ("sum/local-laplace", "sum/piecewise"),
    "client-pure-sum.js": ("count/pure-sum",),
    "client-shuffled-responses.js": ("histogram/shuffled-k-rr", "sum/privacy-blanket"),
    "client-shuffler-noise.js": (
        "count/shuffler-laplace",
        "histogram/shuffler-geometric",
        "histogram/shuffler-laplace",
    ),
    "client-solh.js": ("histogram/solh",),
    "client-split-and-mix.js": ("sum/split-and-mix",),
    "client-tree-blanket.js": ("strings/tree-blanket",),
    "client-uniform-tree.js": ("quantiles/uniform-blanket",),
}
"""The files of the client that have protocols, of which a task needs one: checked against the client by a test. A name
ends with the version of the parameters if that is not 1."""
_ANSWERED = {protocol: name for name, protocols in CLIENT_FILES.items() for protocol in protocols}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
_ASSETS = ("survey.css", "survey.js", "survey-worker.js", "client.js")
_SERIES_ASSETS = ("survey.css", "survey-series.js", "survey-series-worker.js", "client.js", "client-series.js")
_STRINGS = "survey-strings.js"
_SERIES_TEXT = "series_"
"""Of the texts of a page of a series; without it they have the names of those that they replace there."""
_ONLY_FOR = {
    "a choice": re.compile("yes$|no$|choose"),
    "a number": re.compile("number_|integer_"),
    "a string": re.compile("string_|bytes_"),
}
"""Texts that only a question with this kind of answer needs."""
_CHANGING = ("result.json", "integrity.txt")
"""Served files that the integrity file does not list."""
_KNOWN = {
    "index.html",
    "task.json",
    "series.json",
    *_ASSETS,
    *_SERIES_ASSETS,
    _STRINGS,
    *CLIENT_FILES,
    *(f"client-{name}.js" for name in LANGUAGES),
}
"""Files that the integrity file of some site lists."""
NOT_SERVED = "nginx.conf"
"""The one file of a site that is not served: an example for the host."""
_TRUSTED_TYPES = ("survey",)
_LONGEST_NAME = 200
_LARGEST_ODDS = 1e12
"""Less probable is nothing that people can imagine: the sentence stays true with this."""
_LARGEST_EXPONENT = 600.0
_MAX_FILE_BYTES = 1 << 16
_PARTIES = {"server": "the shuffler", "origin": "the page", "analyzer": "the analyzer"}
_HOST = re.compile("[a-z0-9.-]+")
_SETTINGS = re.compile(r'<script type="application/json" id="settings">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A page that asks the question of one task, or in every round of a series.

    ``task`` must be the verified task of the bytes ``signed``; of a series, ``series`` is the verified one and ``task``
    its first round.
    """

    signed: bytes
    task: Task
    author: VerifyingKey
    server: str
    """URL of the shuffler."""
    asker: str
    """Who asks, for the people who answer."""
    origin: str = ""
    """Where the page will be served, such as https://survey.example, if known."""
    analyzer: str = ""
    """URL of the analyzer, if known; the page sends nothing there."""
    language: str = "en"
    tokens: bool = False
    """Whether a report needs an enrolment token."""
    kiosk: bool = False
    """Whether several people answer on one device, one after the other."""
    policy: Policy = field(default_factory=Policy)
    series: Series | None = None

    @classmethod
    def verified(cls, signed_task: bytes, *, author: VerifyingKey, **options: Any) -> Survey:
        """A survey of a task that the author signed and whose guarantee holds; ParameterError otherwise."""
        return cls(signed=signed_task, task=authentic_task(signed_task, author), author=author, **options)

    @classmethod
    def of_series(cls, signed_series: bytes, *, author: VerifyingKey, **options: Any) -> Survey:
        """A survey of all rounds of a series that the author signed and whose guarantee holds."""
        series = authentic_series(signed_series, author)
        return cls(signed=signed_series, task=series.task(0), series=series, author=author, **options)

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ParameterError(f"The language must be one of {', '.join(LANGUAGES)}, not {self.language!r}.")
        check_string("asker", self.asker, min_length=1, max_length=_LONGEST_NAME, of="a survey")
        for name in ("server", "origin", "analyzer"):
            if name == "server" or getattr(self, name):
                _check_url(name, getattr(self, name))
        if self.series is not None and self.kiosk:
            raise PolicyError(
                "A page of a series cannot be a kiosk: a device draws its rounds once, and a kiosk does not know who "
                "comes again."
            )
        if feature := _unanswered_feature(self.task.wire, in_series=self.series is not None):
            raise PolicyError(f"A survey page cannot answer a task with {feature}; create one without for a survey.")
        protocol = self.task.protocol
        if _versioned_name(protocol) not in _ANSWERED:
            answered = sorted(key.split("/")[1] for key in _ANSWERED if key.startswith(f"{protocol.question}/"))
            answered = list(dict.fromkeys(answered))
            raise PolicyError(
                f"A survey page cannot answer {protocol.question}/{protocol.name}; choose "
                f"{'one of ' + ', '.join(answered) if answered else 'another question'}."
            )
        if protocol.fragile:
            raise PolicyError(
                f"With {protocol.name} a single visitor of the page can change the result arbitrarily; "
                "choose another protocol for a survey."
            )
        self.policy.check(self.task)

    def warnings(self) -> list[str]:
        """What the author should know before the page is published."""
        guarantee = self.task.guarantee
        warnings = []
        if not math.isfinite(guarantee.local_epsilon):
            warnings.append(
                "If the shuffler and the analyzer collude, they can learn every answer; the page says so. They must "
                "be run by different parties."
            )
        if guarantee.trust == "augmented":
            warnings.append(
                "The shuffler adds all noise: one that adds too little removes the guarantee and nobody notices, and "
                "shufflers learn the counts from the published result; the page says so."
            )
        needs_others = guarantee.trust not in ("local", "augmented")
        if needs_others and guarantee.honest_users == guarantee.users and not self.tokens:
            warnings.append(
                "The guarantee needs every one of the minimum number of reports to be honest, and without tokens "
                "anyone can send dishonest ones: use tokens, or create the task with an honest fraction below 1."
            )
        if self.kiosk and not self.tokens:
            warnings.append("On a kiosk without tokens one person can answer several times.")
        shared = _shared_hosts({"the page": self.origin, "the shuffler": self.server, "the analyzer": self.analyzer})
        warnings += [
            f"{' and '.join(parties)} share the host name {host}: whoever runs it can combine what they see, and one "
            "that serves the page can read answers."
            for host, parties in shared.items()
        ]
        return warnings

    @property
    def assets(self) -> tuple[str, ...]:
        """The scripts and styles that the page loads: of the client, just what the task and the language need."""
        return _assets_of(self.task, self.language, in_series=self.series is not None)

    @property
    def id(self) -> bytes:
        """The id of the task or of the series, which the page pins."""
        return self.task.id if self.series is None else self.series.id

    def files(self) -> dict[str, bytes]:
        """The files of the site by name; the same survey always gives the same bytes."""
        assets = {name: read_asset(name) for name in self.assets}
        texts = self._page_texts
        script = "survey.js" if self.series is None else "survey-series.js"
        document = _document_name(in_series=self.series is not None)
        connect = (_origin_of(self.server),)
        contents = {
            "index.html": render_page(
                "survey.html",
                language=self.language,
                policy=content_security_policy(connect=connect, trusted_types=_TRUSTED_TYPES),
                name=self.task.name,
                asker=self.asker,
                texts=texts,
                script=script,
                integrity={name: _subresource_integrity(content) for name, content in assets.items()},
                settings=_json_block(self._settings(texts)),
            ),
            **assets,
            document: self.signed.removesuffix(b"\n") + b"\n",
            "result.json": result_document(None),
        }
        listed = {name: content for name, content in contents.items() if name not in _CHANGING}
        contents["integrity.txt"] = "".join(
            f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(listed.items())
        ).encode()
        contents[NOT_SERVED] = render_page(
            "survey.nginx.conf",
            host=ServerUrl.parse(self.origin).host if self.origin else "survey.example",
            headers=security_headers(connect=connect, trusted_types=_TRUSTED_TYPES),
            served=list(contents),
        )
        return contents

    def _settings(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """What the page needs to know, besides the task itself."""
        return {
            "task": self.id.hex(),
            "author": to_base64(self.author.raw),
            "server": self.server.rstrip("/"),
            "asker": self.asker,
            "language": self.language,
            "tokens": self.tokens,
            "kiosk": self.kiosk,
            "policy": _limits(self.policy),
            "texts": _needed(texts, self.task.protocol.domain),
        }

    @cached_property
    def _page_texts(self) -> dict[str, str]:
        """The texts of the page; those of a series take the places of others."""
        texts = _texts(self.language)
        of_series = {name: texts.pop(name) for name in [*texts] if name.startswith(_SERIES_TEXT)}
        if self.series is None:
            return texts
        texts |= {name.removeprefix(_SERIES_TEXT): text for name, text in of_series.items()}
        totals = {name: texts.pop(name) for name in [*texts] if name.startswith("total")}
        trust = "local" if self.task.delta == 0 else self.task.guarantee.trust
        total = totals.get(f"total_{trust}", totals["total"])
        return texts | {"total": _total_sentence(total, self.series, self.language)}


def _total_sentence(text: str, series: Series, language: str) -> str:
    """What all rounds of one device reveal together, rounded to the safe side; delta is that of as many rounds."""
    guarantee, rounds = series.first.guarantee, series.rounds_per_device
    if guarantee.trust == "local":
        epsilon, odds = rounds * guarantee.local_epsilon, 1.0
    elif series.first.delta == 0:
        epsilon, odds = rounds * series.first.epsilon, 1.0
    else:
        delta = min(rounds * series.first.delta, 0.5)
        epsilon = least_epsilon(compose(guarantee.curve, rounds), delta)
        odds = min(1 / delta, _LARGEST_ODDS) if delta > 0 else _LARGEST_ODDS
    values = {
        "count": rounds,
        "rounds": len(series.keys),
        "factor": _rounded(math.exp(min(epsilon, _LARGEST_EXPONENT)), up=True),
        "odds": _rounded(odds, up=False),
        "users": guarantee.honest_users,
    }
    marks = str.maketrans(",.", ".,") if language == "de" else {}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", f"{value:,}".translate(marks))
    return text


def _rounded(number: float, *, up: bool) -> int | float:
    """Three digits, not below the number, or not above it."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    steps = math.ceil(number / unit * (1 - 1e-12)) if up else math.floor(number / unit * (1 + 1e-12))
    rounded = float(f"{steps * unit:.3g}")
    return int(rounded) if rounded == int(rounded) else rounded


def result_document(url: str | None) -> bytes:
    """The file by which the page learns where the result is published; None while there is none."""
    return json.dumps({"url": url}).encode() + b"\n"


def write_site(survey: Survey, directory: Path) -> dict[str, bytes]:
    """Write the files of a survey to a new directory, completely or not at all, and return them."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise OutputError(f"{directory} exists and is not an empty directory; name a new one.", path=str(directory))
    parent = Path(os.path.realpath(directory)).parent
    if not parent.is_dir():
        raise OutputError(f"Cannot write {directory}: there is no directory {parent}; create it first.")
    contents = survey.files()
    temporary: str | None = None
    try:
        temporary = tempfile.mkdtemp(dir=parent, prefix=f".{directory.name}.")
        for name, content in contents.items():
            Path(temporary, name).write_bytes(content)
        Path(temporary).chmod(0o755)
        os.replace(temporary, directory)  # an empty directory is replaced, any other is not
        temporary = None
    except OSError as error:
        raise OutputError(f"Cannot write {directory}: {error.strerror or error}.", path=str(directory)) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return contents


@dataclass(frozen=True)
class BuiltSite:
    """A site that was built: its directory, the verified task and the settings of its page."""

    directory: Path
    task: Task
    """Of a series: its first round."""
    server: str
    served: Mapping[str, str]
    """The files that are served, and their content types."""
    series: Series | None = None

    @classmethod
    def load(cls, directory: Path) -> BuiltSite:
        """Read a site; DataError if a file is missing or differs from the integrity file."""
        listed = {}
        integrity = read_limited(directory / "integrity.txt", _MAX_FILE_BYTES, "integrity file")
        for line in integrity.decode("ascii", "replace").splitlines():
            digest, _, name = line.partition("  ")
            listed[name] = digest
        in_series = "series.json" in listed
        document = _document_name(in_series=in_series)
        if not {"index.html", document, *_assets(in_series=in_series)} <= set(listed) <= _KNOWN:
            raise DataError(f"{directory} is not a site of this version; build it again.", path=str(directory))
        contents = {name: read_limited(directory / name, MAX_TASK_BYTES + 1, "file of a site") for name in listed}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != listed[name]:
                raise DataError(f"{directory / name} was changed after the site was built; build it again.")
        try:
            block = _SETTINGS.search(contents["index.html"].decode())
            settings = json.loads(block[1]) if block else {}
            author = VerifyingKey(from_base64(settings["author"], 32))
            server, language = settings["server"], settings["language"]
        except (KeyError, TypeError, ValueError, ParameterError):
            raise DataError(f"{directory / 'index.html'} is not a page of a survey; build it again.") from None
        try:
            series = authentic_series(contents[document], author) if in_series else None
            task = authentic_task(contents[document], author) if series is None else series.task(0)
        except ParameterError as error:
            raise DataError(f"{directory / document}: {error}") from None
        if set(listed) != {"index.html", document, *_assets_of(task, language, in_series=in_series)}:
            raise DataError(f"{directory} lacks files that its task needs; build it again.", path=str(directory))
        served = {name: _TYPES[Path(name).suffix] for name in (*listed, *_CHANGING)}
        return cls(directory, task, server, served, series)

    @property
    def id(self) -> bytes:
        """The id of the task or of the series."""
        return self.task.id if self.series is None else self.series.id

    def headers(self) -> dict[str, str]:
        """The headers with which its files are served."""
        return security_headers(connect=(_origin_of(self.server),), trusted_types=_TRUSTED_TYPES)

    def publish(self, url: str | None) -> None:
        """Make the page link to the published result at this URL, or to none."""
        write_whole(self.directory / "result.json", result_document(url))


def _unanswered_feature(wire: WireVersion2 | None, *, in_series: bool) -> str:
    """A feature of wire version 2 that a task needs and the client for browsers does not carry out, or ""."""
    if wire is None:
        return ""
    features = {
        "rounds of a series": wire.series is not None and not in_series,
        "the hybrid outer seal": wire.outer_suite is not X25519_SUITE,
    }
    return next((feature for feature, is_used in features.items() if is_used), "")


def _versioned_name(protocol: Protocol) -> str:
    """The name of a protocol, with the version of its parameters if that is not 1."""
    version = protocol.document_version
    return f"{protocol.question}/{protocol.name}" + ("" if version == 1 else f"/{version}")


def _assets(*, in_series: bool) -> tuple[str, ...]:
    """The scripts and styles of all pages, of one task or of a series."""
    return _SERIES_ASSETS if in_series else _ASSETS


def _document_name(*, in_series: bool) -> str:
    """The file with the signed task or series."""
    return "series.json" if in_series else "task.json"


def _assets_of(task: Task, language: str, *, in_series: bool) -> tuple[str, ...]:
    """The scripts and styles of the page of a task, or of a series with this first round."""
    client_file = _ANSWERED.get(_versioned_name(task.protocol), "")
    strings = (_STRINGS,) if isinstance(task.protocol, StringsProtocol) else ()
    return *_assets(in_series=in_series), client_file, f"client-{language}.js", *strings


def _check_url(name: str, url: str) -> None:
    """Refuse URLs that a page under a content security policy cannot use, and plain HTTP to other machines."""
    parsed = ServerUrl.parse(url)
    if not _HOST.fullmatch(parsed.host):
        raise ParameterError(f"The URL of {_PARTIES[name]} must have a host name or an IPv4 address, not {url!r}.")
    if parsed.scheme == "http" and not parsed.is_loopback:
        raise ParameterError(f"The URL of {_PARTIES[name]} must be https, since it is another machine, not {url!r}.")
    if name == "origin" and parsed.path:
        raise ParameterError(f"The origin of the page must have no path, such as https://survey.example, not {url!r}.")


def _origin_of(url: str) -> str:
    parsed = ServerUrl.parse(url)
    return f"{parsed.scheme}://{parsed.host}" + (f":{parsed.port}" if parsed.port is not None else "")


def _shared_hosts(urls: Mapping[str, str]) -> dict[str, list[str]]:
    """The parties that share a host, by its name."""
    parties: dict[str, list[str]] = {}
    for party, url in urls.items():
        if url:
            parties.setdefault(ServerUrl.parse(url).host, []).append(party)
    return {host: names for host, names in parties.items() if len(names) > 1}


def _texts(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads(
        files("shuffledp.pages").joinpath("texts", f"survey.{language}.json").read_bytes()
    )
    return texts


def _limits(policy: Policy) -> dict[str, Any]:
    """The limits that are not the defaults, which are those of the client too, by its names."""
    names = {
        "max_epsilon": "maxEpsilon",
        "max_delta": "maxDelta",
        "min_users": "minUsers",
        "max_messages": "maxMessages",
        "max_report_bytes": "maxReportBytes",
        "allow_augmented": "allowAugmented",
    }
    chosen, default = vars(policy), vars(Policy())
    return {names[name]: value for name, value in chosen.items() if value != default[name]}


def _needed(texts: Mapping[str, str], domain: Domain) -> dict[str, str]:
    """The texts without those of other kinds of answers."""
    if isinstance(domain, Strings):
        kind = "a string"
    else:
        kind = "a number" if isinstance(domain, Numbered | Interval | Bins) else "a choice"
    unneeded = [pattern for other, pattern in _ONLY_FOR.items() if other != kind]
    return {name: text for name, text in texts.items() if not any(pattern.match(name) for pattern in unneeded)}


def _json_block(value: Mapping[str, Any]) -> Any:
    """JSON for a ``<script>`` element: no character of it can end the element or begin a comment."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped above


def _subresource_integrity(content: bytes) -> str:
    return "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()
