"""Test vectors of tasks at the limits of the rules, where implementations in two languages could differ.

The verdict of each case is written here by hand, from vectors/README.md and docs/collection/task.md. It is never taken
from the library: the tests compare the two.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from shuffledp.collection.wire.keys import to_base64
from vector_files import Document
from vector_files.examples import task_of
from vector_files.keys import AUTHOR

GOOD = "good"
"""The verdict of a task that must be accepted; any other string is the reason for refusing it."""
TOKENS, CAPPED, LOCAL = "histogram/balcer-cheu", "count/correlated-noise", "histogram/k-rr"
_CANONICAL, _MALFORMED, _INCONSISTENT, _GUARANTEE = "not-canonical", "malformed", "inconsistent", "bad-guarantee"
_PARAMETERS = ("protocol", "parameters")
_CATEGORIES = (*_PARAMETERS, "categories")
_ABSENCE = (*_PARAMETERS, "noise", "absence")
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_FIELD = 2**255 - 19
_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)

Case = tuple[str, str, bytes]
"""A name for people, the verdict, and the bytes."""
Path = tuple[str, ...]


def edge_cases() -> list[Document]:
    """All cases as written to the file; accepted tasks have their id."""
    cases = [
        *_files(),
        *_json(),
        *_nesting(),
        *_texts(),
        *_categories(),
        *_times(),
        *_users(),
        *_probabilities(),
        *_terms(),
        *_claims(),
        *_parameters(),
        *_messages(),
        *_keys(),
    ]
    if len({name for name, _, _ in cases}) < len(cases):
        raise ValueError("Two cases have one name.")
    return [_document(*case) for case in cases]


def canonical_documents() -> list[Document]:
    """Documents that are not tasks, and whether their bytes are canonical."""
    cases: dict[str, tuple[str, bool]] = {
        "a number": ("1", True),
        "an empty object": ("{}", True),
        "all kinds of values": ('{"a":[null,true,false,-1,"é🚗"]}', True),
        "the largest number": ("9007199254740991", True),
        "a larger number": ("9007199254740992", False),
        "the least number": ("-9007199254740991", True),
        "a lesser number": ("-9007199254740992", False),
        "keys by code points": ('{"B":1,"a":2,"aa":3,"b":4,"~":5}', True),
        "keys by letters": ('{"a":2,"B":1}', False),
        "an empty key": ('{"":1}', True),
        "the key __proto__": ('{"__proto__":1}', True),
        "the key __proto__ twice": ('{"__proto__":1,"__proto__":1}', False),
        "minus zero": ("-0", False),
        "zero with an exponent": ("0e0", False),
        "32 lists around a number": ("[" * 32 + "1" + "]" * 32, True),
        "33 lists around a number": ("[" * 33 + "1" + "]" * 33, False),
        "33 lists around nothing": ("[" * 33 + "]" * 33, True),
        "34 lists around nothing": ("[" * 34 + "]" * 34, False),
        "33 objects around nothing": ('{"":' * 32 + "{}" + "}" * 32, True),
        "33 objects around a number": ('{"":' * 33 + "1" + "}" * 33, False),
        "100 lists beside each other": ("[" + ",".join(["[]"] * 100) + "]", True),
        "brackets in a string": ('"' + "[" * 100 + '"', True),
    }
    return [
        {"name": name, "verdict": "good" if good else "bad", "content": content}
        for name, (content, good) in cases.items()
    ]


def _document(name: str, verdict: str, content: bytes) -> Document:
    document: Document = {"name": name, "verdict": "bad", "reason": verdict, "content": content.decode()}
    if verdict == GOOD:
        signed = content[content.index(b'"task":') + len(b'"task":') :].removesuffix(b"\n")[:-1]
        identifier = hashlib.sha256(b"shuffledp task v1\n" + signed).hexdigest()
        document |= {"verdict": "good", "reason": None, "id": identifier}
    return document


def _files() -> Iterator[Case]:
    task = _signed(_text(TOKENS))
    yield "one final line feed", GOOD, task + b"\n"
    yield "two final line feeds", _CANONICAL, task + b"\n\n"
    yield "a final carriage return and line feed", _CANONICAL, task + b"\r\n"
    yield "a final carriage return", _CANONICAL, task + b"\r"
    yield "a space at the end", _CANONICAL, task + b" "
    yield "a space before the line feed", _CANONICAL, task + b" \n"
    yield "a line feed before the task", _CANONICAL, b"\n" + task
    yield "a byte order mark", _CANONICAL, b"\xef\xbb\xbf" + task
    yield "a NUL at the end", _CANONICAL, task + b"\0"
    yield "a task after the task", _CANONICAL, task + task


def _json() -> Iterator[Case]:
    """Invalid JSON that some parsers accept, repair or drop."""
    task = _text(TOKENS)
    yield "__proto__ in the envelope", _MALFORMED, _signed(task).replace(b'{"author"', b'{"__proto__":{},"author"', 1)
    yield "__proto__ in the task", _MALFORMED, _signed('{"__proto__":null,' + task[1:])
    yield "__proto__ in a probability", _MALFORMED, _replaced('{"bits":64,', '{"__proto__":1,"bits":64,')
    yield "minus zero", _CANONICAL, _replaced('"message_size":1', '"message_size":-0')
    yield "an integer with an exponent", _CANONICAL, _replaced('"minimum_users":1000', '"minimum_users":1e3')
    yield "an integer with a fraction", _CANONICAL, _replaced('"minimum_users":1000', '"minimum_users":1000.0')
    yield "an integer with a leading zero", _CANONICAL, _replaced('"minimum_users":1000', '"minimum_users":01000')
    yield "an integer with a plus", _CANONICAL, _replaced('"minimum_users":1000', '"minimum_users":+1000')
    yield "2^53 as a number", _CANONICAL, _replaced('"maximum_users":5000', '"maximum_users":9007199254740992')
    yield "NaN", _CANONICAL, _replaced('"minimum_users":1000', '"minimum_users":NaN')
    yield "a key twice in the task", _CANONICAL, _replaced('"name":', '"name":"Getting to work","name":')
    yield "a key that is not ASCII", _CANONICAL, _replaced('"opens":', '"op\u00e9ns":1,"opens":')
    yield "a lone surrogate", _CANONICAL, _replaced('"Getting to work"', '"Getting \\ud800 work"')
    yield "a pair of surrogates", _CANONICAL, _replaced("\U0001f697", "\\ud83d\\ude97")
    for name, text, verdict in (
        ("the short escapes", '"\\b\\f\\n\\r\\t\\"\\\\"', GOOD),
        ("the other control characters", '"\\u0000\\u001f"', GOOD),
        ("DEL, U+2028 and a slash without escapes", '"\x7f\u2028/"', GOOD),
        ("an escaped slash", '"\\/"', _CANONICAL),
        ("an escaped DEL", '"\\u007f"', _CANONICAL),
        ("an escaped letter", '"\\u0061"', _CANONICAL),
        ("an escape in capitals", '"\\u001F"', _CANONICAL),
        ("a long escape for a short one", '"\\u000a"', _CANONICAL),
        ("a tab without an escape", '"\t"', _CANONICAL),
    ):
        yield f"{name} in calibration", verdict, _replaced('"given"', text)


def _nesting() -> Iterator[Case]:
    """No value has more than 32 containers around it; the value of name has two, the envelope and the task."""
    for depth, inner, verdict in (
        (30, "1", _MALFORMED),
        (31, "1", _CANONICAL),
        (32, "1", _CANONICAL),
        (30, "", _MALFORMED),
        (31, "", _MALFORMED),
        (32, "", _CANONICAL),
        (5000, "", _CANONICAL),
    ):
        text = "[" * depth + inner + "]" * depth
        name = f"the name is {depth:,} lists around {inner or 'nothing'}"
        yield name, verdict, _replaced('"Getting to work"', text)
    for depth, inner, verdict in ((31, "{}", _MALFORMED), (31, '{"a":1}', _CANONICAL)):
        text = '{"a":' * (depth - 1) + inner + "}" * (depth - 1)
        name = f"the name is {depth} objects around {'a number' if '1' in inner else 'nothing'}"
        yield name, verdict, _replaced('"Getting to work"', text)


_REFUSED = (
    "0000-001F 007F-00A0 00AD-00AD 0600-0605 061C-061C 06DD-06DD 070F-070F 0890-0891 08E2-08E2 1680-1680 180E-180E "
    "2000-200F 2028-202F 205F-2064 2066-206F 3000-3000 E000-F8FF FEFF-FEFF FFF9-FFFB 110BD-110BD 110CD-110CD "
    "13430-1343F 1BCA0-1BCA3 1D173-1D17A E0001-E0001 E0020-E007F F0000-FFFFD 100000-10FFFD"
)
"""Of docs/collection/task.md; without the surrogates, which no UTF-8 holds."""


def _texts() -> Iterator[Case]:
    ranges = [tuple(int(end, 16) for end in each.split("-")) for each in _REFUSED.split()]
    for point in sorted({end for each in ranges for end in each}):
        yield f"a name with U+{point:04X}", _MALFORMED, _edited(TOKENS, ("name",), f"a{chr(point)}b")
    inside = {point for first, last in ranges for point in (first, last)}
    beside = sorted({each for first, last in ranges for each in (first - 1, last + 1)} - inside - {-1, 0xDFFF})
    beside = [point for point in beside if point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF]
    yield (
        "a name with the neighbours of all that is refused",
        GOOD,
        _edited(TOKENS, ("name",), "".join(map(chr, beside))),
    )
    for name, path, value, verdict in (
        ("a name of one letter", "name", "x", GOOD),
        ("a name of a space", "name", " ", GOOD),
        ("a name of 2,000 letters", "name", "x" * 2000, GOOD),
        ("a name of 2,001 letters", "name", "x" * 2001, _MALFORMED),
        ("a name of 2,000 code points beyond U+FFFF", "name", "\U0001f600" * 2000, GOOD),
        ("a name of 2,001 code points beyond U+FFFF", "name", "\U0001f600" * 2001, _MALFORMED),
        ("an empty name", "name", "", _MALFORMED),
        ("an empty population", "population", "", _MALFORMED),
        ("an empty description", "description", "", GOOD),
        ("a description of 2,001 letters", "description", "x" * 2001, _MALFORMED),
        ("a population of 2,001 letters", "population", "x" * 2001, _MALFORMED),
        ("a description with a tab", "description", "a\tb", _MALFORMED),
        ("a description with DEL", "description", "a\x7fb", _MALFORMED),
        ("a population with U+200B", "population", "a\u200bb", _MALFORMED),
        ("a name with U+202E, right to left", "name", "a\u202eb", _MALFORMED),
        ("a name with U+200B, of no width", "name", "a\u200bb", _MALFORMED),
        ("a name with U+200D, which joins emoji", "name", "\U0001f469\u200d\U0001f52c", _MALFORMED),
        ("a name with U+FE0F, a variation selector", "name", "\u2708\ufe0f", GOOD),
        ("a name with U+0300, a combining mark", "name", "a\u0300b", GOOD),
        ("a name with U+0378, which is not assigned", "name", "a\u0378b", GOOD),
        ("a name with U+1FAE8, of Unicode 15", "name", "a\U0001fae8b", GOOD),
        ("a name with U+FFFE, no character", "name", "a\ufffeb", GOOD),
        ("a name with U+00A0, a space that does not break", "name", "a\u00a0b\u00a0", _MALFORMED),
        ("a name that is a number", "name", 1, _MALFORMED),
        ("a name that is null", "name", None, _MALFORMED),
    ):
        yield name, verdict, _edited(TOKENS, (path,), value)


def _categories() -> Iterator[Case]:
    for name, value, verdict in (
        ("no names of categories", None, GOOD),
        ("a category of 200 letters", ["a" * 200, "b", "c"], GOOD),
        ("a category of 201 letters", ["a" * 201, "b", "c"], _MALFORMED),
        ("a category of 200 code points beyond U+FFFF", ["\U0001f600" * 200, "b", "c"], GOOD),
        ("a category of 3,000 letters", ["a" * 3000, "b", "c"], _MALFORMED),
        ("an empty category", ["", "b", "c"], _MALFORMED),
        ("a category that is a number", [1, "a", "c"], _MALFORMED),
        ("two categories of three", ["a", "b"], _MALFORMED),
        ("a category with U+202E", ["a\u202e", "b", "c"], _MALFORMED),
        ("a category with U+200B", ["a\u200b", "a", "c"], _MALFORMED),
        ("a category with U+0085", ["a\u0085", "b", "c"], _MALFORMED),
        ("a category with U+0378 and one with U+1FAE8", ["a\u0378", "a\U0001fae8", "a"], GOOD),
        ("the same category twice", ["a", "a", "c"], _MALFORMED),
        ("categories that NFC makes equal", ["\u00e9", "e\u0301", "c"], _MALFORMED),
        ("marks in another order", ["a\u0323\u0307", "a\u0307\u0323", "c"], _MALFORMED),
        ("the Angstrom sign and a letter", ["\u212b", "\u00c5", "c"], _MALFORMED),
        ("a syllable of Hangul and its letters", ["\ud55c", "\u1112\u1161\u11ab", "c"], _MALFORMED),
        ("an ideograph and its compatibility form", ["\uf900", "\u8c48", "c"], _MALFORMED),
        ("equal in NFC, but outside of the ranges", ["\u09cb", "\u09c7\u09be", "c"], GOOD),
        ("a mark after a letter outside of the ranges", ["\u0995\u0301", "\u0995", "c"], GOOD),
        ("equal in NFKC alone", ["\ufb01", "fi", "c"], GOOD),
        ("capitals and small letters", ["Bus", "bus", "BUS"], GOOD),
    ):
        yield name, verdict, _edited(TOKENS, _CATEGORIES, value)


def _times() -> Iterator[Case]:
    for name, key, value, verdict in (
        ("30 February", "closes", "2026-02-30T00:00:00Z", _MALFORMED),
        ("29 February of a leap year", "closes", "2028-02-29T00:00:00Z", GOOD),
        ("29 February of another year", "closes", "2027-02-29T00:00:00Z", _MALFORMED),
        ("a leap second", "closes", "2026-06-30T23:59:60Z", _MALFORMED),
        ("the hour 24", "closes", "2026-01-31T24:00:00Z", _MALFORMED),
        ("a month of one digit", "opens", "2026-1-31T06:00:00Z", _MALFORMED),
        ("a fraction of a second", "opens", "2026-01-31T06:00:00.0Z", _MALFORMED),
        ("another time zone", "opens", "2026-01-31T06:00:00+00:00", _MALFORMED),
        ("a small t", "opens", "2026-01-31t06:00:00Z", _MALFORMED),
        ("digits that are not ASCII", "opens", "\u0662\u0660\u0662\u0666-01-31T06:00:00Z", _MALFORMED),
        ("a time as a number", "opens", 1769839200, _MALFORMED),
        ("the year 1000", "opens", "1000-01-01T00:00:00Z", GOOD),
        ("the year 0999", "opens", "0999-12-31T23:59:59Z", _MALFORMED),
        ("the year 0099", "opens", "0099-01-01T00:00:00Z", _MALFORMED),
        ("the year 9999", "closes", "9999-12-31T23:59:59Z", GOOD),
        ("the year 10000", "closes", "10000-01-01T00:00:00Z", _MALFORMED),
        ("a round that closes as it opens", "opens", "2026-01-31T18:00:00Z", _MALFORMED),
        ("a round of one second", "opens", "2026-01-31T17:59:59Z", GOOD),
    ):
        yield name, verdict, _edited(TOKENS, (key,), value)


def _users() -> Iterator[Case]:
    for name, task, value, verdict in (
        ("10^9 users at most", TOKENS, 10**9, GOOD),
        ("10^9 + 1 users at most", TOKENS, 10**9 + 1, _MALFORMED),
        ("2^53 - 1 users at most", TOKENS, 2**53 - 1, _MALFORMED),
        ("10^9 users at most, with a cap", CAPPED, 10**9, GOOD),
        ("a maximum that is the minimum", TOKENS, 1000, GOOD),
        ("a maximum in hexadecimal", TOKENS, "0x1388", _MALFORMED),
        ("a maximum in decimal, as a string", TOKENS, "5000", _MALFORMED),
        ("a negative maximum", TOKENS, -5000, _MALFORMED),
        ("a maximum that is true", LOCAL, True, _MALFORMED),
    ):
        yield name, verdict, _edited(task, ("maximum_users",), value)


def _probabilities() -> Iterator[Case]:
    exact = 0xD6BD091E8D90E00  # over 2^64, and with 53 significant bits
    for name, bits, numerator, verdict in (
        ("1/16 over 2^8", 8, 16, GOOD),
        ("a probability that is not in lowest terms", 9, 26, GOOD),
        ("a small numerator in hexadecimal", 8, "0x10", _MALFORMED),
        ("a numerator in decimal, as a string", 8, "16", _MALFORMED),
        ("a large numerator in decimal, as a string", 64, "967068262369136128", _MALFORMED),
        ("a numerator in capitals", 64, "0xD6BD091E8D90E00", _MALFORMED),
        ("a numerator with a leading zero", 64, "0x0d6bd091e8d90e00", _MALFORMED),
        ("a numerator without 0x", 64, "d6bd091e8d90e00", _MALFORMED),
        ("the probability 0", 1, 0, _MALFORMED),
        ("the probability 1", 0, 1, _MALFORMED),
        ("a probability above 1", 8, 257, _MALFORMED),
        ("a negative numerator", 64, -5, _MALFORMED),
        ("negative bits", -1, 0, _MALFORMED),
        ("bits that are true", True, 1, _MALFORMED),
        ("128 bits", 128, hex(exact << 64), GOOD),
        ("129 bits", 129, hex(exact << 65), _MALFORMED),
        ("65,536 bits", 65536, hex(exact << 65472), _MALFORMED),
        ("1 over 2^128", 128, 1, _GUARANTEE),
        ("more digits than a double has", 64, hex(exact + 1), _MALFORMED),
    ):
        yield f"absence: {name}", verdict, _edited(TOKENS, _ABSENCE, {"bits": bits, "numerator": numerator})
    for name, numerator, verdict in (
        ("more digits than a double has, but not in its complement", 2**64 - 3, GOOD),
        ("more digits than a double has, also in its complement", 2**63 - 2**60 - 1, _MALFORMED),
        ("1", 2**64, GOOD),
    ):
        blanket = {"bits": 64, "numerator": hex(numerator)}
        changes = {(*_PARAMETERS, "blanket"): blanket, ("guarantee", "local_epsilon"): "0.0"}
        yield f"blanket: {name}", verdict, _signed(_dump(_changed(LOCAL, changes)))


def _terms() -> Iterator[Case]:
    """The parameters meet the terms and the claim; honest users are computed from the decimal as written."""
    for name, task, fraction, honest, verdict in (
        ("0.001 of 1,000 users, with too little noise", TOKENS, "0.001", 1, _GUARANTEE),
        ("0.7 of 1,000 users, with too little noise", TOKENS, "0.7", 700, _GUARANTEE),
        ("0.0001 of 1,000 users are none", TOKENS, "0.0001", 0, _MALFORMED),
        ("0.0001 of 1,000 users are none, with a cap", CAPPED, "0.0001", 0, _MALFORMED),
        ("0.57 of 1,000 users are 570", CAPPED, "0.57", 570, GOOD),
        ("0.58 of 2 users is one", LOCAL, "0.58", 1, GOOD),
        ("0.4 of 2 users are none", LOCAL, "0.4", 1, _MALFORMED),
        ("a fraction above 1", TOKENS, "1.5", 1500, _MALFORMED),
        ("a fraction of 0", TOKENS, "0.0", 0, _MALFORMED),
        ("a fraction without its point", TOKENS, "1", 1000, _MALFORMED),
        ("a fraction as a number", TOKENS, 1, 1000, _MALFORMED),
    ):
        terms = _terms_of(task)
        changes = {(*terms, "honest_fraction"): fraction, ("guarantee", "honest_users"): honest}
        yield f"honest users: {name}", verdict, _signed(_dump(_changed(task, changes)))
    for honest, verdict in ((910, GOOD), (909, _INCONSISTENT)):  # 0.7 * 1300 is a little less in doubles
        changes = {
            (*_terms_of(CAPPED), "users"): 1300,
            ("minimum_users",): 1300,
            (*_terms_of(CAPPED), "honest_fraction"): "0.7",
            ("guarantee", "honest_users"): honest,
        }
        name = "are 910" if verdict == GOOD else "are not 909"
        yield f"honest users: 0.7 of 1,300 users {name}", verdict, _signed(_dump(_changed(CAPPED, changes)))
    for name, task, key, value, verdict in (
        ("epsilon 0.0, which the noise does not reach", TOKENS, "epsilon", "0.0", _GUARANTEE),
        ("epsilon -0.0, which the noise does not reach", TOKENS, "epsilon", "-0.0", _GUARANTEE),
        ("epsilon 0.5, which the noise does not reach", TOKENS, "epsilon", "0.5", _GUARANTEE),
        ("epsilon 0.5, which a local protocol does not reach", LOCAL, "epsilon", "0.5", _GUARANTEE),
        ("epsilon 0.5, which capped noise does not reach", CAPPED, "epsilon", "0.5", _GUARANTEE),
        ("epsilon 2.0, a weaker one than is claimed", TOKENS, "epsilon", "2.0", GOOD),
        ("epsilon 700.0", TOKENS, "epsilon", "700.0", GOOD),
        ("epsilon 701.0", TOKENS, "epsilon", "701.0", _MALFORMED),
        ("epsilon 1e-310, which is not normal", TOKENS, "epsilon", "1e-310", _MALFORMED),
        ("epsilon 1e400", TOKENS, "epsilon", "1e400", _MALFORMED),
        ("epsilon inf", TOKENS, "epsilon", "inf", _MALFORMED),
        ("epsilon -1.0", TOKENS, "epsilon", "-1.0", _MALFORMED),
        ("delta 0.0, which the noise does not reach", TOKENS, "delta", "0.0", _GUARANTEE),
        ("delta 1e-301", TOKENS, "delta", "1e-301", _MALFORMED),
        ("delta 1e-12, which the noise does not reach", TOKENS, "delta", "1e-12", _GUARANTEE),
        ("delta 0.5, a weaker one than is claimed", TOKENS, "delta", "0.5", GOOD),
        ("delta 1.0", TOKENS, "delta", "1.0", _MALFORMED),
        ("an empty calibration", TOKENS, "calibration", "", GOOD),
        ("any calibration", TOKENS, "calibration", "hand-made", GOOD),
        ("a calibration that is a number", TOKENS, "calibration", 3, _MALFORMED),
    ):
        yield f"terms: {name}", verdict, _edited(task, (*_terms_of(task), key), value)


def _claims() -> Iterator[Case]:
    """Epsilon from 1e-12 to 700, delta from 1e-300 to below 1, both as the shortest decimal."""
    for name, task, epsilon, delta, verdict in (
        ("epsilon 0.0", LOCAL, "0.0", "1e-06", _MALFORMED),
        ("epsilon 1e-12", TOKENS, "1e-12", "0.5", GOOD),
        ("epsilon 1e-13", TOKENS, "1e-13", "0.5", _MALFORMED),
        ("epsilon -1.0", TOKENS, "-1.0", "1e-06", _MALFORMED),
        ("epsilon 50.0", TOKENS, "50.0", "1e-06", GOOD),
        ("epsilon 700.0", TOKENS, "700.0", "1e-06", GOOD),
        ("epsilon 701.0", TOKENS, "701.0", "1e-06", _MALFORMED),
        ("epsilon 1000.0", TOKENS, "1000.0", "1e-06", _MALFORMED),
        ("epsilon nan", TOKENS, "nan", "1e-06", _MALFORMED),
        ("epsilon inf", TOKENS, "inf", "1e-06", _MALFORMED),
        ("epsilon as JavaScript writes it", TOKENS, "1", "1e-06", _MALFORMED),
        ("epsilon with a plus", TOKENS, "+1.0", "1e-06", _MALFORMED),
        ("epsilon with a space", TOKENS, " 1.0", "1e-06", _MALFORMED),
        ("epsilon as a number", TOKENS, 1, "1e-06", _MALFORMED),
        ("delta 0.0 of a local protocol", LOCAL, "1.0", "0.0", _MALFORMED),
        ("delta 1e-300 of a local protocol", LOCAL, "1.0", "1e-300", GOOD),
        ("delta 1e-301 of a local protocol", LOCAL, "1.0", "1e-301", _MALFORMED),
        ("delta 0.999", TOKENS, "1.0", "0.999", GOOD),
        ("delta 1.0", TOKENS, "1.0", "1.0", _MALFORMED),
        ("delta 0.0001", TOKENS, "1.0", "0.0001", GOOD),
        ("delta 1e-4, which is written 0.0001", TOKENS, "1.0", "1e-4", _MALFORMED),
        ("delta 1e-04, which is written 0.0001", TOKENS, "1.0", "1e-04", _MALFORMED),
        ("delta 0.00001, which is written 1e-05", TOKENS, "1.0", "0.00001", _MALFORMED),
        ("delta 1e-05", TOKENS, "1.0", "1e-05", GOOD),
        ("delta 1e-5, as JavaScript writes it", TOKENS, "1.0", "1e-5", _MALFORMED),
        ("delta 1E-05", TOKENS, "1.0", "1E-05", _MALFORMED),
        ("delta 1.5e-05", TOKENS, "1.0", "1.5e-05", GOOD),
        ("delta 1.50e-05", TOKENS, "1.0", "1.50e-05", _MALFORMED),
    ):
        changes: dict[Path, Any] = {("guarantee", "epsilon"): epsilon, ("guarantee", "delta"): delta}
        yield f"claim: {name}", verdict, _signed(_dump(_changed(task, changes)))
    local = float(json.loads(_text(LOCAL))["guarantee"]["local_epsilon"])
    for name, value, verdict in (
        ("1e-10 too large", repr(local + 1e-10), GOOD),
        ("1e-10 too small", repr(local - 1e-10), GOOD),
        ("1e-8 too large", repr(local + 1e-8), _INCONSISTENT),
        ("1e-8 too small", repr(local - 1e-8), _INCONSISTENT),
        ("null", None, _INCONSISTENT),
        ("as a number", 1, _MALFORMED),
        ("Infinity", "Infinity", _MALFORMED),
    ):
        yield f"local epsilon: {name}", verdict, _edited(LOCAL, ("guarantee", "local_epsilon"), value)
    yield (
        "local epsilon: a large number instead of null",
        _INCONSISTENT,
        _edited(TOKENS, ("guarantee", "local_epsilon"), "1e+300"),
    )


def _parameters() -> Iterator[Case]:
    narrow, wide = {"bits": 18, "numerator": 2**18 - 1}, {"bits": 19, "numerator": 2**19 - 1}
    for name, task, path, value, verdict in (
        ("padded is 0", TOKENS, (*_PARAMETERS, "padded"), 0, _MALFORMED),
        ("version 2 of the protocol", TOKENS, ("protocol", "version"), 2, "version"),
        ("version true of the protocol", TOKENS, ("protocol", "version"), True, _MALFORMED),
        ("a fraction not in lowest terms", CAPPED, (*_PARAMETERS, "flood_shape"), "34/2", _MALFORMED),
        ("an integer for a fraction", CAPPED, (*_PARAMETERS, "flood_shape"), "17", _MALFORMED),
        ("a fraction over 1", CAPPED, (*_PARAMETERS, "flood_shape"), "17/1", GOOD),
        ("a fraction with a leading zero", CAPPED, (*_PARAMETERS, "flood_shape"), "017/1", _MALFORMED),
        ("a fraction of large integers", CAPPED, (*_PARAMETERS, "flood_shape"), f"{17 * 2**100 + 1}/{2**100}", GOOD),
        (
            "a fraction of integers beyond 2^128",
            CAPPED,
            (*_PARAMETERS, "flood_shape"),
            f"{17 * 2**130 + 1}/{2**130}",
            _MALFORMED,
        ),
        ("a fraction of 0", CAPPED, (*_PARAMETERS, "flood_shape"), "0/1", _MALFORMED),
        ("a fraction over 0", CAPPED, (*_PARAMETERS, "flood_shape"), "17/0", _MALFORMED),
        ("a negative fraction", CAPPED, (*_PARAMETERS, "flood_shape"), "-17/1", _MALFORMED),
        ("noise that is too wide to compute with", CAPPED, (*_PARAMETERS, "ratio"), narrow, _MALFORMED),
        ("noise that is too wide to draw", CAPPED, (*_PARAMETERS, "flood_ratio"), wide, _MALFORMED),
        ("another encoding", CAPPED, (*_PARAMETERS, "encoding"), "other", _MALFORMED),
        ("a domain of 3 in hexadecimal", TOKENS, (*_PARAMETERS, "domain_size"), "0x3", _MALFORMED),
        ("a protocol of another question", TOKENS, ("protocol", "protocol"), "count/balcer-cheu", _MALFORMED),
        ("a protocol without its question", TOKENS, ("protocol", "protocol"), "balcer-cheu", _MALFORMED),
    ):
        yield name, verdict, _edited(task, path, value)
    size = (*_PARAMETERS, "domain_size")
    yield (
        "a domain of true categories",
        _MALFORMED,
        _signed(_dump(_changed(TOKENS, {size: True, _CATEGORIES: ["a"], ("messages_per_report",): 2}))),
    )
    yield (
        "300 categories in messages of one byte",
        _INCONSISTENT,
        _signed(_dump(_changed(TOKENS, {size: 300, _CATEGORIES: None, ("messages_per_report",): 301}))),
    )


def _messages() -> Iterator[Case]:
    for name, task, value, verdict in (
        ("one more than the protocol's most", TOKENS, 5, _INCONSISTENT),
        ("0", CAPPED, 0, _MALFORMED),
        ("-1", CAPPED, -1, _MALFORMED),
        ("65,536 for a cap", CAPPED, 65536, GOOD),
        ("65,537 for a cap", CAPPED, 65537, _MALFORMED),
        ("10^6 for a cap", CAPPED, 10**6, _MALFORMED),
        ("10^15 for a cap", CAPPED, 10**15, _MALFORMED),
        ("true", LOCAL, True, _MALFORMED),
    ):
        yield f"messages of a report: {name}", verdict, _edited(task, ("messages_per_report",), value)
    size = (*_PARAMETERS, "domain_size")
    for count, verdict in ((65535, GOOD), (65536, _MALFORMED), (10**12, _MALFORMED)):
        bits = (count - 1).bit_length()
        changes = {
            size: count,
            _CATEGORIES: None,
            ("message_size",): -(-bits // 8),
            ("messages_per_report",): count + 1,
        }
        yield f"messages of a report: {count:,} categories", verdict, _signed(_dump(_changed(TOKENS, changes)))


def _keys() -> Iterator[Case]:
    low_order = {
        "0": 0,
        "1": 1,
        "p - 1": _FIELD - 1,
        "p": _FIELD,
        "p + 1": _FIELD + 1,
        "the first of order 8": _ORDER_8[0],
        "the second of order 8": _ORDER_8[1],
        "0 with the highest bit": 1 << 255,
        "1 with the highest bit": 1 << 255 | 1,
    }
    for name, coordinate in low_order.items():
        key = _key("sealing", coordinate.to_bytes(32, "little"))
        yield f"an analyzer's key of low order: {name}", _MALFORMED, _edited(TOKENS, ("analyzer",), key)
    task: Document = json.loads(_text(TOKENS))
    yield "an analyzer's key that is for signing", _MALFORMED, _edited(TOKENS, ("analyzer",), task["shuffler"])
    public = task["analyzer"]["public"]
    other = public[:-1] + chr(ord(public[-1]) + 1)
    yield "a key with other last bits in base64", _MALFORMED, _edited(TOKENS, ("analyzer", "public"), other)
    yield "a key with padding in base64", _MALFORMED, _edited(TOKENS, ("analyzer", "public"), public + "=")
    yield (
        "a shuffler's key that is no point: devices do not use it",
        GOOD,
        _edited(TOKENS, ("shuffler",), _key("signing", b"\xff" * 32)),
    )
    text = _text(TOKENS)
    signature = AUTHOR.sign(b"shuffledp task v1\n" + text.encode())
    larger = int.from_bytes(signature[32:], "little") + _GROUP_ORDER
    yield (
        "a signature with the group order added",
        "bad-signature",
        _enveloped(text, to_base64(signature[:32] + larger.to_bytes(32, "little"))),
    )
    yield "a signature of 63 bytes", _MALFORMED, _enveloped(text, to_base64(signature[:-1]))
    yield (
        "an author in capitals",
        "unknown-author",
        _signed(text).replace(AUTHOR.public.id.encode(), AUTHOR.public.id.upper().encode()),
    )


def _key(kind: str, raw: bytes) -> Document:
    identifier = hashlib.sha256(f"shuffledp {kind} key\n".encode() + raw).hexdigest()[:16]
    return {"kind": kind, "id": identifier, "public": to_base64(raw)}


def _terms_of(task: str) -> Path:
    return (*_PARAMETERS, "noise" if task == TOKENS else "terms")


def _edited(task: str, path: Path, value: Any) -> bytes:
    """The task with one value changed, signed."""
    return _signed(_dump(_changed(task, {path: value})))


def _replaced(old: str, new: str) -> bytes:
    """The task with some bytes replaced, signed afterwards."""
    text = _text(TOKENS)
    if old not in text:
        raise ValueError(f"{old} is not in the task.")
    return _signed(text.replace(old, new, 1))


def _changed(task: str, changes: dict[Path, Any]) -> Document:
    document: Document = copy.deepcopy(json.loads(_text(task)))
    for path, value in changes.items():
        part = document
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
    return document


def _text(task: str) -> str:
    return task_of(task).content.decode()


def _dump(document: Document) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _signed(text: str) -> bytes:
    return _enveloped(text, to_base64(AUTHOR.sign(b"shuffledp task v1\n" + text.encode())))


def _enveloped(text: str, signature: str) -> bytes:
    return f'{{"author":"{AUTHOR.public.id}","signature":"{signature}","task":{text}}}'.encode()
