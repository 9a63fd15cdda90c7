"""A forced switch takes over what a planned one of a dead process has left on its topics. Pure.

The one that is taken over counts as turned back. What it changed on the new home is undone at once. What it changed on
the old one, which may be gone, is a *debt*: kept in the store, and paid by the running mirror when that home is back. A
planned switch whose old home dies under it leaves one as well.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from twinshore.fleet import Link, WireError
from twinshore.fleet.sentences import listed
from twinshore.fleet.terms import next_term
from twinshore.store.values import HomeRow
from twinshore.switch.deeds import Kind
from twinshore.switch.record import Record, State

# As the store remembers it, of the pair of clusters; the switch is the subject.
DEBT = "switch debt"
NAMED_MAX = 5

Home = tuple[str, int]  # its cluster, and its term


@dataclass(frozen=True, slots=True)
class Debt:
    """`rights`: what the switch changed of the old home's ACLs, as its record has it. Its claims of the topics, and the
    word that they are held, may stand there as well."""

    switch: str
    old: str
    topics: tuple[str, ...]
    rights: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Debt:
        """WireError where it is none."""
        try:
            raw = json.loads(text)
            return Debt(str(raw["switch"]), str(raw["old"]), tuple(map(str, raw["topics"])), str(raw["rights"]))
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what a switch still owes to an old home cannot be read from the store") from error


def why_not(record: Record, old: str, new: str) -> str:
    """Why a forced switch from `old` to `new` may not take this one over; empty where it may."""
    if record.committed:
        return f"is past its point of no return ({record.deed}): `twinshore switch resume` ends it"
    if record.kind not in (Kind.PLANNED, Kind.FORCED):
        return f"is a {record.kind}: `twinshore switch rollback` ends it"
    if (record.old, record.new) != (old, new):
        return f"moves them from {record.old} to {record.new}: `twinshore switch rollback` ends it"
    return ""


def at_home(rows: Mapping[str, HomeRow]) -> dict[str, Home]:
    """Homes as the store has them."""
    return {topic: (row.home, row.term) for topic, row in rows.items()}


def moved_since(record: Record, *homes: Mapping[str, Home]) -> tuple[str, ...]:
    """The topics of a switch past its point of no return that have moved on behind it, by what any of `homes` says.
    What it has not done yet would be done to a home of long ago."""
    if record.kind not in (Kind.PLANNED, Kind.FORCED) or not record.committed:
        return ()
    ours = {one.topic: (record.new, next_term(one.term)) for one in record.topics}
    said = [(topic, home) for some in homes for topic, home in some.items() if topic in ours]
    return tuple(sorted({topic for topic, home in said if home[1] >= ours[topic][1] and home != ours[topic]}))


def without(record: Record, topics: Collection[str], now_ms: int) -> Record:
    """The same switch without these topics, which have moved on; over, where none is left."""
    if not topics:
        return record
    left = tuple(one for one in record.topics if one.topic not in topics)
    told = record.tell(now_ms, f"{listed(sorted(topics), NAMED_MAX)} has moved on since: nothing more is done to it")
    if left:
        return replace(told, topics=left)
    return replace(told, state=State.DONE, kept="", owed=False, waits="")


def taken_over(record: Record, by: str, now_ms: int) -> Record:
    """The record of the one that is no more; one that has ended stays as it ended."""
    if record.ended:
        return record
    why = f"{by} moves the topics by force"
    told = record.tell(now_ms, f"taken over at {record.deed}: {why}")
    return replace(told, state=State.TURNED_BACK, why=why, waits="")


def owed(record: Record) -> Debt | None:
    """What stands on the old home perhaps: a forced switch never spoke to it."""
    if record.kind is not Kind.PLANNED:
        return None
    return Debt(record.id, record.old, record.names(), record.rights)


def may_pay(debt: Debt, link: Link, moved: Collection[str], open_yet: Collection[str]) -> bool:
    """Whether this link's mirror may undo it now. `moved`: topics that are at home elsewhere than at the link's source;
    `open_yet`: those that came to be at home there, and whose twins nothing guards yet."""
    if debt.old == link.source:
        return not set(debt.topics).intersection(moved)  # else the link back does, behind a guard
    return debt.old == link.target and not set(debt.topics).intersection(open_yet)


def said(record: Record) -> str:
    """What the preview says."""
    which = f"{record.kind} switch {record.id[:8]} of {listed(record.names(), NAMED_MAX)}, by {record.by}"
    later = f"; what it changed on {record.old} is undone when {record.old} is back" if owed(record) else ""
    return f"takes over the {which}, which stands at {record.deed}: it counts as turned back{later}"
