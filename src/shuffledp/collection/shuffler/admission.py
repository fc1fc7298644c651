"""Who may report: anybody, holders of enrolment tokens, or holders of Privacy Pass tokens.

What a request shows is examined before its body is read, as far as possible, and compared with the report afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from shuffledp.collection.server.responses import PreparedResponse, problem
from shuffledp.collection.shuffler.enrolment import TokenDirectory
from shuffledp.collection.shuffler.tasks import ServedTask
from shuffledp.collection.wire.privacy_pass import TokenIssuer, parse_header
from shuffledp.collection.wire.tokens import CHALLENGE, Credentials

TOKEN_UNKNOWN = problem(403, "token-unknown", "This enrolment token is not valid for the task.")
_TOKEN_MOVED = problem(403, "token-of-another-report", "This enrolment token authenticates another report.")
_MISSING = "This task requires an enrolment token."
_TOKEN_MISSING = problem(401, "token-missing", _MISSING, headers={"WWW-Authenticate": CHALLENGE})


class Admission(ABC):
    """What one request shows."""

    is_known: bool
    """Whether the request seems to be allowed; others have a rate limit of their own."""
    token_hash: bytes | None = None
    """The enrolment token that the store marks as spent, if any."""

    @abstractmethod
    def refuse(self, report: bytes) -> PreparedResponse | None:
        """The response to a report that is not allowed, as far as can be told without the store."""


class Admissions(ABC):
    """The rule of a shuffler."""

    @abstractmethod
    def examine(self, served: ServedTask, authorization: bytes | None) -> Admission | PreparedResponse:
        """What a request for a task shows, or the response if it shows nothing that could be valid."""


class Everybody(Admissions, Admission):
    """No token is needed."""

    is_known = True

    def examine(self, served: ServedTask, authorization: bytes | None) -> Admission:  # noqa: ARG002
        """Every request is allowed."""
        return self

    def refuse(self, report: bytes) -> None:
        """Every report is allowed."""


class Enrolled(Admissions):
    """Each report needs an enrolment token, whose hash is in a directory."""

    def __init__(self, tokens: TokenDirectory) -> None:
        self._tokens = tokens

    def examine(self, served: ServedTask, authorization: bytes | None) -> Admission | PreparedResponse:
        """Look the token up; the store decides on a token that another process may have read already."""
        credentials = Credentials.parse(authorization)
        if credentials is None:
            return _TOKEN_MISSING
        hashed = self._tokens.find(served.name, credentials.id)
        return _EnrolmentToken(credentials, hashed or credentials.hashed, is_known=hashed is not None)


class _EnrolmentToken(Admission):
    def __init__(self, credentials: Credentials, token_hash: bytes | None, *, is_known: bool) -> None:
        self._credentials, self.token_hash, self.is_known = credentials, token_hash, is_known

    def refuse(self, report: bytes) -> PreparedResponse | None:
        if self.token_hash is None:
            return TOKEN_UNKNOWN
        return None if self._credentials.authenticate(report, self.token_hash) else _TOKEN_MOVED


class Issued(Admissions):
    """Each report needs a Privacy Pass token of one of the issuers; nothing about tokens is stored."""

    def __init__(self, issuers: Sequence[TokenIssuer]) -> None:
        self._issuers = tuple(issuers)

    def examine(self, served: ServedTask, authorization: bytes | None) -> Admission | PreparedResponse:
        """Find the issuer that the token names."""
        token = parse_header(authorization)
        if token is None:
            headers = {"WWW-Authenticate": ", ".join(issuer.challenge_header(served.id) for issuer in self._issuers)}
            return problem(401, "token-missing", _MISSING, headers=headers)
        issuer = next((issuer for issuer in self._issuers if issuer.names(token, served.id)), None)
        return _IssuedToken(token, served.id, issuer)


class _IssuedToken(Admission):
    def __init__(self, token: bytes, task_id: bytes, issuer: TokenIssuer | None) -> None:
        self._token, self._task_id, self._issuer = token, task_id, issuer
        self.is_known = issuer is not None

    def refuse(self, report: bytes) -> PreparedResponse | None:
        if self._issuer is None:
            return TOKEN_UNKNOWN
        return None if self._issuer.verify(self._token, self._task_id, report) else _TOKEN_MOVED
