"""A reader of tasks in another language, in Python: written from the pages alone, without the library.

docs/collection/task.md and vectors/README.md have the rules. It supports the four protocols of the vectors, and refuses
tasks of others. Every rule is an attribute of ``Reader``, so that a test can plant a fault in one of them.
"""

import base64
import decimal
import functools
import hashlib
import importlib.util
import json
import math
import re
import unicodedata
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "collection" / "task.md").read_text(encoding="utf-8")
SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM"
KEYS = {
    "format", "version", "name", "description", "population", "protocol", "guarantee", "minimum_users", "maximum_users",
    "opens", "closes", "messages_per_report", "message_size", "suite", "analyzer", "shuffler",
}  # fmt: skip
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
P = 2**255 - 19
LOW_ORDER = {
    0,
    1,
    P - 1,
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
}


def beside(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


client, guarantees = beside("foreign_client"), beside("foreign_guarantees")


class BadError(Exception):
    """A task is refused; the reason is one of the codes of vectors/README.md."""

    def __init__(self, reason, detail=""):
        super().__init__(reason, detail)
        self.reason = reason


def ranges_of(heading):
    """The list of code points below a heading of the page."""
    section = PAGE[PAGE.index(f"### {heading}\n") :]
    words = re.search(r"\n\n((?:    [0-9A-F -]+\n)+)", section)[1].split()
    return [(int(word.split("-")[0], 16), int(word.split("-")[-1], 16)) for word in words]


def pattern(ranges, times=""):
    return re.compile("[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]" + times)


def need(condition, detail, reason="malformed"):
    if not condition:
        raise BadError(reason, detail)


def written(value):
    """The one form of a document."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        escaped = (SHORT_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value)
        return '"' + "".join(escaped) + '"'
    return str(value) if type(value) is int else {True: "true", False: "false", None: "null"}[value]


def of_digits(number, places):
    """The decimal with so many places that reads back as the double, the nearest of them; or None.

    Below a power of two doubles are closer together: the nearest decimal may be that of another double, and the one
    above it not.
    """
    nearest = decimal.Decimal(f"{number:.{places}e}")
    step = decimal.Decimal((0, (1,), nearest.as_tuple().exponent))
    read_back = [each for each in (nearest, nearest - step, nearest + step) if float(each) == number]
    exact = decimal.Decimal(number)
    return f"{min(read_back, key=lambda each: abs(each - exact)):.{places}e}" if read_back else None


def shortest(text):
    """A double from its shortest decimal, or None: digits as few as possible, in the notation of the page."""
    if not isinstance(text, str) or not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]{2,3})?", text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    digits = next(found for n in range(17) if (found := of_digits(number, n)))
    mantissa, exponent = digits.split("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    plain, power = mantissa.replace(".", ""), int(exponent)
    if number and not -4 <= power < 16:
        expected = f"{sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    elif power < 0:
        expected = f"{sign}0.{'0' * (-power - 1)}{plain}"
    else:
        plain = plain.ljust(power + 1, "0")
        expected = f"{sign}{plain[: power + 1]}.{plain[power + 1 :] or '0'}"
    return number if expected == text else None


class Reader:
    """The rules, one by one."""

    deepest = 32
    refused = pattern(ranges_of("Characters that are refused"))
    normalized = pattern(ranges_of("Names that look the same"), "+")
    most_messages = 65536
    most_users = 10**9
    most_bits = 128

    def __init__(self, author):
        self.author = author

    def verdict(self, content):
        """None and the id of a good task, or the reason and None."""
        try:
            return None, self.read(content)
        except BadError as error:
            return error.reason, None

    def read(self, content):
        envelope = self.document(self.without_line_feed(content))
        need(isinstance(envelope, dict) and set(envelope) == {"task", "author", "signature"}, "envelope")
        signature = self.base64(envelope["signature"], 64)
        need(envelope["author"] == self.identifier("signing", self.author), "author", "unknown-author")
        signed = b"shuffledp task v1\n" + written(envelope["task"]).encode()
        try:
            Ed25519PublicKey.from_public_bytes(self.author).verify(signature, signed)
        except InvalidSignature:
            raise BadError("bad-signature") from None
        self.task(envelope["task"])
        return hashlib.sha256(signed).hexdigest()

    def without_line_feed(self, content):
        return content.removesuffix(b"\n")

    def document(self, content):
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise BadError("not-canonical") from None
        self.check_depth(text)

        def unique(pairs):
            if len(dict(pairs)) != len(pairs):
                raise ValueError
            return dict(pairs)

        def no_number(_):
            raise ValueError

        try:
            document = json.loads(text, object_pairs_hook=unique, parse_float=no_number, parse_constant=no_number)
            self.check_canonical(document, text)
        except ValueError:
            raise BadError("not-canonical") from None
        return document

    def check_canonical(self, document, text):
        for each in self.values(document):
            if isinstance(each, int) and abs(each) >= 2**53:
                raise ValueError
            if isinstance(each, dict) and not all(key.isascii() for key in each):
                raise ValueError
        if written(document) != text or any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError

    def values(self, document):
        yield document
        parts = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
        for part in parts:
            if isinstance(part, str) and any("\ud800" <= c <= "\udfff" for c in part):
                raise ValueError
            yield from self.values(part)

    def check_depth(self, text):
        """By brackets outside of strings, so that no recursion goes too deep."""
        around = 0
        for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]|[^\s\[\]{}:,"]+', text):
            if token[0] in "]}":
                around -= 1
                continue
            need(around <= self.deepest, "depth", "not-canonical")
            around += token[0] in "[{"

    def base64(self, text, size):
        need(isinstance(text, str) and re.fullmatch("[A-Za-z0-9_-]*", text), "base64")
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            raise BadError("malformed", "base64") from None
        need(base64.urlsafe_b64encode(raw).decode().rstrip("=") == text and len(raw) == size, "base64")
        return raw

    def identifier(self, kind, raw):
        return hashlib.sha256(f"shuffledp {kind} key\n".encode() + raw).hexdigest()[:16]

    def key(self, document, kind):
        need(isinstance(document, dict) and set(document) == {"kind", "id", "public"}, "key")
        raw = self.base64(document["public"], 32)
        need(document["kind"] == kind and document["id"] == self.identifier(kind, raw), "key")
        return raw

    def check_sealing_key(self, raw):
        need(int.from_bytes(raw, "little") % 2**255 % P not in LOW_ORDER, "low order")

    def task(self, task):
        need(isinstance(task, dict) and task.get("format") == "shuffledp-task", "format", "version")
        if not isinstance(task.get("version"), bool):
            need(task.get("version") == 1, "version", "version")
        need(set(task) == KEYS and task["version"] is not True, "keys")
        for key, least in (("name", 1), ("population", 1), ("description", 0)):
            self.check_string(task[key], least, 2000)
        claim = task["guarantee"]
        need(isinstance(claim, dict), "guarantee")
        need(set(claim) == {"epsilon", "delta", "honest_users", "local_epsilon"}, "guarantee")
        epsilon, delta = shortest(claim["epsilon"]), shortest(claim["delta"])
        need(epsilon is not None and 1e-12 <= epsilon <= 700, "epsilon")
        need(delta is not None and 1e-300 <= delta < 1, "delta")
        local = None if claim["local_epsilon"] is None else shortest(claim["local_epsilon"])
        need((local is None) == (claim["local_epsilon"] is None), "local epsilon")
        opens, closes = self.time(task["opens"]), self.time(task["closes"])
        need(opens < closes, "times")
        self.check_sealing_key(self.key(task["analyzer"], "sealing"))
        self.key(task["shuffler"], "signing")
        for key in ("minimum_users", "maximum_users", "message_size", "messages_per_report"):
            need(type(task[key]) is int, key)
        need(1 <= task["messages_per_report"] <= self.most_messages, "messages")
        name, p, raw = self.protocol(task["protocol"])
        terms = p.get("terms") or p["noise"]
        need(terms["users"] <= task["maximum_users"] <= self.most_users, "maximum_users")
        self.check_derived(task, name, p, raw, local)
        self.check_guarantee(task, name, p, raw, epsilon, delta)

    def check_string(self, text, least, most):
        need(isinstance(text, str) and least <= len(text) <= most, "length of a text")
        need(not self.refused.search(text), "character")

    def time(self, text):
        digits = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
        need(isinstance(text, str) and re.fullmatch(digits, text), "time")
        try:
            return datetime(*map(int, re.findall("[0-9]+", text)))
        except ValueError:
            raise BadError("malformed", "time") from None

    # parameters

    def protocol(self, document):
        need(isinstance(document, dict) and set(document) == {"version", "protocol", "parameters"}, "protocol")
        if type(document["version"]) is int:
            need(document["version"] == 1, "version", "version")
        need(document["version"] is not True, "version")
        name = document["protocol"]
        need(isinstance(name, str) and name in PARAMETERS, "no such protocol here")
        raw = document["parameters"]
        self.check_types(raw, PARAMETERS[name])
        for path in probabilities(PARAMETERS[name]):
            self.check_probability(functools.reduce(lambda part, key: part[key], path, raw), name)
        p = numbers(raw)
        self.check_ranges(name, p, raw)
        if "categories" in raw:
            self.check_categories(raw["categories"], p["domain_size"])
        return name, p, raw

    def check_types(self, value, kind):
        if isinstance(kind, dict):
            need(isinstance(value, dict) and set(value) == set(kind), "parameters")
            for key, part in kind.items():
                self.check_types(value[key], part)
        elif kind == "probability":
            self.check_types(value, {"bits": "integer", "numerator": "integer"})
        else:
            need(getattr(self, f"is_{kind}")(value), kind)

    def is_integer(self, value):
        if isinstance(value, str):
            return bool(re.fullmatch("0x[1-9a-f][0-9a-f]*", value)) and int(value, 16) >= 2**53
        return type(value) is int

    def is_number(self, value):
        number = shortest(value)
        return number is not None and (number == 0 or abs(number) >= 2.0**-1022)

    def is_flag(self, value):
        return type(value) is bool

    def is_text(self, value):
        return isinstance(value, str)

    def is_fraction(self, value):
        if not isinstance(value, str) or not re.fullmatch("-?[0-9]+/[0-9]+", value) or value.endswith("/0"):
            return False
        fraction = Fraction(value)
        if max(abs(fraction.numerator), fraction.denominator) > 2**128:
            return False
        return f"{fraction.numerator}/{fraction.denominator}" == value

    def is_names(self, value):
        return value is None or isinstance(value, list)

    def check_ranges(self, name, p, raw):
        terms = p.get("terms") or p["noise"]
        need(terms["users"] >= 1 and 0 < terms["honest_fraction"] <= 1, "users")
        need(self.honest(p, raw) >= 1, "honest")
        need(0 <= terms["epsilon"] <= 700, "terms")
        need(terms["delta"] == 0 or 1e-300 <= terms["delta"] < 1, "terms")
        need(p.get("domain_size", 1) >= 1, "domain size")
        if name == "histogram/balcer-cheu":
            need(terms["users"] >= 2, "terms")
        if name == "count/correlated-noise":
            need(p["encoding"] in ("signed", "unary") and p["flood_shape"] > 0, "noise")
            for shape, ratio in ((1, p["ratio"]), (p["flood_shape"], p["flood_ratio"])):
                need(ratio <= 1 - Fraction(1, 2**18), "too wide to draw")
                mean, variance = shape * ratio / (1 - ratio), shape * ratio / (1 - ratio) ** 2
                need(mean + 12 * math.sqrt(variance) <= 10**6, "too wide to compute with")
        if name == "sum/split-and-mix":
            need(self.honest(p, raw) >= 19 and p["levels"] >= 1 and p["messages"] >= 4, "split")
            need(p["modulus"].bit_count() == 1 and 2 <= p["modulus"] <= 2**62, "modulus")
            need(p["ratio"] <= 1 - Fraction(1, 2**18) and p["domain"]["lower"] < p["domain"]["upper"], "split")

    def check_probability(self, document, name):
        bits, numerator = client.read(document["bits"]), client.read(document["numerator"])
        need(0 <= bits <= self.most_bits and 0 < numerator <= 1 << bits, "probability")
        need(min(significant(numerator), significant((1 << bits) - numerator)) <= 53, "exact")
        need(numerator < 1 << bits or name == "histogram/k-rr", "probability")

    def honest(self, p, raw):
        return client.honest(p, raw)

    def check_categories(self, names, size):
        if names is None:
            return
        for each in names:
            self.check_string(each, 1, 200)
        need(len(names) == size and len({self.comparable(each) for each in names}) == size, "categories")

    def comparable(self, name):
        return self.normalized.sub(lambda run: unicodedata.normalize("NFC", run[0]), name)

    # what follows from the parameters

    def check_derived(self, task, name, p, raw, local):
        bounds, flags = client.format_of(name, p)
        size = max(1, -(-(sum((bound - 1).bit_length() for bound in bounds) + flags) // 8))
        most = client.most_of(name, p)
        need(most in (None, task["messages_per_report"]), "messages_per_report", "inconsistent")
        need(task["minimum_users"] == (p.get("terms") or p["noise"])["users"], "minimum_users", "inconsistent")
        need(task["message_size"] == size, "message_size", "inconsistent")
        need(task["suite"] == SUITE, "suite", "inconsistent")
        honest = 1 if name in guarantees.LOCAL else self.honest(p, raw)
        need(task["guarantee"]["honest_users"] == honest, "honest_users", "inconsistent")
        need(type(task["guarantee"]["honest_users"]) is int, "honest_users")
        need(self.close(local, guarantees.local_epsilon(name, p)), "local_epsilon", "inconsistent")

    def close(self, told, computed):
        if told is None or computed is None:
            return told is computed
        return abs(told - computed) <= 1e-9 * max(1, abs(told), abs(computed))

    def check_guarantee(self, task, name, p, raw, epsilon, delta):
        terms = p.get("terms") or p["noise"]
        honest, key = self.honest(p, raw), json.dumps(raw | {"categories": None}, sort_keys=True)
        if name in guarantees.LOCAL:
            need(guarantees.local_epsilon(name, p) <= terms["epsilon"], "terms", "bad-guarantee")
        else:
            need(delta_of(name, key, honest, terms["epsilon"]) <= terms["delta"], "terms", "bad-guarantee")
        found = delta_of(name, key, honest, epsilon)
        if client.most_of(name, p) is None:
            chance = chance_of(key, honest, task["messages_per_report"])
            found += (1 + math.exp(epsilon)) * task["maximum_users"] * chance
        need(found <= delta, "claim", "bad-guarantee")


def significant(number):
    """The bits of an integer without the zeros at its end."""
    return number.bit_length() - (number & -number).bit_length() + 1 if number else 0


def numbers(raw):
    """The parameters as numbers, without what is text."""
    part = "terms" if "terms" in raw else "noise"
    return client.read(raw | {"categories": None, part: raw[part] | {"calibration": ""}})


@functools.cache
def delta_of(name, key, honest, epsilon):
    return guarantees.delta(name, numbers(json.loads(key)), honest, epsilon)


@functools.cache
def chance_of(key, honest, cap):
    if cap > 65536:  # never reached, unless the rule about it is left out; it would take forever
        return 0.0
    p = numbers(json.loads(key))
    parts = [(2 / honest, float(p["ratio"]), 1), (float(p["flood_shape"]) / honest, float(p["flood_ratio"]), 2)]
    return guarantees.chance_of_more(cap - 1, parts)


def probabilities(kinds, path=()):
    for key, kind in kinds.items():
        if kind == "probability":
            yield (*path, key)
        elif isinstance(kind, dict):
            yield from probabilities(kind, (*path, key))


TERMS = {"users": "integer", "epsilon": "number", "delta": "number", "honest_fraction": "number", "calibration": "text"}
NAMED = {"domain_size": "integer", "categories": "names"}
PARAMETERS = {
    "histogram/balcer-cheu": {"noise": {**TERMS, "absence": "probability"}, **NAMED, "padded": "flag"},
    "histogram/k-rr": {"terms": TERMS, "blanket": "probability", **NAMED},
    "count/correlated-noise": {
        "terms": TERMS,
        "ratio": "probability",
        "flood_shape": "fraction",
        "flood_ratio": "probability",
        "encoding": "text",
    },
    "sum/split-and-mix": {
        "terms": TERMS,
        "levels": "integer",
        "ratio": "probability",
        "messages": "integer",
        "modulus": "integer",
        "domain": {"lower": "number", "upper": "number", "whole": "flag"},
    },
}
