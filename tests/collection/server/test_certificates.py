"""A certificate that is junk, or another key's, is noticed before it is served."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shuffledp.collection.server.tls import check_certificate
from shuffledp.errors import DataError


def write(folder, name, *, password=None):
    """A key of its own and a certificate for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(called, called, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    file = folder / f"{name}.key"
    file.touch(0o600)
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption_algorithm=lock)
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / f"{name}.pem", file


def test_a_pair(tmp_path):
    check_certificate(None, None)
    check_certificate(*write(tmp_path, "one"))


def test_of_another_key(tmp_path):
    certificate, _ = write(tmp_path, "one")
    _, key = write(tmp_path, "two")
    with pytest.raises(DataError, match=r"one\.pem does not belong to the key .*two\.key"):
        check_certificate(certificate, key)


@pytest.mark.parametrize("junk", [b"", b"junk\n", bytes(1000)])
def test_junk(tmp_path, junk):
    certificate, key = write(tmp_path, "one")
    (tmp_path / "junk").touch(0o600)
    (tmp_path / "junk").write_bytes(junk)
    with pytest.raises(DataError, match="junk does not contain a certificate"):
        check_certificate(tmp_path / "junk", key)
    with pytest.raises(DataError, match="junk does not contain a usable private key"):
        check_certificate(certificate, tmp_path / "junk")


def test_missing_or_open_to_others(tmp_path):
    certificate, key = write(tmp_path, "one")
    with pytest.raises(DataError, match="Cannot read the certificate"):
        check_certificate(tmp_path / "none", key)
    with pytest.raises(DataError, match="Cannot read"):
        check_certificate(certificate, tmp_path / "none")
    key.chmod(0o640)
    with pytest.raises(DataError, match="chmod 600"):
        check_certificate(certificate, key)


def test_a_key_that_wants_a_password(tmp_path):
    """Nobody is asked: a server has no keyboard."""
    with pytest.raises(DataError, match="is encrypted; a server"):
        check_certificate(*write(tmp_path, "one", password=b"secret"))
