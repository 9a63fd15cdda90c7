"""What a process hears of resets of groups, and when it says that it holds one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinshore.proxy.core.resets import ResetBook, awaited
from twinshore.store import ResetRow, ResetWord, Store

_Heard = tuple[int, tuple[ResetRow, ...]]


class ResetHearing:
    """`on_its_way`: whether something that is counted by this name is. `changed` is called where other groups are
    held than before."""

    def __init__(
        self,
        book: ResetBook | None = None,
        on_its_way: Callable[[str], bool] = lambda _: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._book, self._on_its_way, self._changed = book or ResetBook(), on_its_way, changed
        self._told: dict[str, int] = {}

    def read(self, store: Store) -> _Heard | None:
        """In a thread. None where resets are as they were."""
        resets = store.proxy_resets
        return None if resets.revision() == self._book.revision else resets.all()

    def take(self, heard: _Heard | None) -> None:
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
