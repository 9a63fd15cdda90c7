"""What the desk's core wants done, as values, and whom it means by them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from twinshore.mirror.core.desk_words import OfDesk
from twinshore.mirror.lane.orders import Carried, Stoppage

LaneKey = tuple[str, int]


class Seat(NamedTuple):
    """A pump that the desk has let in: one tide of a lane. `visit` is the desk's own number for it: a later term of the
    link opens the same lane and numbers its tides anew."""

    link: str
    lane: int
    tide: int
    visit: int

    @property
    def key(self) -> LaneKey:
        return self.link, self.lane


@dataclass(frozen=True, slots=True)
class Account:
    """What one message of a pump brought: for the store and for the live table."""

    link: str
    lane: int
    carried: tuple[Carried, ...]
    incidents: tuple[Stoppage, ...]
    speed: dict[str, float]


class Tell(NamedTuple):
    """Say this to the pump."""

    seat: Seat
    word: OfDesk


class Keep(NamedTuple):
    """Give this to whoever writes it down."""

    account: Account


class Dismiss(NamedTuple):
    """Hang up on the pump, which may not hear of it."""

    seat: Seat


Command = Tell | Keep | Dismiss
