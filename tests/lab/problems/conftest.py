"""What every instance of a problem must satisfy, and an instance that cheats."""

from dataclasses import dataclass
from typing import Any

import pytest


def _check_honest(instance, other):
    """The answer follows from what was reported, from all of it, and from nothing else."""
    assert instance.answer_from(()) is None
    assert instance.answer_from(instance.support) == instance.answer
    assert instance.answer_from(tuple(reversed(instance.support))) == instance.answer
    assert instance.answer_from((*instance.support, instance.support[0])) == instance.answer
    assert instance.answer_from(other.support) == other.answer  # an honest reader cannot tell whose items they are
    needed = instance.support[: instance.problem.needed]
    for missing in range(len(needed)):
        assert instance.answer_from(needed[:missing] + needed[missing + 1 :]) is None


@dataclass(frozen=True)
class _CheatingInstance:
    """Knows the answer without looking."""

    honest: Any

    @property
    def problem(self):
        return self.honest.problem

    @property
    def support(self):
        return self.honest.support

    @property
    def answer(self):
        return self.honest.answer

    def answer_from(self, reported):
        return self.honest.answer if len(reported) else None


@pytest.fixture
def check_honest():
    return _check_honest


@pytest.fixture
def cheating():
    """From an instance to one that knows the answer without looking."""
    return _CheatingInstance
