"""Authentication of clients, and logins to brokers for them, by settings and their files."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import ssl
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from twinshore.config.declaration import setting
from twinshore.config.errors import ConfigError, KafkaError, TwinshoreError
from twinshore.config.model import Cluster, SaslMechanism, Secret
from twinshore.config.repeat_filter import RepeatFilter
from twinshore.config.schema import Complaints, read_secret, read_section
from twinshore.config.sections.proxy import OWN_CREDENTIALS, SAME_CREDENTIALS, ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.kafka.connection import open_connection
from twinshore.kafka.pool import parse_address
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.sasl import ScramKeys, derive_scram_keys, parse_scram_keys
from twinshore.kafka.transport import client_context
from twinshore.proxy.broker_connection import CONNECT_TIMEOUT_S, BrokerAccess, TokenCache
from twinshore.proxy.core.login import (
    AcceptLogin,
    CheckCredentials,
    ClientLogin,
    ClientPrincipal,
    ContinueLogin,
    RefuseLogin,
)
from twinshore.proxy.core.model import ApiVersionRanges, DisconnectClient, Parts

log = logging.getLogger(__name__)

T = TypeVar("T")
_Stamp: TypeAlias = list[tuple[int, int, int] | None]
# OpenSSL's reasons for bytes that are not TLS.
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "RECORD_LAYER_FAILURE",
    "BAD_RECORD_TYPE",
)
_TOO_OLD: Final = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "NO_SHARED_CIPHER")
# The abbreviations of Java, and so of Kafka.
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
LOGIN_TIMEOUT_S: Final = 30.0
# The delay of a refusal, longer than a broker's (connection.failed.authentication.delay.ms).
LOGIN_FAILURE_DELAY_S: Final = 0.5
# The default of Kafka's own tool.
SCRAM_ITERATIONS: Final = 4096
SALT_BYTES: Final = 24
_DIGEST_BYTES: Final = 64
_MECHANISM: Final = SaslMechanism.SCRAM_SHA_512
# Logins checked at once.
LOGIN_CHECK_THREADS = 4
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_WRONG = (Code.sasl_authentication_failed, Code.unsupported_sasl_mechanism)


class ReloadedFile(Generic[T]):
    """A value made from files, and made again when they change.

    A failed reload is logged, and the last good `value` stays; the constructor raises ConfigError. `what`: prefix of
    log lines.
    """

    def __init__(self, what: str, files: Sequence[str], make: Callable[[], T]) -> None:
        self._what, self._make, self._repeat_filter = what, make, RepeatFilter(log)
        self._files = [Path(file) for file in files if file]
        self._good = self._stamp()
        self._bad: _Stamp = []
        self.value = make()

    def look(self) -> None:
        """Reload if the files have changed; call periodically.

        Files replaced one after the other may not match for a moment, so only a repeated error is logged.
        """
        stamp = self._stamp()
        if stamp == self._good:
            self._bad = []
            return
        try:
            self.value = self._make()
        except ConfigError as error:
            if stamp == self._bad:
                self._repeat_filter.say(f"{self._what}: {error}: what was read before stays in force")
            self._bad = stamp
            return
        self._good, self._bad = stamp, []
        self._repeat_filter.well()
        log.info(f"{self._what}: the files have changed, and are in force")

    def _stamp(self) -> _Stamp:
        return [_stamp_of(file) for file in self._files]


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class _Inside(ssl.SSLObject):
    """A TLS connection that remembers the name the client asked for (SNI)."""

    sni_hostname = ""


def _remember(inside: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
    if isinstance(inside, _Inside):
        inside.sni_hostname = name or ""


def get_sni_hostname(inside: object) -> str:
    """Returns the host name of the TLS handshake (SNI); empty without one."""
    return inside.sni_hostname if isinstance(inside, _Inside) else ""


def create_server_context(settings: ProxySettings) -> ssl.SSLContext:
    """Create the context for client connections. ConfigError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Always a password: without one OpenSSL asks at the terminal, and the process hangs.
        context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            "proxy.certificate-unusable", certificate=settings.certificate_file, key=settings.key_file, cause=str(error)
        ) from error
    if settings.client_ca_file:
        try:
            context.load_verify_locations(settings.client_ca_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError("proxy.client-ca-unusable", file=settings.client_ca_file, cause=str(error)) from error
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.node_hosts:
        context.sslobject_class, context.sni_callback = _Inside, _remember
    return context


def format_subject(certificate: Mapping[str, Any] | None) -> str:
    """Format the subject as Kafka names a principal, `CN=app,O=corp`; empty without a certificate."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in (certificate or {}).get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)
    return f"\\{text}" if text[:1] in ("#", " ") else text


def describe_handshake_failure(error: Exception) -> str:
    """Returns why a client is disconnected; empty if the client left, as port checks do."""
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


class LoginHandler(Protocol):
    """What a login calls."""

    def say(self, frame: Parts) -> None:
        """Send this response."""

    def let_in(self, principal: ClientPrincipal) -> None:
        """Serve the client as this principal from now on."""

    def see_out(self, frame: Parts, why: str) -> None:
        """Send this response and disconnect; `why` is for the log."""

    def hang_up(self, why: str) -> None:
        """Disconnect at once."""


class SaslHandshake:
    """The login of one client. Refusals are delayed, which slows down guessing.

    While `busy`, the client is not read. `judge` returns why the credentials are wrong, empty if right, None if no
    cluster can check. `refuses` returns why an authenticated principal is not admitted, else empty.
    """

    def __init__(
        self,
        login: ClientLogin,
        judge: Callable[[ClientPrincipal], Awaitable[str | None]],
        now_s: float,
        refuses: Callable[[ClientPrincipal], str] = lambda _: "",
    ) -> None:
        self._login, self._judge, self._refuses = login, judge, refuses
        self._until_s = now_s + LOGIN_TIMEOUT_S
        self._pause: asyncio.TimerHandle | None = None
        self._judging: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._pause is not None or self._judging is not None

    @property
    def software(self) -> str:
        """The client library."""
        return self._login.software

    def late(self, now_s: float) -> bool:
        return now_s > self._until_s

    def take(self, frame: memoryview, offers: ApiVersionRanges, host: LoginHandler) -> None:
        """Process a frame. WireError if unreadable."""
        match self._login.step(frame, offers):
            case ContinueLogin(said):
                host.say(said)
            case AcceptLogin(principal, said, refused):
                if why := self._refuses(principal):
                    self._refuse(refused, why, host)
                else:
                    host.say(said)
                    host.let_in(principal)
            case RefuseLogin(why, said):
                self._refuse(said, why, host)
            case CheckCredentials() as asked:
                self._judging = asyncio.get_running_loop().create_task(self._ask(asked, host))
            case DisconnectClient(why):
                host.hang_up(why)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._judging is not None:
            self._judging.cancel()

    def _refuse(self, said: Parts, why: str, host: LoginHandler) -> None:
        self._pause = asyncio.get_running_loop().call_later(LOGIN_FAILURE_DELAY_S, host.see_out, said, why)

    async def _ask(self, asked: CheckCredentials, host: LoginHandler) -> None:
        why = await self._judge(asked.principal)
        if why == "":
            why = self._refuses(asked.principal)
        self._judging = None
        if why is None:
            host.hang_up("no cluster answers that could say whether its login is right")
        elif why:
            self._refuse(asked.refused, f"its login is refused: {why}", host)
        else:
            host.say(asked.entered)
            host.let_in(asked.principal)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyUserSection:
    """One user."""

    scram_sha_512: str = setting("", "the salted password, as Kafka keeps it: `salt=...,stored_key=...,...`")
    password_env: str = setting("", "environment variable that holds the password")
    password_file: str = setting("", "file that holds the password")


@dataclass(slots=True)
class _User:
    """A user. `proven`: keyed hash of a correct password, since checking a salted one takes long."""

    keys: ScramKeys | None
    password: Secret
    plain: str = ""
    proven: bytes = b""


class UsersOfFile:
    """The users of a TOML file, one table each.

    A password file is read again at each login. A salted password cannot be used for logins elsewhere. Unknown users
    get keys that no password fits, so that neither response nor timing shows which users exist. `seal`: the seed of
    derived salts, the same in each process.
    """

    def __init__(self, users: Mapping[str, _User], seal: bytes = b"") -> None:
        self._users = users
        self._seal = seal or secrets.token_bytes(32)
        self._salted = [one.keys for one in users.values() if one.keys is not None]

    def joined(self, stored: Mapping[str, ScramKeys]) -> UsersOfFile:
        """Returns these users and those of the store, which count first."""
        if not stored:
            return self
        seal = hashlib.sha256(self._seal + repr(sorted((name, keys.text) for name, keys in stored.items())).encode())
        return UsersOfFile(
            {**self._users, **{name: _User(keys, Secret()) for name, keys in stored.items()}}, seal.digest()
        )

    def scram_keys(self, user: str) -> ScramKeys:
        found = self._users.get(user)
        if found is None or not found.password:
            return found.keys if found and found.keys else self._of_nobody(user)
        plain = _read(found.password)
        if not plain:
            return self._of_nobody(user)
        if found.keys is None or not hmac.compare_digest(plain.encode(), found.plain.encode()):
            found.keys = derive_scram_keys(plain, _MECHANISM, self._drawn(user, SALT_BYTES), SCRAM_ITERATIONS)
            found.plain = plain
        return found.keys

    def _of_nobody(self, user: str) -> ScramKeys:
        """Returns keys for an unknown user, like those of a salted user, and always the same for a name."""
        number = int.from_bytes(self._drawn(user, 4))
        like = self._salted[number % len(self._salted)] if self._salted else None
        size, iterations = (len(like.salt), like.iterations) if like else (SALT_BYTES, SCRAM_ITERATIONS)
        drawn = self._drawn(user, size + 2 * _DIGEST_BYTES)
        return ScramKeys(drawn[:size], iterations, drawn[size:-_DIGEST_BYTES], drawn[-_DIGEST_BYTES:])

    def _drawn(self, user: str, size: int) -> bytes:
        return hashlib.shake_256(self._seal + user.encode()).digest(size)

    def check_password(self, user: str, password: str) -> bool:
        found = self._users.get(user)
        if found is not None and found.password:
            plain = _read(found.password)
            return bool(plain) and hmac.compare_digest(plain.encode(), password.encode())
        if found is None and not self._salted:
            return False
        found = found or _User(self._of_nobody(user), Secret())
        assert found.keys is not None
        sealed = hashlib.blake2b(password.encode(), key=self._seal).digest()
        if hmac.compare_digest(sealed, found.proven):
            return True
        tried = derive_scram_keys(password, _MECHANISM, found.keys.salt, found.keys.iterations)
        if not hmac.compare_digest(tried.stored_key, found.keys.stored_key):
            return False
        found.proven = sealed
        return True


def _read(password: Secret) -> str:
    """Returns the password; empty if unreadable now, so that no login succeeds."""
    try:
        return password.read()
    except ConfigError:
        return ""


def read_users(file: str) -> UsersOfFile:
    """Read a users file. ConfigError lists all errors."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        raw: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise ConfigError("proxy.users-file-unreadable", file=file, cause=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("proxy.users-file-not-toml", file=file, cause=str(error)) from error
    complaints = Complaints()
    users = {name: _user(section, f'["{name}"]', complaints) for name, section in raw.items()}
    if complaints.lines:
        raise ConfigError("proxy.users-file-wrong", file=file, errors="; ".join(complaints.lines))
    return UsersOfFile(users, hashlib.sha256(text.encode()).digest())


def _user(raw: object, place: str, complaints: Complaints) -> _User:
    section = read_section(ProxyUserSection, raw, place, complaints) or ProxyUserSection()
    password = read_secret(section.password_env, section.password_file, "password", place, complaints)
    if bool(section.scram_sha_512) == bool(password):
        complaints.add(place, "needs scram_sha_512, or password_env or password_file")
        return _User(None, password)
    try:
        if password:
            password.read()
        return _User(parse_scram_keys(section.scram_sha_512, _MECHANISM) if section.scram_sha_512 else None, password)
    except ConfigError as error:
        complaints.add(place, f"{'scram_sha_512: ' if section.scram_sha_512 else ''}{error}")
        return _User(None, password)


class Authenticator:
    """Authentication for one process; without settings any client is admitted. ConfigError if a file cannot be used."""

    def __init__(self, settings: ProxySettings | None = None, clusters: Sequence[Cluster] = ()) -> None:
        self._settings = settings = settings or ProxySettings()
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._tls_context: ReloadedFile[ssl.SSLContext] | None = None
        self._users: ReloadedFile[UsersOfFile] | None = None
        self._stored: Mapping[str, ScramKeys] = {}
        self._stored_texts: Mapping[str, str] = {}
        self._joined: tuple[UsersOfFile, UsersOfFile] | None = None
        if settings.certificate_file:
            files = (settings.certificate_file, settings.key_file, settings.client_ca_file)
            self._tls_context = ReloadedFile("[proxy] certificate_file", files, lambda: create_server_context(settings))
        if settings.users_file:
            self._users = ReloadedFile(
                "[proxy] users_file", (settings.users_file,), lambda: read_users(settings.users_file)
            )
        self._contexts = {cluster.name: _context_of(cluster) for cluster in clusters if cluster.security.tls}
        self._tokens = TokenCache()
        self._judges = ThreadPoolExecutor(LOGIN_CHECK_THREADS, "judge")
        if settings.sasl and not settings.certificate_file and settings.address not in LOOPBACK_HOSTS:
            log.warning("without [proxy] certificate_file anybody on the way can read what clients send, passwords too")

    def look(self) -> None:
        """Reload changed files; call periodically."""
        for file in (self._tls_context, self._users, *self._contexts.values()):
            if file is not None:
                file.look()

    def close(self) -> None:
        self._judges.shutdown(wait=False, cancel_futures=True)

    def take_users(self, stored: Mapping[str, str]) -> None:
        """Take the users of the store. Clients that are logged in stay."""
        if stored == self._stored_texts:
            return
        found: dict[str, ScramKeys] = {}
        for name, text in stored.items():
            try:
                found[name] = parse_scram_keys(text, _MECHANISM)
            except ConfigError:
                log.warning(f"user {name!r:.80} in the store has no valid keys, and cannot log in")
        self._stored, self._stored_texts, self._joined = found, stored, None

    def _known_users(self) -> UsersOfFile:
        if self._users is None:
            return UsersOfFile({})
        if self._joined is None or self._joined[0] is not self._users.value:
            self._joined = self._users.value, self._users.value.joined(self._stored)
        return self._joined[1]

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context for a new client; None if ports are plain TCP."""
        return self._tls_context.value if self._tls_context else None

    @property
    def tls(self) -> bool:
        """Whether clients or any cluster use TLS."""
        return self._tls_context is not None or bool(self._contexts)

    def entry(self) -> SaslHandshake | None:
        """Returns a new client's login; None if not required."""
        if not self._settings.sasl:
            return None
        login = ClientLogin(self._scram_keys, self._settings.sasl, lambda: secrets.token_urlsafe(24))
        return SaslHandshake(login, self._judge, steady_s(), self.refuses)

    def refuses(self, client_principal: ClientPrincipal) -> str:
        """Returns why an authenticated principal is not admitted, else empty."""
        known = {principal for principal, _ in self._settings.logins}
        if not known or client_principal.name in known or self._settings.credentials_else == OWN_CREDENTIALS:
            return ""
        return f"principal {client_principal.name!r:.80} has no table in [proxy.credentials]"

    def _scram_keys(self, user: str) -> ScramKeys:
        return self._known_users().scram_keys(user)

    def who(self, transport: asyncio.BaseTransport) -> ClientPrincipal:
        """Returns the principal of the client's certificate; unnamed if none is required."""
        return ClientPrincipal(
            format_subject(transport.get_extra_info("peercert")) if self._settings.client_ca_file else ""
        )

    def access(self, cluster: str, principal: ClientPrincipal) -> BrokerAccess:
        """Returns how to connect to the cluster for this client."""
        known = self._clusters.get(cluster) or Cluster(cluster, ())
        context = self._contexts[cluster].value if cluster in self._contexts else None
        security = known.security
        if security.sasl and self._settings.credentials == SAME_CREDENTIALS:
            named = replace(known, security=replace(security, username=principal.name))
            return BrokerAccess(named, self._tokens, context, principal.password)
        if (login := self._settings.logins.get((principal.name, cluster))) is not None:
            security = replace(security, username=login.username, password=login.password)
        return BrokerAccess(replace(known, security=security), self._tokens, context)

    async def _judge(self, principal: ClientPrincipal) -> str | None:
        """Check with the users file; without one, with the first cluster that requires logins and answers.

        Checks have their own threads, so guessing delays no client that is logged in.
        """
        loop = asyncio.get_running_loop()
        if self._users is not None:
            known = await loop.run_in_executor(
                self._judges, self._known_users().check_password, principal.name, principal.password
            )
            return "" if known else f"there is no user {principal.name!r:.80} with this password"
        for cluster in self._clusters.values():
            if cluster.security.sasl:
                said = await loop.run_in_executor(self._judges, _try, cluster, principal)
                if said is not None:
                    return said
        return None


def _context_of(cluster: Cluster) -> ReloadedFile[ssl.SSLContext]:
    security = cluster.security
    files = (security.ca_file, security.cert_file, security.key_file)
    return ReloadedFile(f"[clusters.{cluster.name}.security]", files, lambda: client_context(security))


def _try(cluster: Cluster, principal: ClientPrincipal) -> str | None:
    """Returns why the cluster refuses the login; empty if accepted, None without an answer."""
    security = replace(cluster.security, username=principal.name)
    for text in cluster.bootstrap:
        address = parse_address(text, cluster.name)
        try:
            open_connection(
                address, security, timeout_s=CONNECT_TIMEOUT_S, cluster=cluster.name, given=principal.password
            ).close()
        except KafkaError as error:
            if error.code in _WRONG:
                return error.message
        except TwinshoreError:
            return None
        else:
            return ""
    return None
