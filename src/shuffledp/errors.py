"""Exceptions of the package; each carries the values that caused it."""

from __future__ import annotations


class ShuffledpError(Exception):
    """Base class of all errors of shuffledp; ``values`` are the given and the required values."""

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.values = values


class ParameterError(ShuffledpError, ValueError):
    """An argument is outside its valid range."""


class UnknownNameError(ParameterError):
    """There is no protocol, estimator or calibration of that name."""


class ConditionError(ShuffledpError, ValueError):
    """A condition of a theorem is not met; the message names the condition."""


class InfeasibleError(ShuffledpError):
    """No parameters of the protocol meet the target."""


class BudgetError(ShuffledpError):
    """A release would exceed the budget of its session; nothing was released."""


class BelowMinimumError(ShuffledpError):
    """A round has fewer reports than its guarantee requires, so it is not released."""


class DomainError(ShuffledpError, ValueError):
    """The public domain is malformed, or a value is not in it."""


class DataError(ShuffledpError):
    """A data file cannot be read, or its column does not contain the required values."""


class EngineError(ShuffledpError):
    """Spark cannot be started, or failed; the message says what to do."""


class OutputError(ShuffledpError):
    """A result cannot be written to the given path."""


class MissingPackageError(ShuffledpError, ImportError):
    """A package of an extra is needed and not installed; the message has the command that installs it."""


class PolicyError(ShuffledpError):
    """A device refuses to report: its policy or its budget does not allow the task, or it has reported already."""


class RefusedError(ShuffledpError):
    """A server rejected the request."""


class StoppedError(ShuffledpError):
    """The user interrupted an operation; the message says what was done until then."""


class UnreachableError(ShuffledpError):
    """A server did not answer, or was still busy after all retries."""
