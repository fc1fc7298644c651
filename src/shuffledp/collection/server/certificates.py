"""The certificate that a server shows, and its key: looked at before it is served."""

from __future__ import annotations

import ssl
from pathlib import Path

from shuffledp.collection.server.settings import read_secret
from shuffledp.errors import DataError

__all__ = ["check_certificate"]

_OTHER_KEY = "KEY_VALUES_MISMATCH"


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Refuse a certificate or a key that cannot be read, and a pair that does not belong together."""
    if certificate is None or key is None:
        return
    read_secret(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cafile=certificate)
    except ssl.SSLError:
        raise DataError(f"{certificate} holds no certificate in PEM form.", path=str(certificate)) from None
    except OSError as error:
        raise DataError(f"Cannot read the certificate {certificate}: {error.strerror or error}.") from None
    try:
        context.load_cert_chain(certificate, key, password=_refuse_to_ask)
    except _LockedError:
        raise DataError(f"The key {key} is locked by a password: no server could ask for it.", path=str(key)) from None
    except ssl.SSLError as error:
        if error.reason == _OTHER_KEY:
            raise DataError(f"The certificate {certificate} does not belong to the key {key}.") from None
        raise DataError(f"{key} holds no private key in PEM form, or one that cannot be used.") from None


class _LockedError(Exception):
    """A password is wanted."""


def _refuse_to_ask() -> str:
    raise _LockedError
