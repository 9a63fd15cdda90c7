"""One link's ear for switches: which of its topics they have asked it to let go, and its word once it has.

A switch is another process. It asks in the store, and waits there for the word that no pump writes these topics any
more. Until the switch ends, whichever way, the link leaves them alone; then the homes say whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Protocol, TypeVar

from twinshore.fleet import Link, Naming
from twinshore.links.homes import pair_of
from twinshore.mirror.incidents.standing import Standing
from twinshore.service.clock import wall_ms
from twinshore.store import Asked, Store

T = TypeVar("T")


class SwitchedLanes(Protocol):
    """What it needs of the desk."""

    def withdraw(self, link: str, topic: str) -> bool: ...

    def past_is_over(self, link: str) -> bool: ...


class Written(Protocol):
    """What it needs of who writes down what pumps tell."""

    def written(self) -> bool: ...

    def forget(self, link: str, topic: str) -> None: ...


class InSwitch:
    """`leaving`: the topics that are to be let go or have been, each with a sentence, until their switch ends."""

    def __init__(
        self, link: Callable[[], Link], store: Store, desk: SwitchedLanes, recorder: Written, log: Callable[[str], None]
    ) -> None:
        self._now, self._store, self._desk, self._recorder, self._log = link, store, desk, recorder, log
        self._version = -1
        self._untold: set[str] = set()
        self._given: set[str] = set()
        self.leaving: dict[str, str] = {}

    def anew(self) -> None:
        """Another process may have carried the link."""
        self._version, self.leaving = -1, {}
        self._untold.clear()

    def changed(self) -> bool:
        """Whether what is asked of the link, or where a topic of its pair is at home, is another than at the last
        call."""
        link = self._now()
        if link.naming is not Naming.SAME:
            return False
        version = self._store.switching.version_lately(pair_of(link))
        if version == self._version:
            return False
        rows = [row for row in self._store.switching.of_link(link.name) if row.asked is Asked.LET_GO]
        self.leaving = {row.topic: f"topic {row.topic} is let go to a switch" for row in rows}
        self._untold = {row.topic for row in rows if not row.let_go_ms}
        first, self._version = self._version < 0, version
        return not first

    def let_go(self, *, active: bool) -> None:
        """Where the link is ours, says which topics no pump writes any more. All that pumps told of them is written
        down first: nothing of them is, after that."""
        if not self._untold or not active:
            return
        name = self._now().name
        gone = {topic for topic in sorted(self._untold) if self._desk.withdraw(name, topic)}
        if not gone or not self._desk.past_is_over(name) or not self._recorder.written():
            return
        self._store.switching.let_go(name, gone, wall_ms())
        self._untold -= gone
        self._given |= gone
        for topic in sorted(gone):
            self._log(f"{name}: topic {topic} is let go: a switch moves it")

    def leaves(self, topic: str) -> bool:
        """Whether a switch has it, or is to have it."""
        return topic in self.leaving

    def staying(self, names: Mapping[str, T]) -> dict[str, T]:
        """Those of the topics that no switch has asked for."""
        return {name: seen for name, seen in names.items() if name not in self.leaving}

    def forget(self, elsewhere: Container[str], standing: Standing) -> None:
        """What is shown of topics that were let go, and are at home elsewhere by now, is past."""
        moved = {topic for topic in self._given if topic in elsewhere}
        self._given -= moved
        for topic in moved:
            self._recorder.forget(self._now().name, topic)
            standing.forget(topic)
