"""What a server knows of the store: looked at many times a second, in one place however many clients wait.

Requests are answered from here, so a store that is away for a moment is not noticed. Of one that hangs only the look
waits. What is older than half a minute is told to nobody: a client has its own, and another server may know better.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

from twinshore.client.centres.pushed import Tag
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.clock import steady_s
from twinshore.store import PushRow, Store, TokenRow

LOOK_S = 0.3
STALE_S = 30.0


def tag_of(row: PushRow) -> Tag:
    """By which clients know the push."""
    return Tag(row.revision, row.digest)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, or so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Board:
    """`look` is called until `stop`; all else is asked meanwhile, in the same event loop."""

    def __init__(self, store: Store, log: Callable[[str], None]) -> None:
        self._store, self._told = store, Once(log)
        self._rows: dict[str, PushRow] = {}
        self._tokens: dict[str, TokenRow] = {}
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._stopped, self._looking = asyncio.Event(), asyncio.Lock()
        self._looked_s = steady_s()

    def push(self, app: str) -> PushRow | None:
        """What the application's clients are told."""
        row = self._rows.get(app)
        return row if row is not None and row.text else None

    def token(self, digest: str) -> TokenRow | None:
        """The token of this digest, if it counts."""
        return self._tokens.get(digest)

    @property
    def apps(self) -> int:
        """How many applications have a push."""
        return sum(bool(row.text) for row in self._rows.values())

    @property
    def waiting(self) -> int:
        """How many clients wait for news."""
        return sum(map(len, self._waiting.values()))

    @property
    def is_stale(self) -> bool:
        """Whether others may know better by now."""
        return self.age_s > STALE_S

    @property
    def age_s(self) -> float:
        """For how long the store has not been seen."""
        return steady_s() - self._looked_s

    async def changed(self, app: str, seen: Tag, within_s: float) -> None:
        """Returns once the application's push is not the one that was seen, after this time, or at the end."""
        row = self.push(app)
        if row is None or tag_of(row) != seen or self._stopped.is_set():
            return
        news = asyncio.Event()
        self._waiting[app].add(news)
        try:
            await _within(news, within_s)
        finally:
            self._waiting[app].discard(news)
            if not self._waiting[app]:
                del self._waiting[app]

    async def look(self) -> None:
        """Until `stop`."""
        while not self._stopped.is_set():
            await self.refresh()
            await _within(self._stopped, LOOK_S)

    async def refresh(self) -> None:
        """Looks once; what cannot be seen stays as it was known. One look at a time: none that began before another
        puts back what that one has seen."""
        async with self._looking:
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            rows, tokens = await asyncio.to_thread(self._read, self._rows)
        except Exception as error:  # whoever ended here would tell clients old things for ever
            self._told.say(
                f"{in_words(error)}: for {STALE_S:g} s clients are told what was known before, and nothing then"
            )
            return
        self._told.well()
        changed = {app for app in rows.keys() | self._rows.keys() if rows.get(app) != self._rows.get(app)}
        self._rows, self._tokens, self._looked_s = rows, tokens, steady_s()
        for app in changed:
            self._wake(app)

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped.set()
        for app in list(self._waiting):
            self._wake(app)

    def _wake(self, app: str) -> None:
        for news in self._waiting.get(app, ()):
            news.set()

    def _read(self, known: dict[str, PushRow]) -> tuple[dict[str, PushRow], dict[str, TokenRow]]:
        store = self._store.pushes
        revisions = store.revisions()
        same = {app: row for app, row in known.items() if revisions.get(app) == row.revision}
        news = sorted(revisions.keys() - same.keys())
        return {**same, **(store.of(news) if news else {})}, {one.digest: one for one in store.tokens()}
