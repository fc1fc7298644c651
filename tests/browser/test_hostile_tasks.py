"""Signed tasks with hostile parameters: the web client accepts none that Python refuses, and says so in bounded time.

Documents are drawn anew in every run: good ones with extreme numbers in one to three places. A failure prints one.
"""

import base64
import copy
import json
import random

from survey_rounds import resigned
from test_differential import AUGMENTED, AUTHOR, RECOMPUTED, task_of

from shuffledp.collection.device import authentic_task
from shuffledp.collection.wire.keys import to_base64
from shuffledp.errors import ParameterError

DOCUMENTS = 200
MAX_MILLISECONDS = 60_000  # seconds on an idle machine; a test must not depend on load
REASONS = {None, "malformed", "inconsistent", "bad-guarantee", "policy", "version", "unsupported"}
NUMBERS = ["0.0", "1.0", "-1.0", "1e-300", "1e-12", "0.5", "2.0", "700.0", "1e+300", "0.99", "1e-06", "nan", "1.00"]
INTEGERS = [0, 1, 2, 3, 10, 255, 256, 65_535, 65_536, 1 << 20, (1 << 31) - 1, 10**9, (1 << 53) - 1, "0x20000000000000"]
FRACTIONS = ["1/1", "2/1", "1/3", f"{10**38}/1", f"1/{10**38}", "2/4", "0/1", "-1/2"]
ALPHABETS = [
    "a",
    "ab",
    "a-z",
    "bytes",
    r"\bytes",
    "zyx",
    "a-zz",
    "",
    "-",
    r"\-",
    "a-",
    "lowercase",
    "\U00010000-\U00010fff",
]


def probability():
    bits = random.choice([0, 1, 2, 10, 20, 53, 64, 128])
    whole = 1 << bits
    numerator = random.choice([0, 1, whole // 2, whole - 1, whole, random.randrange(min(whole, 1 << 53))])
    return {"bits": bits, "numerator": numerator if numerator < 1 << 53 else hex(numerator)}


def altered(value, name=""):
    """The value with one number in it replaced."""
    if isinstance(value, dict):
        if value.keys() == {"bits", "numerator"}:
            return probability()
        key = random.choice(list(value))
        return value | {key: altered(value[key], key)}
    if isinstance(value, list):
        position = random.randrange(len(value))
        return [altered(part) if i == position else part for i, part in enumerate(value)]
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return random.choice([*INTEGERS, min(value + 1, INTEGERS[-2]), min(2 * value, INTEGERS[-2])])
    return random.choice(ALPHABETS if name == "alphabet" else FRACTIONS if "/" in value else NUMBERS)


def other_wire(task):
    """One field of version 2 replaced by a value that is wrong, or that needs what browsers do not carry out."""
    keys = task["shufflers"][0]
    replaced = {
        "shufflers": [
            [],
            [keys] * 2,
            [keys] * 4,
            [keys | {"sealing": task["analyzer"]}],
            [keys | {"more": 1}],
            None,
            keys,
        ],
        "outer_suite": ["MLKEM768-X25519, HKDF-SHA256, AES-128-GCM", "", None, 1],
        "carriers": [
            {"messages_per_report": 70_000, "minimum": 1},
            {"messages_per_report": 65_536, "minimum": 3},
            {"messages_per_report": random.choice([1, 2, 100, 1000]), "minimum": random.choice([0, 1, 70, 71, 10**9])},
            None,
            {},
            1,
        ],
        "traps": [1, -1, True, 1025, "0"],
        "series": [{"id": "0" * 64, "round": 1}, {"id": "0" * 64, "round": 400}, {"id": "A" * 64, "round": 0}, False],
        "version": [1, 3, True, "2"],
    }
    key = random.choice(list(replaced))
    return task | {key: random.choice(replaced[key])}


def hostile(document):
    task = copy.deepcopy(document)
    if task["version"] == 2 and random.random() < 0.3:
        return other_wire(task)
    for _ in range(random.choice([1, 1, 2, 3])):
        part = random.choice(["protocol", "protocol", "protocol", "guarantee"])
        if part == "protocol":
            task["protocol"]["parameters"] = altered(task["protocol"]["parameters"])
        else:
            task["guarantee"] = altered(task["guarantee"])
    parameters = task["protocol"]["parameters"]
    terms = parameters.get("terms") or parameters.get("noise")
    if isinstance(terms, dict) and random.random() < 0.8:  # consistent, so that the guarantee is looked at
        task |= {"minimum_users": terms["users"], "maximum_users": 10**9}
        if "honest_users" in task["guarantee"] and task["guarantee"]["honest_users"] != 1:
            task["guarantee"]["honest_users"] = terms["users"]
        if task.get("carriers") and isinstance(parameters.get("honest_carriers"), int):
            task["carriers"] = task["carriers"] | {"minimum": parameters["honest_carriers"]}
        if random.random() < 0.5:
            terms["delta"] = task["guarantee"]["delta"] = "0.99"
    return task


def reason_of(content):
    try:
        authentic_task(content, AUTHOR.public)
    except ParameterError as error:
        return error.values["reason"]
    return None


def wrongly_accepted(contents, verdicts):
    """The documents that the client accepts and Python refuses."""
    accepted = [content for content, verdict in zip(contents, verdicts, strict=True) if verdict["reason"] is None]
    return [content for content in accepted if reason_of(content) is not None]


def test_nothing_is_accepted_that_python_refuses(web, tmp_path):
    kinds = [(question, name, {}) for question, names in RECOMPUTED.items() for name in names]
    later = [(question, name, {}) for question, names in AUGMENTED.items() for name in names]
    later += [(question, "correlated-noise", {"carriers": 0.25}) for question in ("count", "histogram")]
    good = [
        task_of(
            *kind,
            users=300,
            epsilon=1.0,
            delta=0.0 if "shuffler-geometric" in kind else 1e-6,
            version=2 if (*kind, options) in later else random.choice([1, 2]),
            **options,
        ).to_document()
        for *kind, options in (*kinds, *later, *later)
    ]
    documents = [hostile(random.choice(good)) for _ in range(DOCUMENTS)] + good
    contents = [resigned(document, AUTHOR) for document in documents]
    cases = [
        {"name": str(i), "content": base64.b64encode(content).decode(), "pins": [], "epsilons": [0.01]}
        for i, content in enumerate(contents)
    ]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"author": to_base64(AUTHOR.public.raw), "cases": cases}))
    lines = web.run_node("test/differential.ts", path, capture_output=True).stdout.splitlines()
    verdicts = [json.loads(line) for line in lines]
    assert wrongly_accepted(contents, verdicts) == []
    for content, verdict in zip(contents, verdicts, strict=True):
        assert verdict["reason"] in REASONS, (verdict, content)
        assert verdict["milliseconds"] < MAX_MILLISECONDS, content
        assert all(0 <= delta <= 1 + 1e-9 for delta in verdict.get("deltas", [])), (verdict, content)
    accepted = sum(verdict["reason"] is None for verdict in verdicts)
    print(f"{accepted} of {len(contents)} accepted")
    assert len(good) <= accepted < len(contents)
    credulous = [{"reason": None}] * len(contents)  # the fault: the claim is believed
    assert len(wrongly_accepted(contents, credulous)) > DOCUMENTS // 4
