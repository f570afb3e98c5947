"""A certificate authority for tests: certificates for 127.0.0.1 and for clients."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `certificate` is the file to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self.sign("authority").certificate

    def sign(self, name: str, *, password: bytes | None = None) -> Pair:
        """Return a new pair for a server at 127.0.0.1 or a client; the first is the authority's own."""
        is_own = name == "authority"
        key = self._key if is_own else ec.generate_private_key(ec.SECP256R1())
        subject = self._name if is_own else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(timezone.utc)
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = (
            x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1)).add_extension(alternative, critical=False)
            .add_extension(x509.BasicConstraints(ca=is_own, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256()))
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        pair.key.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        return pair
