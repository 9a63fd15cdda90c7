"""What a round wishes to commit in one direction, and what it did. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from twinshore.groups.place import Decision, State
from twinshore.wire.group_places import Place, Where


@dataclass(slots=True)
class Wish:
    """A place to be committed: where it was read, what was decided, how far the target would still be behind."""

    where: Where
    decision: Decision
    place: Place
    behind: int


@dataclass(slots=True)
class Turn:
    """What a round did. `told`: sentences for whoever runs the link. `unheard`: groups of the reading side whose places
    it did not say; None: a whole coordinator did not."""

    groups: int = 0
    changed: int = 0
    moved: Counter[State] = field(default_factory=Counter)
    commits: int = 0
    told: dict[str, str] = field(default_factory=dict)
    unheard: Collection[str] | None = None
