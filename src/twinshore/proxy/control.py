"""What a process hears of fuses and of resets of groups from the store, and what it says there: what it goes by, and
what its fuses answered.

A store that is away changes nothing: the fuses stay as they were heard of last, and what they answered is told later.
A process that starts meanwhile goes by the file of the last one, or waits for the store a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from twinshore.client.centres import last_good
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.clock import steady_s
from twinshore.proxy.core.fuses import Drop, Fusebox
from twinshore.proxy.core.resets import ResetBook, awaited
from twinshore.service.clock import wall_ms
from twinshore.store import (
    DropRow,
    FuseCountRow,
    FuseKey,
    FuseRow,
    InstanceRow,
    ResetRow,
    ResetWord,
    Store,
)

_ResetHeard = tuple[int, tuple[ResetRow, ...]]
EVERY_S: Final = 0.5
# Where nothing has changed: so that it is seen to live.
TELL_S: Final = 2.0
END_S: Final = 3.0
FIRST_S: Final = 5.0  # how long a process that remembers no fuses waits for a store that does not answer


class ResetHearing:
    """What a process hears of resets of groups, and when it says that it holds one. `on_its_way`: whether something
    that is counted by this name is. `changed` is called where other groups are held than before."""

    def __init__(
        self,
        book: ResetBook | None = None,
        on_its_way: Callable[[str], bool] = lambda _: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._book, self._on_its_way, self._changed = book or ResetBook(), on_its_way, changed
        self._told: dict[str, int] = {}

    def read(self, store: Store) -> _ResetHeard | None:
        """In a thread. None where resets are as they were."""
        resets = store.proxy_resets
        return None if resets.revision() == self._book.revision else resets.all()

    def take(self, heard: _ResetHeard | None) -> None:
        """These hold from now on."""
        if heard is not None and self._book.take(heard[1], heard[0]):
            self._changed()

    def tick(self, now_ms: int) -> None:
        """Whoever holds a group and is gone holds it no longer than he said."""
        if self._book.tick(now_ms):
            self._changed()

    def words(self, instance: str, now_ms: int) -> list[ResetWord]:
        """What is to be said now: a group is held once nothing of before is on its way, and some members wait."""
        held = self._book.held()
        self._told = {row.run: self._told[row.run] for row in held if row.run in self._told}
        found = []
        for row in held:
            waits = self._book.waiting[row.group]
            if self._told.get(row.run) != waits and (row.run in self._told or not self._is_busy(row)):
                found.append(ResetWord(instance, row.run, waits, now_ms))
        return found

    def _is_busy(self, row: ResetRow) -> bool:
        return any(map(self._on_its_way, awaited(row)))

    def told(self, words: Sequence[ResetWord]) -> None:
        """The store has these."""
        self._told |= {word.run: word.waits for word in words}


T = TypeVar("T")
_Heard = tuple[int, tuple[FuseRow, ...]]
_FUSES: Final = TypeAdapter(_Heard)


class Control:
    """`serves`: this process, as others are to see it. `memory`: the file that keeps fuses for one that starts while
    the store is away."""

    def __init__(
        self,
        store: Callable[[], Store | None],
        box: Fusebox,
        serves: InstanceRow,
        log: Callable[[str], None],
        resets: ResetHearing | None = None,
        memory: Path | None = None,
    ) -> None:
        self._memory, self._unkept = memory, Once(log)
        self._resets = resets or ResetHearing()
        self._stores, self._box, self._serves = store, box, serves
        self._store: Store | None = None
        self._told, self._rows = Once(log), dict[FuseKey, FuseCountRow]()
        self._dropped: dict[tuple[str, str, int], int] = {}
        self._told_s, self._told_revision = -TELL_S, -1
        self._threads = ThreadPoolExecutor(1, "control")
        self._last: set[FuseKey] = set()
        self._log = log

    async def first(self) -> None:
        """Hears which fuses there are, before any client is served."""
        self._tick()
        await self._exchange()
        if not self._box.known and self._memory is not None and (kept := fuses_in(last_good.kept(self._memory) or "")):
            self._box.take(kept[1], kept[0])
            self._log(f"fuses are as {self._memory} remembers them until the store answers")
        until_s = steady_s() + FIRST_S
        while not self._box.known and steady_s() < until_s:
            await asyncio.sleep(EVERY_S)
            await self._exchange()
        if not self._box.known:
            self._log(
                "which fuses cut is not known, and none does until the store answers; [proxy] memory_file keeps them"
            )

    async def run(self) -> None:
        """Until it is cancelled. A store that hangs holds up no fuse that is to trip or to close by itself."""
        await asyncio.gather(self._ticks(), self._exchanges())

    async def end(self) -> None:
        """Says the last, and that the process serves no more."""
        if self._store is not None:
            self._told_s = -TELL_S
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._exchange()
                    await self._call(partial(self._leave, self._store))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ticks(self) -> None:
        while True:
            self._tick()
            await asyncio.sleep(EVERY_S)

    async def _exchanges(self) -> None:
        while True:
            await self._exchange()
            await asyncio.sleep(EVERY_S)

    def _tick(self) -> None:
        self._box.tick(steady_s(), wall_ms())
        self._resets.tick(wall_ms())
        tripped = self._box.all_tripped()
        for key in tripped - self._last:
            self._log(f"the {key.kind} fuse of {key.topic} for clients {key.client} has tripped: a limit was passed")
        for key in self._last - tripped:
            self._log(f"the {key.kind} fuse of {key.topic} for clients {key.client} is closed again")
        self._last = tripped

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _exchange(self) -> None:
        try:
            self._store = await self._call(self._stores)
            if self._store is None:
                self._box.known = True
                return
            heard = await self._call(partial(_read, self._store, self._box.revision))
            if heard is not None:
                self._box.take(heard[1], heard[0])
                await self._call(partial(self._keep, heard))
            self._box.known = True
            self._resets.take(await self._call(partial(self._resets.read, self._store)))
            await self._tell(self._store)
        except Exception as error:  # whoever ended here would never hear of a fuse again
            self._told.say(f"{in_words(error)}: fuses stay as they are")
            return
        self._told.well("the store answers again: fuses are as it says")

    def _keep(self, heard: _Heard) -> None:
        if self._memory is None:
            return
        try:
            last_good.keep(self._memory, _FUSES.dump_json(heard).decode())
        except (OSError, ValueError) as error:
            self._unkept.say(
                f"{self._memory} cannot be written: {error}; a proxy that starts without the store has no fuses"
            )
        else:
            self._unkept.well()

    async def _tell(self, store: Store) -> None:
        if words := self._resets.words(self._serves.id, wall_ms()):
            await self._call(partial(store.proxy_resets.tell, words))
            self._resets.told(words)
        drops = self._drops()
        quiet = not drops and self._box.revision == self._told_revision
        if quiet and steady_s() - self._told_s < TELL_S:
            return
        now_ms, ended, revision = wall_ms(), list(self._box.ended), self._box.revision
        counts = self._counts(now_ms)
        serves = replace(self._serves, revision=revision, seen_ms=now_ms)
        await self._call(partial(store.proxies.tell, serves, list(counts.values()), drops))
        self._rows |= counts
        self._told_s, self._told_revision = steady_s(), revision
        self._dropped |= {(row.topic, row.client, row.since_ms): row.records for row in drops}
        for one in ended:
            self._box.ended.remove(one)
            self._dropped.pop((one[0], one[1], one[2].since_ms), None)

    def _counts(self, now_ms: int) -> dict[FuseKey, FuseCountRow]:
        """Those that are other than they were told last."""
        found: dict[FuseKey, FuseCountRow] = {}
        for key, tally in self._box.tallies.items():
            row = FuseCountRow(
                self._serves.id, *key, tally.requests, tally.records, tally.bytes, self._box.tripped(key), now_ms
            )
            known = self._rows.get(key)
            if known is None or replace(known, changed_ms=now_ms) != row:
                found[key] = row
        return found

    def _drops(self) -> list[DropRow]:
        open_now = [(topic, client, drop) for (topic, client), drop in self._box.drops.items()]
        rows = [self._row(topic, client, drop) for topic, client, drop in [*self._box.ended, *open_now]]
        return [row for row in rows if self._dropped.get((row.topic, row.client, row.since_ms)) != row.records]

    def _row(self, topic: str, client: str, drop: Drop) -> DropRow:
        partitions = ",".join(map(str, sorted(drop.partitions)))
        where = (self._serves.id, topic, client, drop.since_ms, drop.fuse, partitions)
        return DropRow(*where, drop.records, drop.bytes, drop.until_ms)

    def _leave(self, store: Store) -> None:
        store.proxies.leave(self._serves.id)
        store.proxies.forget_before(wall_ms())


def fuses_in(text: str) -> _Heard | None:
    """What `_keep` wrote; None where it is something else."""
    try:
        return _FUSES.validate_json(text)
    except ValueError:
        return None


def _read(store: Store, known: int) -> _Heard | None:
    """None where fuses are as they were."""
    return None if store.proxies.revision() == known else store.proxies.fuses()
