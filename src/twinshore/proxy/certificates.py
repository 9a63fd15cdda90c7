"""The proxy's own certificate, what clients' certificates say of them, and handshakes that fail, in plain words."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

from twinshore.fleet import ConfigError
from twinshore.fleet.once import Once
from twinshore.fleet.settings.sections.proxy import ProxySettings

T = TypeVar("T")
_Stamp: TypeAlias = list[tuple[int, int, int] | None]


class Watched(Generic[T]):
    """`value` is as of the files' last good state: what cannot be made of them is said, and what was made before stays.
    The first time that is a ConfigError. `what` is whose sentences these are."""

    def __init__(self, what: str, files: Sequence[str], make: Callable[[], T], log: Callable[[str], None]) -> None:
        self._what, self._make, self._log, self._told = what, make, log, Once(log)
        self._files = [Path(file) for file in files if file]
        self._good = self._stamp()
        self._bad: _Stamp = []
        self.value = make()

    def look(self) -> None:
        """Now and then. Files that are exchanged one after the other do not fit each other in between: what is wrong is
        said once it was wrong twice."""
        stamp = self._stamp()
        if stamp == self._good:
            self._bad = []
            return
        try:
            self.value = self._make()
        except ConfigError as error:
            if stamp == self._bad:
                self._told.say(f"{self._what}: {error}: what was read before stays in force")
            self._bad = stamp
            return
        self._good, self._bad = stamp, []
        self._told.well()
        self._log(f"{self._what}: the files have changed, and are in force")

    def _stamp(self) -> _Stamp:
        return [_stamp_of(file) for file in self._files]


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# What OpenSSL says of bytes that are no TLS at all.
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "RECORD_LAYER_FAILURE",
    "BAD_RECORD_TYPE",
)
_TOO_OLD: Final = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "NO_SHARED_CIPHER")
# As Java and so Kafka abbreviates them.
_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


class _Inside(ssl.SSLObject):
    """A connection that remembers by which name the client came."""

    name_asked = ""


def _remember(inside: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
    if isinstance(inside, _Inside):
        inside.name_asked = name or ""


def name_asked(inside: object) -> str:
    """The name that the client has asked for in its handshake (SNI); empty where it came by an address."""
    return inside.name_asked if isinstance(inside, _Inside) else ""


def server_context(asked: ProxySettings) -> ssl.SSLContext:
    """For clients' connections, of the files as they are now; ConfigError where they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Always a password: without one OpenSSL asks at the terminal, and the process hangs.
        context.load_cert_chain(asked.certificate_file, asked.key_file, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"[proxy] certificate_file {asked.certificate_file} with key_file {asked.key_file} cannot be used: {error}",
            hint="PEM files that belong together, and that this user can read",
        ) from error
    if asked.client_ca_file:
        try:
            context.load_verify_locations(asked.client_ca_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(f"[proxy] client_ca_file {asked.client_ca_file} cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    if asked.node_hosts:
        context.sslobject_class, context.sni_callback = _Inside, _remember
    return context


def subject_of(certificate: Mapping[str, Any] | None) -> str:
    """The subject as Kafka names a principal: `CN=app,O=corp`, the narrowest part first; empty without one."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in (certificate or {}).get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)
    return f"\\{text}" if text[:1] in ("#", " ") else text


def why_no_handshake(error: Exception) -> str:
    """Why a client is hung up on; empty where it went by itself, as what only looks whether a port is open does."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason in _NO_TLS:
            return "it speaks no TLS, and this port does"
        if reason in _TOO_OLD:
            return f"it speaks no TLS that is taken here: {_spoken(reason)}"
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "it shows no certificate, and [proxy] client_ca_file asks for one"
        if "ALERT" in reason:
            return f"it does not accept the proxy's certificate, or its TLS: {_spoken(reason)}"
        return f"its TLS handshake failed: {_spoken(reason)}"
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "its TLS handshake took too long"
    return "" if isinstance(error, ConnectionError) else f"its TLS handshake failed: {error or type(error).__name__}"


def _spoken(reason: str) -> str:
    return reason.replace("_", " ").lower()
