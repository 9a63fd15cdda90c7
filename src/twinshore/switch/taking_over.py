"""A forced switch takes over what another of a dead process has left on its topics. Pure.

The one that is taken over counts as turned back. What it changed on the new home is undone at once. What it changed on
the old one, which may be gone, is a debt (`debts.py`).

A fail-back or a rebuild makes twins of topics whose home may die meanwhile. Before its point of no return it is taken
over as any other. Past that point the forced switch takes only topics of which nothing was deleted. Topics that are
being filled anew stay in the old switch: their twins hold a part, and the rest is on the home that is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from twinshore.fleet.sentences import listed
from twinshore.fleet.terms import next_term
from twinshore.store.values import HomeRow
from twinshore.switch.debts import debt_of, has_flipped, rights_of
from twinshore.switch.deeds import MAKES_TWINS, MOVES_HOMES, Deed, Kind, is_past
from twinshore.switch.record import Record, State
from twinshore.switch.returned import from_json, topics_of

NAMED_MAX = 5

Home = tuple[str, int]  # its cluster, and its term


def why_not(record: Record, old: str, new: str, *, answers: bool = True) -> str:
    """Why a forced switch from `old` to `new` may not take this one over; empty where it may. `answers`: whether `old`
    does."""
    if record.state is State.DONE:
        return ""  # nothing but its claims can be left
    # Without the store it writes to the cluster that keeps its record, whoever holds what in the store.
    alone = bool(record.kept) and not record.awaits_store
    if flipped_to(record, old, new) and not (alone and answers):
        return ""  # the switch back moves its topics from the home that it gave them
    if alone:
        return "may go on without the store: `twinshore switch resume` or `rollback` takes it into the store's hands"
    if record.committed and not fills_anew(record):
        return f"is past its point of no return ({record.deed}): `twinshore switch resume` ends it"
    if record.kind in MAKES_TWINS and (record.new, record.old) != (old, new):
        return f"makes twins of them on {record.old}: `twinshore switch rollback` ends it"
    if record.kind not in MAKES_TWINS | MOVES_HOMES:
        return f"is a {record.kind}: `twinshore switch rollback` ends it"
    if record.kind not in MAKES_TWINS and (record.old, record.new) != (old, new):
        return f"moves them from {record.old} to {record.new}: `twinshore switch rollback` ends it"
    return ""


def flipped_to(record: Record, old: str, new: str) -> bool:
    """Whether a switch from `old` to `new` moves topics back that it has moved."""
    return has_flipped(record) and (record.new, record.old) == (old, new)


def fills_anew(record: Record) -> bool:
    """Whether it has deleted twins, or is about to, which are not whole again without their topics' home."""
    past = record.committed and not record.ended and not is_past(record.kind, record.deed, Deed.REFILL)
    return past and record.kind in (Kind.FAILBACK, Kind.REBUILD)


def halves(record: Record) -> tuple[str, ...]:
    """The topics whose twins it fills anew: nobody can be sent to these."""
    if not fills_anew(record):
        return ()
    if record.kind is Kind.REBUILD:
        return record.names()
    return tuple(topic for topic in topics_of(from_json(record.tails)) if topic in record.names())


def at_home(rows: Mapping[str, HomeRow]) -> dict[str, Home]:
    """Homes as the store has them."""
    return {topic: (row.home, row.term) for topic, row in rows.items()}


def moved_since(record: Record, *homes: Mapping[str, Home]) -> tuple[str, ...]:
    """The topics of a switch past its point of no return that have moved on since, by what any of `homes` says.
    What it has not done yet would be done to a home of long ago."""
    if record.kind not in MOVES_HOMES or not record.committed:
        return ()
    ours = {one.topic: (record.new, next_term(one.term)) for one in record.topics}
    said = [(topic, home) for some in homes for topic, home in some.items() if topic in ours]
    return tuple(sorted({topic for topic, home in said if home[1] >= ours[topic][1] and home != ours[topic]}))


def without(record: Record, topics: Collection[str], now_ms: int, why: str = "has moved on since") -> Record:
    """The same switch without these topics; over, where none is left."""
    if not topics:
        return record
    left = tuple(one for one in record.topics if one.topic not in topics)
    rights = rights_of(record.rights, [one.topic for one in left]) if has_flipped(record) else record.rights
    told = replace(record, rights=rights).tell(
        now_ms, f"{listed(sorted(topics), NAMED_MAX)} {why}: nothing more is done to it"
    )
    if left:
        return replace(told, topics=left)
    which = f"{listed(record.names(), NAMED_MAX)} {why}"
    return replace(told, state=State.DONE, kept="", awaits_store=False, waits="", why=which)


def taken_over(record: Record, topics: Collection[str], by: str, now_ms: int) -> Record:
    """The record of the one that is no more; one that has ended stays as it ended, and one that is past its point of no
    return goes on without the topics that are taken."""
    if record.ended:
        return record
    if fills_anew(record) or (has_flipped(record) and len(taken(record, topics)) < len(record.topics)):
        return without(record, taken(record, topics), now_ms, f"is moved by force, by {by}")
    if has_flipped(record):
        told = record.tell(now_ms, f"ended at {record.deed}, as {record.new} is gone: {by} moves the topics by force")
        return replace(told, state=State.DONE, kept="", awaits_store=False, waits="")
    why = f"{by} moves the topics by force"
    told = record.tell(now_ms, f"taken over at {record.deed}: {why}")
    return replace(told, state=State.TURNED_BACK, why=why, waits="")


def taken(record: Record, topics: Collection[str]) -> tuple[str, ...]:
    """What a forced switch of these topics takes of that one: all of it, unless it goes on with the others."""
    return tuple(one for one in record.names() if one in topics) if goes_on(record) else record.names()


def freed(record: Record, topics: Collection[str]) -> tuple[str, ...]:
    """What is claimed for it no more. Topics that were taken out of it before, by whoever was killed then, are in its
    record no more, and may be claimed still."""
    return tuple(topics) if goes_on(record) else record.names()


def goes_on(record: Record) -> bool:
    """Whether it is past the point where what is not taken of it could turn back."""
    return fills_anew(record) or has_flipped(record)


def said(record: Record, topics: Collection[str]) -> str:
    """What the preview of a forced switch of these topics says."""
    debt = debt_of(record)
    away = debt.old if debt else ""
    if record.ended:
        return f"frees what is claimed still for the {_called(record)}, which has ended"
    if has_flipped(record):
        return _said_of_flipped(record, topics)
    which = f"{_called(record)}, by {record.by}, which stands at {record.deed}"
    if fills_anew(record):
        return f"takes {listed(list(taken(record, topics)), NAMED_MAX)} out of the {which}: nothing was deleted of it"
    later = f"; what it changed on {away} is undone when {away} is back" if away else ""
    return f"takes over the {which}: it counts as turned back{later}"


def _said_of_flipped(record: Record, topics: Collection[str]) -> str:
    which = f"{_called(record)}, by {record.by}, which stands at {record.deed}: it has moved them already"
    left = sorted(set(record.names()) - set(topics))
    some = listed(sorted(set(record.names()) & set(topics)), NAMED_MAX)
    what = f"takes {some} out of the {which}, and {listed(left, NAMED_MAX)} stays on {record.new}" if left else ""
    runs = record.kept and not record.awaits_store and record.deed is Deed.AFTER
    command = "; see that no command `after` of it runs any more, with whoever began it" if runs else ""
    return (what or f"ends the {which}") + command


def said_of_halves(record: Record, topics: Collection[str]) -> str:
    """Why these topics stay where they are."""
    some = listed([one for one in halves(record) if one in topics], NAMED_MAX)
    return (
        f"left out: {some}, which the {_called(record)} fills anew on {record.old}: only a part is there, and it stays "
        f"at home on {record.new} until that is back"
    )


def _called(record: Record) -> str:
    noun = record.kind if record.kind is Kind.REBUILD else f"{record.kind} switch"
    return f"{noun} {record.id[:8]} of {listed(record.names(), NAMED_MAX)}"
