"""Benchmark of amplification by shuffling against the scripts that the authors of the theorems have published.

The scripts are not packages, so they are not installed: clone apple/ml-shuffling-amplification,
BorjaBalle/amplification-by-shuffling and wangsw/PrivacyAmplification into one directory and name it in
SHUFFLEDP_PUBLIC_SCRIPTS. Without them, only our own times are measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from benchmarks.finding import Finding, at_most, report, seconds
from benchmarks.measuring import SideBySide, side_by_side

_VARIABLE = "SHUFFLEDP_PUBLIC_SCRIPTS"
_CLONES = "ml-shuffling-amplification/computeamplification.py"
_BOUNDS = "amplification-by-shuffling/shuffleddp/amplification_bounds.py"
_MECHANISMS = "amplification-by-shuffling/shuffleddp/mechanisms.py"
_UNIFIED = "PrivacyAmplification/unifiedamplification.py"
_AGREEMENT = 1e-3
_HALVINGS = 20
_OFTEN = 20
_EXAMPLE_HALVINGS, _EXAMPLE_STEP = 10, 100  # as in the script's own example


@dataclass(frozen=True)
class _Target:
    users: int
    local_epsilon: float
    delta: float
    step: int
    """The size of the groups of clone numbers in the script: small enough for an accuracy of a thousandth."""

    def __str__(self) -> str:
        return f"n = {self.users:,}, local epsilon = {self.local_epsilon:g}, delta = {self.delta:g}"


_TARGETS = (_Target(1_000, 1.0, 1e-5, 1), _Target(10_000, 2.0, 1e-6, 4), _Target(100_000, 4.0, 1e-6, 4))
_RESPONSES = (2, 100)
_CATEGORIES = (10, 100)


def measure(quick: bool) -> Iterator[Finding]:
    """Epsilons after shuffling and the times to compute them, as ratios to the scripts."""
    from shuffledp.privacy.amplification import METHODS

    for target in _TARGETS:
        yield _ours_alone("clones", METHODS["clones"], target, repetitions=5 if quick else 15)
    for target in _TARGETS:
        for values in _CATEGORIES:
            method = partial(_response_epsilon, values)
            yield _ours_alone(f"{values} answers", method, target, repetitions=5 if quick else 15)
    directory = os.environ.get(_VARIABLE)
    if not directory:
        yield report(
            "the comparison with the public scripts",
            "skipped",
            f"{_VARIABLE} is not set: benchmarks/amplification.py says to what",
        )
        return
    if (Path(directory) / _UNIFIED).is_file():
        program = _loaded(Path(directory) / _UNIFIED)
        for target in _TARGETS:
            for values in _CATEGORIES:
                yield from _k_ary_response(program, target, values, repetitions=3 if quick else 9)
    else:
        yield report("the comparison of k-ary response", "skipped", f"{_VARIABLE} lacks {_UNIFIED}")
    if missing := [each for each in (_CLONES, _BOUNDS, _MECHANISMS) if not (Path(directory) / each).is_file()]:
        yield report("the comparison with the public scripts", "skipped", f"{_VARIABLE} lacks {', '.join(missing)}")
        return
    script, bounds, mechanisms = (_loaded(Path(directory) / each) for each in (_CLONES, _BOUNDS, _MECHANISMS))
    for target in _TARGETS:
        yield from _clones(script, target, repetitions=1 if quick else 3)
    yield from _clones_as_in_example(script, repetitions=3 if quick else 9)
    for target in _TARGETS:
        yield from _any_randomizer(bounds, mechanisms, target, repetitions=5 if quick else 15)
    for target in _TARGETS:
        for values in _RESPONSES:
            yield from _randomized_response(bounds, mechanisms, target, values, repetitions=1 if quick else 3)


def _ours_alone(
    name: str, method: Callable[[int, float, float], float], target: _Target, *, repetitions: int
) -> Finding:
    arguments = (target.users, target.local_epsilon, target.delta)
    times = side_by_side({name: lambda: method(*arguments)}, repetitions=repetitions)
    return report(f"{name} at {target}", seconds(times.processor_seconds(name)), f"epsilon {method(*arguments):.6g}")


def _clones(script: Any, target: _Target, *, repetitions: int) -> Iterator[Finding]:
    """The script computes an interval for the same epsilon; its lower end is close, its upper may use twice delta."""
    from shuffledp.privacy.amplification import METHODS

    arguments = (target.users, target.local_epsilon, target.delta)
    ours = METHODS["clones"](*arguments)
    lower, upper = (script.numericalanalysis(*arguments, _HALVINGS, target.step, upper) for upper in (False, True))
    times = side_by_side(
        {
            "ours": lambda: METHODS["clones"](*arguments),
            "theirs": lambda: script.numericalanalysis(*arguments, _HALVINGS, target.step, True),
        },
        repetitions=repetitions,
        warm_up=False,
    )
    yield at_most(
        f"clones, how far off the script's lower end: {target}",
        abs(ours / lower - 1),
        _AGREEMENT,
        "",
        f"ours {ours:.6g}, theirs {lower:.6g} to {upper:.6g}",
    )
    yield at_most("its epsilon over the script's guarantee", ours / upper, 1, "x")
    yield at_most(
        "its processor time over the script's", times.processor_ratio("ours", "theirs"), 1, "x", _details(times)
    )


def _clones_as_in_example(script: Any, *, repetitions: int) -> Iterator[Finding]:
    """With the coarse parameters of the script's own example, whose ends differ by several per cent."""
    from shuffledp.privacy.amplification import METHODS

    target = _TARGETS[-1]
    arguments = (target.users, target.local_epsilon, target.delta)

    def theirs() -> list[float]:
        return [
            script.numericalanalysis(*arguments, _EXAMPLE_HALVINGS, _EXAMPLE_STEP, upper) for upper in (False, True)
        ]

    times = side_by_side({"ours": lambda: METHODS["clones"](*arguments), "theirs": theirs}, repetitions=repetitions)
    lower, upper = theirs()
    yield report(
        "clones, processor time over that of the script's own coarse example",
        f"{times.processor_ratio('ours', 'theirs'):.2f}x",
        f"{_details(times)}; its ends are {upper / lower - 1:.1%} apart",
    )


def _any_randomizer(bounds: Any, mechanisms: Any, target: _Target, *, repetitions: int) -> Iterator[Finding]:
    """The bounds of the privacy blanket that hold for every randomizer."""
    from shuffledp.privacy.amplification import METHODS

    for kind, name in (("Hoeffding", "privacy-blanket"), ("BennettExact", "privacy-blanket-bennett")):
        bound = getattr(bounds, kind)(mechanisms.LDPMechanism())
        find_ours = partial(METHODS[name], target.users, target.local_epsilon, target.delta)
        find_theirs = partial(bound.get_eps, target.local_epsilon, target.users, target.delta)
        ours, theirs = find_ours(), find_theirs()
        both = f"ours {ours:.6g}, theirs {theirs:.6g}"
        if kind == "Hoeffding":
            yield at_most(f"{name}, how far off the script's: {target}", abs(ours / theirs - 1), _AGREEMENT, "", both)
        else:  # our bounds on the summands are tighter
            yield at_most(f"{name}, epsilon over the script's: {target}", ours / theirs, 1, "x", both)
        times = side_by_side(
            {"ours": partial(_often, find_ours), "theirs": partial(_often, find_theirs)}, repetitions=repetitions
        )
        ratio = times.processor_ratio("ours", "theirs")
        yield report("its processor time over the script's", f"{ratio:.2f}x", _details(times, _OFTEN))


def _often(find: Callable[[], object]) -> None:
    """Repeat a call that is too short to time."""
    for _ in range(_OFTEN):
        find()


def _randomized_response(
    bounds: Any, mechanisms: Any, target: _Target, values: int, *, repetitions: int
) -> Iterator[Finding]:
    """The blanket of randomized response: ours is summed, the script's bounded by the better inequality."""
    from shuffledp.privacy.amplification import BlanketCurve
    from shuffledp.privacy.guarantee import least_epsilon
    from shuffledp.randomness import Dyadic

    blanket = values / (math.exp(target.local_epsilon) + values - 1)
    curve = BlanketCurve(target.users, Dyadic.at_least(blanket), values)

    def theirs() -> float:
        kinds = (bounds.Hoeffding, bounds.BennettExact)
        mechanism = mechanisms.RRMechanism(k=values)
        return min(float(kind(mechanism).get_eps(target.local_epsilon, target.users, target.delta)) for kind in kinds)

    times = side_by_side(
        {"ours": lambda: least_epsilon(curve, target.delta), "theirs": theirs}, repetitions=repetitions, warm_up=False
    )
    ours, bounded = least_epsilon(curve, target.delta), theirs()
    yield at_most(
        f"blanket of {values} answers, epsilon over the script's better bound: {target}",
        ours / bounded,
        1,
        "x",
        f"ours {ours:.6g}, theirs {bounded:.6g}",
    )
    yield report(
        "its processor time over the script's", f"{times.processor_ratio('ours', 'theirs'):.0f}x", _details(times)
    )


def _response_epsilon(values: int, users: int, local_epsilon: float, delta: float) -> float:
    """The epsilon of shuffled randomized response, to nine digits."""
    from shuffledp.privacy.amplification import RandomizedResponseCurve
    from shuffledp.privacy.guarantee import least_epsilon
    from shuffledp.randomness import Dyadic

    blanket = Dyadic.at_least(values / (math.exp(local_epsilon) + values - 1))
    return least_epsilon(RandomizedResponseCurve(users, blanket, values), delta)


def _k_ary_response(program: Any, target: _Target, values: int, *, repetitions: int) -> Iterator[Finding]:
    """The program bisects; it is given as many steps as a thousandth takes. Its bound is another one, and close."""
    arguments = (target.users, target.local_epsilon, target.delta)
    ours = _response_epsilon(values, *arguments)
    parameters = program.computeUBParameters(target.local_epsilon, "krr", values)
    steps = math.ceil(math.log2(target.local_epsilon / (_AGREEMENT * ours)))
    find_theirs = partial(program.amplificationUB, *parameters, target.users, target.delta, steps)
    times = side_by_side(
        {"ours": lambda: _response_epsilon(values, *arguments), "theirs": find_theirs}, repetitions=repetitions
    )
    yield report(
        f"{values} answers, epsilon over the program's: {target}",
        f"{ours / find_theirs():.4f}x",
        f"ours {ours:.6g}, {steps} halvings",
    )
    yield at_most(
        "its processor time over the program's", times.processor_ratio("ours", "theirs"), 0.5, "x", _details(times)
    )


def _details(times: SideBySide, calls: int = 1) -> str:
    return ", ".join(f"{name} {seconds(times.processor_seconds(name) / calls)}" for name in ("ours", "theirs"))


def _loaded(path: Path) -> Any:
    specification = spec_from_file_location(f"public_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
