"""Who may pump a lane now: one holder, perhaps an heir standing by, never two. Pure; the desk moves the bytes.

The holder writes only while its grant lasts, measured on its own clock. When it says where it stands, the heir goes on
from there at once; when it is lost, the heir waits the grant out and looks for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twinshore.fleet import NamedPartition
from twinshore.mirror.lane.orders import Handover

# A grant measured here ends later than the same grant measured by the pump, which counts from before it asked.
SLACK_S = 0.25


@dataclass(frozen=True, slots=True)
class Say:
    """A message to one pump. `finish`: stop and say where you stand; `go`: begin; `grant`: go on for so long."""

    tide: int
    what: str
    grant_s: float = 0.0
    handovers: tuple[Handover, ...] = ()


@dataclass(slots=True)
class Relay:
    """One lane's state. Every method returns what is to be said."""

    grant_s: float
    holder: int | None = None
    heir: int | None = None
    granted_until_s: float = 0.0
    # Until then a broker that throttles the holder may take what it was sent before, whether or not the holder lives.
    # It knows better only when it stops in good order.
    lands_until_s: float = 0.0
    finishing: bool = False
    handovers: tuple[Handover, ...] = field(default=())

    def arrived(self, tide: int, now_s: float, allowed_s: float) -> list[Say]:
        """A pump stands by, connected and ready."""
        self.heir = tide
        return self.tick(now_s, allowed_s)

    def beat(self, tide: int, now_s: float, allowed_s: float, still_s: float = 0.0) -> list[Say]:
        """The holder asks to go on. `allowed_s`: for how long the link itself is still ours; `still_s`: for how long a
        broker does not listen to the holder."""
        if tide != self.holder:
            return [Say(tide, "stop")]
        grant_s = min(self.grant_s, allowed_s)
        if grant_s <= 0:
            return [Say(tide, "stop")]
        self.granted_until_s = max(self.granted_until_s, now_s + grant_s + SLACK_S)
        self.lands_until_s = max(self.lands_until_s, now_s + still_s)
        return [Say(tide, "grant", grant_s)]

    def done(
        self, tide: int, handovers: tuple[Handover, ...], now_s: float, allowed_s: float, unread_s: float = 0.0
    ) -> list[Say]:
        """The holder has stopped for good and says where it stands, and for how long what it sent may still land."""
        if tide != self.holder:
            return []
        self.holder, self.handovers, self.finishing = None, handovers, False
        self.granted_until_s, self.lands_until_s = 0.0, now_s + unread_s
        return self.tick(now_s, allowed_s)

    def lost(self, tide: int, now_s: float, allowed_s: float) -> list[Say]:
        """A pump is gone without a word: its last grant is waited out."""
        if tide == self.heir:
            self.heir = None
        if tide == self.holder:
            self.holder, self.handovers, self.finishing = None, (), False
        return self.tick(now_s, allowed_s)

    def tick(self, now_s: float, allowed_s: float) -> list[Say]:
        """What time alone brings about."""
        if self.heir is None:
            return []
        self._lapse(now_s)
        if self.holder is not None:
            if self.finishing:
                return []
            self.finishing = True
            return [Say(self.holder, "finish")]
        grant_s = min(self.grant_s, allowed_s)
        if now_s < max(self.granted_until_s, self.lands_until_s) or grant_s <= 0:
            return []
        self.holder, self.heir = self.heir, None
        self.granted_until_s = now_s + grant_s + SLACK_S
        handovers, self.handovers = self.handovers, ()
        return [Say(self.holder, "go", grant_s, handovers)]

    def free(self, now_s: float) -> bool:
        """Whether nobody writes for the lane: the last holder has said that it stopped, or its grant has run out. That
        its connection is gone proves nothing: it may have broken on one side only."""
        self._lapse(now_s)
        return self.holder is None and now_s >= max(self.granted_until_s, self.lands_until_s)

    def manned(self, now_s: float) -> bool:
        """Whether a pump is there that may write; one that is frozen keeps its place, and asks for nothing."""
        return self.holder is not None and now_s < self.granted_until_s

    def waits_s(self, now_s: float) -> float:
        """For how long nobody may begin only because of what may still land; 0 while a grant runs."""
        if self.holder is not None or now_s < self.granted_until_s:
            return 0.0
        return max(0.0, self.lands_until_s - now_s)

    def _lapse(self, now_s: float) -> None:
        if self.holder is not None and now_s >= self.granted_until_s:
            # Frozen, or its machine is gone and no connection says so: it may write no more.
            self.holder, self.handovers, self.finishing = None, (), False

    def forget(self, named: NamedPartition) -> None:
        """The partition leaves the lane: where it stood is not true any more when it comes back."""
        self.handovers = tuple(one for one in self.handovers if NamedPartition(one.topic, one.partition) != named)

    def due_s(self) -> float | None:
        """When `tick` has something to do at the latest."""
        if self.heir is None:
            return None
        return self.granted_until_s if self.holder is not None else max(self.granted_until_s, self.lands_until_s)
