"""Certificates and tokens of a lab cluster: an own authority, with elliptic keys for speed."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)
_KEY_ID = "lab"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key as PEM files; `store_file` holds both, as Kafka's PEM key store needs."""

    cert_file: Path
    key_file: Path
    store_file: Path


class CertificateAuthority:
    """A certificate authority in a folder. Every pair is valid for 127.0.0.1 and localhost, for servers and clients."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} lab authority")])
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        replace_secret_file(self.ca_file, certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, common_name: str, *hosts: str) -> KeyPair:
        """Issues a pair under fixed file names; a repeated call replaces each file atomically.

        `hosts`: further valid names, wildcards allowed.
        """
        pair = KeyPair(*(self._folder / f"{common_name}.{kind}.pem" for kind in ("cert", "key", "store")))
        key = ec.generate_private_key(ec.SECP256R1())
        named = [x509.DNSName(host) for host in ("localhost", *hosts)]
        names = [*named, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        either_side = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(authority_key, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(either_side, critical=False)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        replace_secret_file(pair.cert_file, certificate)
        replace_secret_file(pair.key_file, secret)
        replace_secret_file(pair.store_file, secret + certificate)
        return pair


class TokenIssuer:
    """Signs bearer tokens; brokers verify them with the public key in `jwks_file`."""

    def __init__(self, folder: Path) -> None:
        self.jwks_file = folder / "jwks.json"
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self._key.public_key().public_numbers()
        modulus = public.n.to_bytes(256, "big")
        exponent = public.e.to_bytes(3, "big")
        key = {
            "kty": "RSA",
            "kid": _KEY_ID,
            "use": "sig",
            "alg": "RS256",
            "n": _base64(modulus),
            "e": _base64(exponent),
        }
        replace_secret_file(self.jwks_file, json.dumps({"keys": [key]}).encode())

    def token(self, user: str, *, life_s: float) -> str:
        """A signed token for the user that expires after `life_s`; a negative life gives an expired one."""
        now_s = time.time()
        header = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
        claims = {"sub": user, "iat": int(min(now_s, now_s + life_s)), "exp": int(now_s + life_s), "scope": "kafka"}
        signed = f"{_base64(json.dumps(header).encode())}.{_base64(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"


def replace_secret_file(path: Path, content: bytes) -> None:
    """Replaces a secret file atomically; only the owner can read the file."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(scratch).replace(path)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
