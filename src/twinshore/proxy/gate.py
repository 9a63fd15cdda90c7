"""Who comes in, and as whom they are led on: certificates, users and credentials, as settings and their files say."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from twinshore.fleet import Cluster, KafkaError, TwinshoreError
from twinshore.fleet.settings.sections.proxy import OWN, SAME, ProxySettings
from twinshore.kafka.clock import steady_s
from twinshore.kafka.errors import Code
from twinshore.kafka.nodes import parse_address
from twinshore.kafka.opening import open_connection
from twinshore.kafka.sasl import ScramKeys
from twinshore.kafka.transport import client_context
from twinshore.proxy.access import DIAL_S, Access, Tokens
from twinshore.proxy.certificates import Watched, server_context, subject_of
from twinshore.proxy.core.login import Login, Who
from twinshore.proxy.entry import Entry
from twinshore.proxy.users import UsersOfFile, read_users

# So many logins are tried at once.
JUDGES = 4
LOCAL = ("127.0.0.1", "::1", "localhost")
_WRONG = (Code.SASL_AUTHENTICATION_FAILED, Code.UNSUPPORTED_SASL_MECHANISM)


class Gate:
    """That of a process; without settings anybody comes in, by plain TCP. ConfigError where a file cannot be used."""

    def __init__(
        self,
        asked: ProxySettings | None = None,
        clusters: Sequence[Cluster] = (),
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._asked = asked = asked or ProxySettings()
        self._clusters = {one.name: one for one in clusters}
        self._tls_context: Watched[ssl.SSLContext] | None = None
        self._users: Watched[UsersOfFile] | None = None
        if asked.certificate_file:
            files = (asked.certificate_file, asked.key_file, asked.client_ca_file)
            self._tls_context = Watched("[proxy] certificate_file", files, lambda: server_context(asked), log)
        if asked.users_file:
            self._users = Watched("[proxy] users_file", (asked.users_file,), lambda: read_users(asked.users_file), log)
        self._contexts = {one.name: _context_of(one, log) for one in clusters if one.security.tls}
        self._tokens = Tokens()
        self._judges = ThreadPoolExecutor(JUDGES, "judge")
        if asked.sasl and not asked.certificate_file and asked.address not in LOCAL:
            log("without [proxy] certificate_file anybody on the way can read what clients send, passwords too")

    def look(self) -> None:
        """Now and then: at files that may have changed."""
        for one in (self._tls_context, self._users, *self._contexts.values()):
            if one is not None:
                one.look()

    def close(self) -> None:
        """Nobody waits to be let in any more."""
        self._judges.shutdown(wait=False, cancel_futures=True)

    @property
    def tls_context(self) -> ssl.SSLContext | None:
        """For a client that comes now; None where ports speak no TLS."""
        return self._tls_context.value if self._tls_context else None

    @property
    def tls(self) -> bool:
        """Whether any side speaks it."""
        return self._tls_context is not None or bool(self._contexts)

    def entry(self) -> Entry | None:
        """How a client logs in; None where nobody need do so."""
        if not self._asked.sasl:
            return None
        login = Login(self._scram_keys, self._asked.sasl, lambda: secrets.token_urlsafe(24))
        return Entry(login, self._judge, steady_s(), self.refuses)

    def refuses(self, who: Who) -> str:
        """Why this principal is not let in, whatever it has proven; empty where it is."""
        known = {principal for principal, _ in self._asked.logins}
        if not known or who.name in known or self._asked.credentials_else == OWN:
            return ""
        return f"principal {who.name!r:.80} has no table in [proxy.credentials]"

    def _scram_keys(self, user: str) -> ScramKeys:
        return (self._users.value if self._users else UsersOfFile({})).scram_keys(user)

    def who(self, transport: asyncio.BaseTransport) -> Who:
        """Whom a client's certificate names."""
        return Who(subject_of(transport.get_extra_info("peercert")) if self._asked.client_ca_file else "")

    def access(self, cluster: str, who: Who) -> Access:
        """How this client is led to the cluster's brokers."""
        known = self._clusters.get(cluster) or Cluster(cluster, ())
        context = self._contexts[cluster].value if cluster in self._contexts else None
        security = known.security
        if security.sasl and self._asked.credentials == SAME:
            named = replace(known, security=replace(security, username=who.name))
            return Access(named, self._tokens, context, who.password)
        if (login := self._asked.logins.get((who.name, cluster))) is not None:
            security = replace(security, username=login.username, password=login.password)
        return Access(replace(known, security=security), self._tokens, context)

    async def _judge(self, who: Who) -> str | None:
        """By the users file; without one by what the first cluster says that asks for logins and answers. Whoever tries
        many passwords waits for his like, and holds up nobody who is known."""
        loop = asyncio.get_running_loop()
        if self._users is not None:
            known = await loop.run_in_executor(self._judges, self._users.value.knows, who.name, who.password)
            return "" if known else f"there is no user {who.name!r:.80} with this password"
        for one in self._clusters.values():
            if one.security.sasl:
                said = await loop.run_in_executor(self._judges, _try, one, who)
                if said is not None:
                    return said
        return None


def _context_of(cluster: Cluster, log: Callable[[str], None]) -> Watched[ssl.SSLContext]:
    security = cluster.security
    files = (security.ca_file, security.cert_file, security.key_file)
    return Watched(f"[clusters.{cluster.name}.security]", files, lambda: client_context(security), log)


def _try(cluster: Cluster, who: Who) -> str | None:
    """Why the cluster does not let in whoever this is; empty where it does, None where it does not answer."""
    security = replace(cluster.security, username=who.name)
    for text in cluster.bootstrap:
        address = parse_address(text, cluster.name)
        try:
            open_connection(address, security, timeout_s=DIAL_S, cluster=cluster.name, given=who.password).close()
        except KafkaError as error:
            if error.code in _WRONG:
                return error.message
        except TwinshoreError:
            return None
        else:
            return ""
    return None
