"""What runs beside a link in the same process and is not the mirror's business: rooms further down bring it along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twinshore.fleet import Link
from twinshore.fleet.settings import Settings
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class Beside:
    """A link that this process runs. `active`: whether it is ours to act for at this moment, by its lease."""

    link: Link
    settings: Settings
    store: Store
    active: Callable[[], bool]
    log: Callable[[str], None]


class Companion(Protocol):
    """It starts with its making, in a task or a thread, and its failures stay its own."""

    def close(self) -> None:
        """Ends it; called before the link gives back its lease."""


Start = Callable[[Beside], Companion]
