"""SCRAM-SHA-256 and -512, the client's side (RFC 5802, RFC 7677). Pure: the nonce is an argument.

Kafka takes user names and passwords as plain UTF-8, without SASLprep; so does this.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from twinshore.fleet import KafkaError, SaslMechanism

# Kafka's own floor, and a ceiling so that a hostile server cannot keep us hashing.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 1_000_000
_DIGEST = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_NO_BINDING = "n,,"


class ScramClient:
    """first() -> server's first message -> final() -> server's final message -> verify(). One use only."""

    def __init__(self, mechanism: SaslMechanism, username: str, password: str, nonce: str, place: str) -> None:
        self._digest = _DIGEST[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._place = place
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return (_NO_BINDING + self._bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof; KafkaError when the server's message is not one that an honest server sends."""
        fields = self._fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._error("the server did not continue our nonce")
        # Of thousands of digits int() makes no number, and what is no digit of ASCII is none of the protocol's.
        digits = iterations.isascii() and iterations.isdecimal() and len(iterations) <= len(str(ITERATIONS_MAX))
        if not digits or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise self._error(f"the server asks for {iterations[:20] or 'no'} iterations")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, self._unbase64(salt), int(iterations))
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = f"c={base64.b64encode(_NO_BINDING.encode()).decode()},r={nonce}"
        signed = ",".join((self._bare, server_first.decode(), without_proof)).encode()
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        signature = self._mac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """KafkaError unless the server proves that it knows the password too."""
        fields = self._fields(server_final)
        if "e" in fields:
            raise self._error(f"the server refused: {fields['e'][:200]}")
        if not self._server_signature or not hmac.compare_digest(
            self._unbase64(fields.get("v", "")), self._server_signature
        ):
            raise self._error(
                "the server does not know the password", hint="this may be an impostor: check address and TLS"
            )

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            parts = message.decode().split(",")
        except UnicodeDecodeError:
            raise self._error("the server's message is not UTF-8") from None
        return {part[0]: part[2:] for part in parts if part[1:2] == "="}

    def _unbase64(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._error("the server's message is not base64") from None

    def _error(self, message: str, *, hint: str = "") -> KafkaError:
        return KafkaError(f"{self._place}: SCRAM: {message}", hint=hint)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._digest).digest()
