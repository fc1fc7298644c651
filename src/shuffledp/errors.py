"""Every exception of the package; each carries the values it complains about."""

from __future__ import annotations

__all__ = [
    "BelowMinimumError",
    "ConditionError",
    "DataError",
    "DomainError",
    "InfeasibleError",
    "MissingPackageError",
    "OutputError",
    "ParameterError",
    "PolicyError",
    "RefusedError",
    "ShuffledpError",
    "UnknownNameError",
    "UnreachableError",
]


class ShuffledpError(Exception):
    """Base of all errors of shuffledp. ``values`` holds what was given and what was needed."""

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.values = values


class ParameterError(ShuffledpError, ValueError):
    """An argument is outside the range in which it means something."""


class UnknownNameError(ParameterError):
    """A protocol, estimator or calibration of that name does not exist."""


class ConditionError(ShuffledpError, ValueError):
    """A theorem was asked for outside its conditions; the condition is named."""


class InfeasibleError(ShuffledpError):
    """No parameters of the protocol meet the target."""


class BelowMinimumError(ShuffledpError):
    """A round has fewer reports than its guarantee rests on, so it is not released."""


class DomainError(ShuffledpError, ValueError):
    """The public domain is malformed, or a value is not in it."""


class DataError(ShuffledpError):
    """A data file cannot be read, or its column does not hold what is needed."""


class OutputError(ShuffledpError):
    """A result cannot be written where it was asked to go."""


class MissingPackageError(ShuffledpError, ImportError):
    """An optional package is needed for this call."""


class PolicyError(ShuffledpError):
    """A device does not take part: the task is weaker than the device allows, or it has reported already."""


class RefusedError(ShuffledpError):
    """A server answered, and its answer is no."""


class StoppedError(ShuffledpError):
    """The user broke it off; the message says what was done until then."""


class UnreachableError(ShuffledpError):
    """A server did not answer, or asked to come back too often."""
