"""SCRAM-SHA-256 and -512, the server's side (RFC 5802, RFC 7677). Pure: nonce and salt are arguments.

What a server keeps of a user is salted, as Kafka keeps it: from that alone nobody can log in as the user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from twinshore.fleet import ConfigError, SaslMechanism, TwinshoreError
from twinshore.kafka.scram import ITERATIONS_MAX, ITERATIONS_MIN

_DIGEST = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
# A client's first message says whether it binds the channel, and as whom else it would act, before what is signed.
_NO_BINDING = ("n", "y")


class LoginRefusedError(TwinshoreError):
    """The client is not who it says, or does not say it as it should; for the log, and not for the client."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What is kept of a user's password."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """As Kafka writes it."""
        parts = (("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key))
        told = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts)
        return f"{told},iterations={self.iterations}"


def keys_of(password: str, mechanism: SaslMechanism, salt: bytes, iterations: int) -> ScramKeys:
    """What is to be kept of this password."""
    digest = _DIGEST[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return ScramKeys(
        salt, iterations, hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest)
    )


def read_keys(text: str, mechanism: SaslMechanism) -> ScramKeys:
    """What `text` says, as Kafka writes it; ConfigError where it does not."""
    found = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if found.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ConfigError("must be salt=...,stored_key=...,server_key=...,iterations=...")
    try:
        salt, stored, server = (
            base64.b64decode(found[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(found["iterations"])
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}") from None
    size = hashlib.new(_DIGEST[mechanism]).digest_size
    if not salt or len(stored) != size or len(server) != size:
        raise ConfigError(f"holds no keys of {mechanism}, which have {size} bytes")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"iterations are {iterations}, must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return ScramKeys(salt, iterations, stored, server)


class ScramServer:
    """client's first message -> first() -> client's final message -> final(). One use only. `keys`: what is kept of a
    user, or of one that does not exist what no password fits. `user` is known after first(), proven after final()."""

    def __init__(self, mechanism: SaslMechanism, keys: Callable[[str], ScramKeys], nonce: str) -> None:
        self._digest = _DIGEST[mechanism]
        self._keys_of, self._nonce = keys, nonce
        self.user = ""

    def first(self, client_first: bytes) -> bytes:
        binding, _, rest = _text(client_first).partition(",")
        other, _, bare = rest.partition(",")
        fields = _fields(bare)
        if binding not in _NO_BINDING or "m" in fields or not fields.get("n") or not fields.get("r"):
            raise LoginRefusedError("its first message of SCRAM cannot be read, or wants what is not served")
        if any(part.startswith("tokenauth=") for part in bare.split(",")):
            raise LoginRefusedError("it wants to log in by a delegation token, which is not served")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if other.removeprefix("a=") not in ("", fields["n"]):
            raise LoginRefusedError(f"user {self.user!r:.80} would act as somebody else")
        found = self._keys_of(self.user)
        self._keys, self._nonce = found, fields["r"] + self._nonce
        self._binding = f"{binding},{other},".encode()
        said = f"r={self._nonce},s={base64.b64encode(found.salt).decode()},i={found.iterations}"
        self._signed = f"{bare},{said}"
        return said.encode()

    def final(self, client_final: bytes) -> bytes:
        text = _text(client_final)
        fields = _fields(text)
        without_proof = text.rpartition(",p=")[0]
        if _unbase64(fields.get("c", "")) != self._binding or fields.get("r") != self._nonce:
            raise LoginRefusedError(f"user {self.user!r:.80}: its final message of SCRAM is not the one to this talk")
        signed = f"{self._signed},{without_proof}".encode()
        mask = hmac.digest(self._keys.stored_key, signed, self._digest)
        proof = _unbase64(fields.get("p", ""))
        if len(proof) != len(mask):
            raise LoginRefusedError(f"user {self.user!r:.80}: it has no proof of the password")
        client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), self._keys.stored_key):
            raise LoginRefusedError(f"user {self.user!r:.80}: there is no such user, or the password is wrong")
        signature = hmac.digest(self._keys.server_key, signed, self._digest)
        return b"v=" + base64.b64encode(signature)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefusedError("its message of SCRAM is not UTF-8") from None


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefusedError("its message of SCRAM is not base64") from None
