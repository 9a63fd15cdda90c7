"""Tokens of an endpoint, for all connections of a cluster's user: thousands of clients must not fetch one each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twinshore.fleet import Security
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.oauth import Token, fetch_token

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
