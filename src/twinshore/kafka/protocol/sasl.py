"""SASL without IO: secrets, nonces and tokens are arguments. SCRAM-SHA-256 and -512 for both sides (RFC 5802, RFC
7677).

User names and passwords are plain UTF-8 without SASLprep, as in Kafka. A server keeps salted keys, which alone allow no
login.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from twinshore.config.errors import ConfigError, KafkaError, TwinshoreError
from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from twinshore.kafka.protocol.error_codes import Code, error_kind
from twinshore.kafka.protocol.framing import Dialogue, RequestBody
from twinshore.kafka.protocol.handshake import (
    SASL_VERSION,
    encode_sasl_authenticate,
    encode_sasl_handshake,
    parse_sasl_authenticate,
    parse_sasl_handshake,
)

# A mechanism's messages: ours are yielded, the server's are sent in.
SaslMessages: TypeAlias = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Credentials:
    """`secret`: a password or a token. `nonce`: for SCRAM only."""

    mechanism: SaslMechanism
    username: str = ""
    secret: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)


def negotiate_mechanism(mechanism: SaslMechanism, place: str) -> Dialogue[None]:
    """Ask whether the listener accepts this mechanism, before secrets are read."""
    answer = yield RequestBody(SASL_HANDSHAKE, SASL_VERSION, encode_sasl_handshake(mechanism.value))
    error, mechanisms = parse_sasl_handshake(answer)
    if error:
        offered = ", ".join(sorted(mechanisms)) or "none"
        sentence = f"{place}: the listener does not take SASL {mechanism.value}"
        raise KafkaError(sentence, code=error, hint=f"it offers {offered}")


def authenticate(credentials: Credentials, place: str) -> Dialogue[float]:
    """Returns how many seconds the session lasts, 0 for ever."""
    lifetime_ms = 0
    messages = _messages(credentials, place)
    reason = ""
    try:
        message = next(messages)
        while True:
            answer = yield RequestBody(SASL_AUTHENTICATE, SASL_VERSION, encode_sasl_authenticate(message))
            said = parse_sasl_authenticate(answer)
            if said.error:
                why = reason or said.reason or error_kind(said.error).sentence
                raise _refused(credentials, place, why)
            lifetime_ms, reason = said.lifetime_ms, _status(credentials, said.message)
            message = messages.send(said.message)
    except StopIteration:
        return lifetime_ms / 1000


def _messages(credentials: Credentials, place: str) -> SaslMessages:
    if credentials.mechanism is SaslMechanism.PLAIN:
        yield f"\0{credentials.username}\0{credentials.secret}".encode()
    elif credentials.mechanism is SaslMechanism.OAUTHBEARER:
        refusal = yield f"n,,\x01auth=Bearer {credentials.secret}\x01\x01".encode()
        if refusal:
            # A refusal comes as JSON with code 0; the broker says 58 only after our acknowledgement (RFC 7628).
            yield b"\x01"
            raise _refused(credentials, place, _status(credentials, refusal))
    else:
        scram = ScramClient(credentials.mechanism, credentials.username, credentials.secret, credentials.nonce, place)
        server_first = yield scram.first()
        scram.verify((yield scram.final(server_first)))


def _refused(credentials: Credentials, place: str, reason: str) -> KafkaError:
    who = f" of user {credentials.username}" if credentials.username else ""
    return KafkaError(
        f"{place}: the SASL {credentials.mechanism} credentials{who} are refused: {reason}",
        code=Code.sasl_authentication_failed,
        hint="check user name and secret; a rotated secret is read again at the next connection",
    )


def _status(credentials: Credentials, message: bytes) -> str:
    """Returns why a token was refused; empty for other mechanisms."""
    if credentials.mechanism is not SaslMechanism.OAUTHBEARER or not message:
        return ""
    try:
        return str(json.loads(message).get("status", "refused"))
    except (ValueError, AttributeError):
        return "refused"


# Kafka's own floor, and a ceiling so that a hostile server cannot keep us hashing.
SCRAM_ITERATIONS_MIN = 4096
SCRAM_ITERATIONS_MAX = 1_000_000
_DIGEST = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_HEAD = "n,,"
# A client's first message begins with channel binding and authorization identity, before the signed part.
_NO_BINDING = ("n", "y")


class ScramClient:
    """One login: first() -> server's first message -> final() -> server's final message -> verify()."""

    def __init__(self, mechanism: SaslMechanism, username: str, password: str, nonce: str, place: str) -> None:
        self._digest = _DIGEST[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._place = place
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return (_HEAD + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Returns the proof. KafkaError for a message that no honest server sends."""
        fields = _fields(server_first, self._unreadable)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._error("the server did not continue our nonce")
        # int() refuses thousands of digits, and the protocol allows ASCII digits only.
        digits = iterations.isascii() and iterations.isdecimal() and len(iterations) <= len(str(SCRAM_ITERATIONS_MAX))
        if not digits or not SCRAM_ITERATIONS_MIN <= int(iterations) <= SCRAM_ITERATIONS_MAX:
            raise self._error(f"the server asks for {iterations[:20] or 'no'} iterations")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, _unbase64(salt, self._unreadable), int(iterations))
        client_key, stored_key, server_key = _keys(salted, self._digest)
        without_proof = f"c={base64.b64encode(_HEAD.encode()).decode()},r={nonce}"
        signed = ",".join((self._bare, server_first.decode(), without_proof)).encode()
        self._server_signature = hmac.digest(server_key, signed, self._digest)
        proof = _xor(client_key, hmac.digest(stored_key, signed, self._digest))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """KafkaError unless the server proves that it knows the password."""
        fields = _fields(server_final, self._unreadable)
        if "e" in fields:
            raise self._error(f"the server refused: {fields['e'][:200]}")
        said = _unbase64(fields.get("v", ""), self._unreadable)
        if not self._server_signature or not hmac.compare_digest(said, self._server_signature):
            hint = "this may be an impostor: check address and TLS"
            raise self._error("the server does not know the password", hint=hint)

    def _unreadable(self, why: str) -> KafkaError:
        return self._error(f"the server's message is {why}")

    def _error(self, message: str, *, hint: str = "") -> KafkaError:
        return KafkaError(f"{self._place}: SCRAM: {message}", hint=hint)


class LoginRefusedError(TwinshoreError):
    """A login failed or was malformed. The reason is for the log, not for the client."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The keys in Kafka's notation."""
        parts = (("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key))
        told = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts)
        return f"{told},iterations={self.iterations}"


def derive_scram_keys(password: str, mechanism: SaslMechanism, salt: bytes, iterations: int) -> ScramKeys:
    digest = _DIGEST[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return ScramKeys(salt, iterations, *_keys(salted, digest)[1:])


def parse_scram_keys(text: str, mechanism: SaslMechanism) -> ScramKeys:
    """Parse keys in Kafka's notation. ConfigError for other text."""
    keys = "salt", "stored_key", "server_key"
    found = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if found.keys() != {*keys, "iterations"}:
        fault = "must be salt=...,stored_key=...,server_key=...,iterations=..."
        raise ConfigError("kafka.invalid-scram-keys", fault=fault)
    try:
        salt, stored, server = (base64.b64decode(found[name], validate=True) for name in keys)
        iterations = int(found["iterations"])
    except (binascii.Error, ValueError) as error:
        raise ConfigError("kafka.invalid-scram-keys", fault=f"cannot be read: {error}") from None
    size = hashlib.new(_DIGEST[mechanism]).digest_size
    if not salt or len(stored) != size or len(server) != size:
        raise ConfigError("kafka.invalid-scram-keys", fault=f"are not of {mechanism}, whose keys have {size} bytes")
    if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        fault = f"have {iterations} iterations, not {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}"
        raise ConfigError("kafka.invalid-scram-keys", fault=fault)
    return ScramKeys(salt, iterations, stored, server)


class ScramServer:
    """One login: client's first message -> first() -> client's final message -> final().

    `keys` returns a user's keys; for an unknown user, ones that no password matches. `user` is known after first(),
    proven after final().
    """

    def __init__(self, mechanism: SaslMechanism, keys: Callable[[str], ScramKeys], nonce: str) -> None:
        self._digest = _DIGEST[mechanism]
        self._keys_of, self._nonce = keys, nonce
        self.user = ""

    def first(self, client_first: bytes) -> bytes:
        binding, _, rest = _text(client_first, _unreadable).partition(",")
        other, _, bare = rest.partition(",")
        fields = _fields(bare.encode(), _unreadable)
        if binding not in _NO_BINDING or "m" in fields or not fields.get("n") or not fields.get("r"):
            raise LoginRefusedError("its first message of SCRAM cannot be read, or wants what is not served")
        if any(part.startswith("tokenauth=") for part in bare.split(",")):
            raise LoginRefusedError("it wants to log in by a delegation token, which is not served")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if other.removeprefix("a=") not in ("", fields["n"]):
            raise LoginRefusedError(f"user {self.user!r:.80} would act as another user")
        found = self._keys_of(self.user)
        self._keys, self._nonce = found, fields["r"] + self._nonce
        self._binding = f"{binding},{other},".encode()
        said = f"r={self._nonce},s={base64.b64encode(found.salt).decode()},i={found.iterations}"
        self._signed = f"{bare},{said}"
        return said.encode()

    def final(self, client_final: bytes) -> bytes:
        fields = _fields(client_final, _unreadable)
        without_proof = client_final.rpartition(b",p=")[0]
        if _unbase64(fields.get("c", ""), _unreadable) != self._binding or fields.get("r") != self._nonce:
            raise LoginRefusedError(f"user {self.user!r:.80}: its final message of SCRAM belongs to another login")
        signed = self._signed.encode() + b"," + without_proof
        mask = hmac.digest(self._keys.stored_key, signed, self._digest)
        proof = _unbase64(fields.get("p", ""), _unreadable)
        if len(proof) != len(mask):
            raise LoginRefusedError(f"user {self.user!r:.80}: it has no proof of the password")
        client_key = _xor(proof, mask)
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), self._keys.stored_key):
            raise LoginRefusedError(f"user {self.user!r:.80}: there is no such user, or the password is wrong")
        signature = hmac.digest(self._keys.server_key, signed, self._digest)
        return b"v=" + base64.b64encode(signature)


def _unreadable(why: str) -> LoginRefusedError:
    return LoginRefusedError(f"its message of SCRAM is {why}")


def _keys(salted: bytes, digest: str) -> tuple[bytes, bytes, bytes]:
    client_key = hmac.digest(salted, b"Client Key", digest)
    return client_key, hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _text(message: bytes, unreadable: Callable[[str], TwinshoreError]) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise unreadable("not UTF-8") from None


def _fields(message: bytes, unreadable: Callable[[str], TwinshoreError]) -> dict[str, str]:
    return {part[0]: part[2:] for part in _text(message, unreadable).split(",") if part[1:2] == "="}


def _unbase64(text: str, unreadable: Callable[[str], TwinshoreError]) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise unreadable("not base64") from None
