"""TLS of a server: checks of certificates, TLS 1.3, no session resumption, limits on handshakes."""

from __future__ import annotations

import gc
import ssl
import time
from pathlib import Path
from typing import Any
from weakref import WeakSet

from shuffledp.collection.server.settings import read_secret
from shuffledp.errors import DataError

_COLLECT_SECONDS = 1.0
MAX_HANDSHAKE_BYTES = 1 << 14
"""Maximum bytes that a client may send before its handshake is finished; browsers send about 2,000."""


class LimitedHandshake(ssl.SSLObject):
    """The TLS side of a connection; its handshake fails if the client sends too much before the end of it.

    OpenSSL takes a first message of up to 130,000 bytes, and each is held in memory three times until it is complete.
    """

    incoming: ssl.MemoryBIO
    _bytes = 0

    def do_handshake(self) -> None:
        """One step of the handshake, with what has arrived."""
        arrived = self.incoming.pending
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            self._bytes += arrived - self.incoming.pending
            if self._bytes > MAX_HANDSHAKE_BYTES:
                raise ssl.SSLError("the handshake is too long") from None
            raise


class LimitedContext(ssl.SSLContext):
    """Refuses handshakes while there are too many connections, including those with an unfinished handshake.

    The event loop reports a connection to the server only after its handshake: without this limit, idle connections
    could use up all file descriptors, at 50 kB each.
    """

    max_connections: int
    _live: WeakSet[ssl.SSLObject]
    _collected: float

    def wrap_bio(self, incoming: ssl.MemoryBIO, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """The TLS object of a new connection; SSLError beyond the limit."""
        if len(self._live) >= self.max_connections:
            self._collect()
        if len(self._live) >= self.max_connections:
            raise ssl.SSLError("too many connections")
        tls_object = super().wrap_bio(incoming, *arguments, **options)
        if isinstance(tls_object, LimitedHandshake):  # the sslobject_class of the context
            tls_object.incoming = incoming
        self._live.add(tls_object)
        return tls_object

    def forget(self, ended: ssl.SSLObject) -> None:
        """Stop counting a connection that has ended."""
        self._live.discard(ended)

    def _collect(self) -> None:
        """Free failed handshakes that are in reference cycles, at most once a second."""
        now = time.monotonic()
        if now - self._collected >= _COLLECT_SECONDS:
            self._collected = now
            gc.collect()


def server_context(certificate: Path, key: Path, *, max_connections: int) -> LimitedContext:
    """The context of a server with this certificate.

    Session resumption would reveal which reports, even of several rounds, come from one device. Before TLS 1.3 the
    session cache of the server cannot be switched off from Python.
    """
    context = LimitedContext(ssl.PROTOCOL_TLS_SERVER)
    context.max_connections, context._live, context._collected = max_connections, WeakSet(), 0.0
    context.sslobject_class = LimitedHandshake
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise DataError(f"Cannot use the TLS certificate and key: {error.strerror or error}.") from None
    return context


_KEY_MISMATCH = "KEY_VALUES_MISMATCH"


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Refuse a certificate or a key that cannot be read, and a pair that does not match."""
    if certificate is None or key is None:
        return
    read_secret(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cafile=certificate)
    except ssl.SSLError:
        raise DataError(f"{certificate} does not contain a certificate in PEM format.", path=str(certificate)) from None
    except OSError as error:
        raise DataError(f"Cannot read the certificate {certificate}: {error.strerror or error}.") from None
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except _EncryptedKeyError:
        raise DataError(f"The key {key} is encrypted; a server needs an unencrypted key.", path=str(key)) from None
    except ssl.SSLError as error:
        if error.reason == _KEY_MISMATCH:
            raise DataError(f"The certificate {certificate} does not belong to the key {key}.") from None
        raise DataError(f"{key} does not contain a usable private key in PEM format.") from None


class _EncryptedKeyError(Exception):
    """The key is encrypted."""


def _refuse_passphrase() -> str:
    raise _EncryptedKeyError
