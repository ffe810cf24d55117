"""Certificates made on the spot: an authority, and keys that it has signed. Whoever has the files is trusted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from forebay.devstack.private_files import CertificateFiles, files_of, write_private

LASTS = timedelta(days=365)


class Authority:
    """Signs certificates. Its own is in `ca.pem`; its key is never written."""

    def __init__(self, folder: Path, name: str = "forebay-authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        made = _builder(self._name, self._name, self._key, ca=True).sign(self._key, hashes.SHA256())
        self.pem = folder / "ca.pem"
        write_private(self.pem, made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        key_password: str = "",
        signs_itself: bool = False,
    ) -> CertificateFiles:
        """A new key, and a certificate with `CN=name`. One with `hosts` is a server's, for those names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        issuer, signer = (subject, key) if signs_itself else (self._name, self._key)
        builder = _builder(subject, issuer, key, ca=signs_itself)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if key_password:
            secret = serialization.BestAvailableEncryption(key_password.encode())
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        files = files_of(self._folder, name)
        write_private(files.certificate, certificate)
        write_private(files.key, private)
        write_private(files.store, private + certificate)
        return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + LASTS)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
