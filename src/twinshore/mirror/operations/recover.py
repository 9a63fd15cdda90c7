"""A link whose store is lost goes on with this one, and nothing is copied again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from twinshore.fleet.operations import Plan
from twinshore.fleet.settings import Settings
from twinshore.mirror.driver.no_mirror import in_place_of_a_mirror, refuse_under_a_mirror
from twinshore.mirror.driver.recovery import Found, Recovery, open_recoverer
from twinshore.store import LeaseRow, Store

LOST = (
    "lost for good, as the target does not have it: receipts so far and the source's producers in them, the ledger and "
    "what stopped there, audit, proofs, alarms, the delays' windows, pauses, throttles, filters, what was held back, "
    "words of `twinshore mirror keep` (say them again), announced deletions (each has its whole delay again), and "
    "which ACLs and quotas are the link's and which SCRAM users it has seen: none of these is taken back any more when "
    "it goes on the source"
)


@dataclass(frozen=True, slots=True)
class Recover:
    """The link becomes this store's, with what its target says of it."""

    link: str


@dataclass(frozen=True, slots=True)
class TakeStep:
    """Whose the link is; `whose` is empty where it is this store's already."""

    link: str
    whose: str
    store: str
    writes: str

    def sentence(self, *, done: bool) -> str:
        would = "" if done else "would be "
        how = f"taken over from {self.whose}" if self.whose else "kept"
        return f"{self.link}: {would}{how} by this store, {self.store}, {self.writes}"


@dataclass(frozen=True, slots=True)
class PutBackStep:
    """A partition of a twin that this store knows again."""

    link: str
    found: Found

    def sentence(self, *, done: bool) -> str:
        row = self.found.row
        anchor = f"sequence {row.anchor_sequence} at offset {row.anchor_offset}"
        would = "" if done else "would be "
        return f"{self.link}: {would}put back: {row.topic}-{row.partition} {self.found.sentence}; {anchor}"


@dataclass(frozen=True, slots=True)
class LeftStep:
    """A topic that is not put back, and why."""

    link: str
    topic: str
    why: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {'not' if done else 'would not be'} put back: {self.topic} {self.why}"


Step = TakeStep | PutBackStep | LeftStep


@dataclass(frozen=True, slots=True)
class Recovering(Plan[Step]):
    """`seen` on the target, while no mirror was at work under this `lease`."""

    link: str = ""
    seen: Recovery | None = None
    lease: LeaseRow | None = None


def plan(asked: Recover, settings: Settings, store: Store, *, tell: Callable[[str], None]) -> Recovering:
    """Each twin is looked at as a pump does. RefusedError while a mirror runs the link here; `tell` hears what is
    waited for."""
    link = settings.link(asked.link)
    lease = refuse_under_a_mirror(store, link.name, settings.mirror.lease_s, tell)
    with open_recoverer(settings, link, store) as recoverer:
        seen = recoverer.look()
    if seen.whole and seen.identity:
        nothing = (
            f"{link.name}: nothing is lost and nothing is to be done: this store, {store.place}, writes the link as"
            f" producer {seen.identity.producer_id} and knows all {len(seen.found):,} partitions"
            f" of which {seen.target} tells"
        )
        known = {row.topic for row in store.twins.of(link.name)}
        left = [LeftStep(link.name, topic, why).sentence(done=True) for topic, why in seen.left if topic not in known]
        return Recovering(shown=(nothing, *left), link=link.name, seen=seen, lease=lease)
    remarks = (f"{link.name}: {LOST}",) if seen.identity else ()
    return Recovering(tuple(steps_of(link.name, seen, store)), remarks=remarks, link=link.name, seen=seen, lease=lease)


def act(planned: Recovering, settings: Settings, store: Store, *, by: str) -> Iterator[Step]:
    """All of it at once, the link first. RefusedError where a mirror has begun since."""
    if planned.seen is None or not planned.steps:
        return
    link = settings.link(planned.link)
    with (
        in_place_of_a_mirror(store, link.name, planned.lease, by),
        open_recoverer(settings, link, store) as recoverer,
    ):
        recoverer.recover(planned.seen, by)
    yield from planned.steps


def steps_of(link: str, seen: Recovery, store: Store) -> Iterator[Step]:
    writes = "which has never begun to write"
    if seen.kept:
        writes = f"which goes on with the twins it knows, as producer {seen.kept.producer_id}; nothing is put back"
    elif seen.identity:
        writes = f"as producer {seen.identity.producer_id}"
    whose = "nobody"
    if seen.holder and seen.holder.store == seen.own:
        whose = ""
    elif seen.holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seen.holder.since_ms / 1000))
        whose = f"store {seen.holder.store[:8]} (host {seen.holder.host}, since {since})"
    yield TakeStep(link, whose, store.place, writes)
    yield from (PutBackStep(link, found) for found in seen.found)
    yield from (LeftStep(link, topic, why) for topic, why in seen.left)
