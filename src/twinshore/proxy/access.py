"""How a broker is reached: plainly, by TLS, with a login of the cluster's own user or of the client's."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from twinshore.fleet import Cluster, SaslMechanism, Security, TwinshoreError
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.oauth import Token, fetch_token
from twinshore.kafka.opening import credentials_of
from twinshore.kafka.sasl import choose, log_in
from twinshore.kafka.transport import explain_tls_error
from twinshore.proxy.core.seen import Broker
from twinshore.wire.exchange import Question, Talk

# One that does not say when it ends serves so long.
OPAQUE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Kept:
    token: Token
    until_s: float


class Tokens:
    """Those of a process. A token serves for half of its life: then a session that it opens lasts as long again. One in
    a file is read each time. Safe for several threads; who comes while one is fetched waits for it."""

    def __init__(
        self,
        fetch: Callable[[Security, float], Token] = lambda security, left_s: fetch_token(security, timeout_s=left_s),
        now_s: Callable[[], float] = lambda: wall_ms() / 1000,
    ) -> None:
        self._fetch, self._now_s = fetch, now_s
        self._kept: dict[Security, _Kept] = {}
        self._turns: dict[Security, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, security: Security, timeout_s: float) -> str:
        """A token for whoever this is; KafkaError where none is to be had."""
        if not security.token_url:
            return self._fetch(security, timeout_s).text
        with self._lock:
            turn = self._turns.setdefault(security, threading.Lock())
        with turn:
            kept, now_s = self._kept.get(security), self._now_s()
            if kept is None or now_s >= kept.until_s:
                token = self._fetch(security, timeout_s)
                lasts_s = (token.expires_s - now_s) / 2 if token.expires_s else OPAQUE_S
                kept = self._kept[security] = _Kept(token, now_s + lasts_s)
            return kept.token.text


# As long as a connection may take to be there, with all that is said before the first request.
DIAL_S: Final = 10.0
# Log in again before the broker ends the session.
LIFETIME_PART: Final = 0.8

Learnt = TypeVar("Learnt")
Asking = Callable[[Question], Awaitable[memoryview]]


@dataclass(frozen=True, slots=True)
class Access:
    """To the brokers of a cluster. `given`: a password that the client showed, in place of one that is kept."""

    cluster: Cluster
    tokens: Tokens
    context: ssl.SSLContext | None = None
    given: str = field(default="", repr=False)

    async def log_in(self, broker: Broker, ask: Asking) -> float:
        """After so many seconds it must log in again; 0 for never. KafkaError where it is refused."""
        security = self.cluster.security
        mechanism = security.sasl
        if mechanism is None:
            return 0.0
        place = self._place(broker)
        await _hold(choose(mechanism, place), ask)
        # Tokens are fetched, files are read, and a proof of SCRAM takes long: other clients go on meanwhile.
        given = self.given
        if mechanism is SaslMechanism.OAUTHBEARER:
            given = await asyncio.to_thread(self.tokens.of, security, DIAL_S)
        credentials = await asyncio.to_thread(credentials_of, security, mechanism, DIAL_S, given)
        return LIFETIME_PART * await _hold(log_in(credentials, place), ask)

    def why(self, error: Exception, broker: Broker) -> str:
        """Why the broker is not reached."""
        if isinstance(error, TwinshoreError):
            return str(error)
        if isinstance(error, ssl.SSLError):
            return str(explain_tls_error(error, self._place(broker)))
        reason = getattr(error, "strerror", "") or str(error)
        if not reason:
            reason = f"no answer within {DIAL_S:g} s" if isinstance(error, TimeoutError) else "it closed the connection"
        return f"{self._place(broker)} cannot be reached: {reason}"

    def _place(self, broker: Broker) -> str:
        return f"{self.cluster.name} {broker.host}:{broker.port}"


@dataclass(frozen=True, slots=True)
class _End(Generic[Learnt]):
    """What a talk came to."""

    learnt: Learnt


def _step(talk: Talk[Learnt], answer: memoryview | None) -> Question | _End[Learnt]:
    try:
        return next(talk) if answer is None else talk.send(answer)
    except StopIteration as end:
        return _End(end.value)


async def _hold(talk: Talk[Learnt], ask: Asking) -> Learnt:
    answer: memoryview | None = None
    while True:
        found = await asyncio.to_thread(_step, talk, answer)
        if isinstance(found, _End):
            return found.learnt
        answer = await ask(found)
