"""A forced switch takes over what another of a dead process has left on its topics. Pure.

The one that is taken over counts as turned back. What it changed on the new home is undone at once. What it changed on
the old one, which may be gone, is a *debt*: kept in the store, and paid by the running mirror when that home is back. A
planned switch whose old home dies under it leaves one as well.

A fail-back or a rebuild makes twins of topics whose home may die meanwhile. Before its point of no return it is taken
over as any other. Past that point the forced switch takes only topics of which nothing was deleted. Topics that are
being filled anew stay in the old switch: their twins hold a part, and the rest is on the home that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace

from twinshore.fleet import Link, WireError
from twinshore.fleet.sentences import listed
from twinshore.fleet.terms import next_term
from twinshore.store.values import HomeRow
from twinshore.switch.acl_fence import FencePlan
from twinshore.switch.deeds import MAKES_TWINS, MOVES_HOMES, Deed, Kind, is_past
from twinshore.switch.record import Record, State
from twinshore.switch.returned import from_json, topics_of

# As the store remembers it, of the pair of clusters; the switch is the subject.
DEBT = "switch debt"
NAMED_MAX = 5

Home = tuple[str, int]  # its cluster, and its term


@dataclass(frozen=True, slots=True)
class Debt:
    """`old` is the cluster that it is owed to. `rights`: what the switch changed of its ACLs, as its record has it. Its
    claims of the topics, and the word that they are held, may stand there as well."""

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


def why_not(record: Record, old: str, new: str, *, answers: bool = True) -> str:
    """Why a forced switch from `old` to `new` may not take this one over; empty where it may. `answers`: whether `old`
    does."""
    if record.state is State.DONE:
        return ""  # nothing but its claims can be left
    # Without the store it writes to the cluster that keeps its record, whoever holds what in the store.
    alone = bool(record.kept) and not record.owed
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


def has_flipped(record: Record) -> bool:
    """Whether it has moved its topics to the new home already, and has only to end what it began on the old one."""
    flipped = record.kind in MOVES_HOMES and record.committed and is_past(record.kind, record.deed, Deed.FLIP)
    return flipped and not record.ended


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
    return replace(told, state=State.DONE, kept="", owed=False, waits="", why=which)


def taken_over(record: Record, topics: Collection[str], by: str, now_ms: int) -> Record:
    """The record of the one that is no more; one that has ended stays as it ended, and one that is past its point of no
    return goes on without the topics that are taken."""
    if record.ended:
        return record
    if fills_anew(record) or (has_flipped(record) and len(taken(record, topics)) < len(record.topics)):
        return without(record, taken(record, topics), now_ms, f"is moved by force, by {by}")
    if has_flipped(record):
        told = record.tell(now_ms, f"ended at {record.deed}, as {record.new} is gone: {by} moves the topics by force")
        return replace(told, state=State.DONE, kept="", owed=False, waits="")
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


def rights_of(rights: str, topics: Collection[str]) -> str:
    """Of what a planned switch denied on its old home, what it denied of these topics."""
    if not rights:
        return ""
    plan = FencePlan.from_record(json.loads(rights))
    return json.dumps(
        replace(plan, deny=tuple(one for one in plan.deny if one.name in topics)).as_record(), sort_keys=True
    )


def owed(record: Record, topics: Collection[str] | None = None) -> Debt | None:
    """What of it, or of these topics of it, stands perhaps on the home that is gone: a forced switch never spoke to
    it."""
    names = tuple(one for one in record.names() if topics is None or one in topics)
    if record.kind in MAKES_TWINS or has_flipped(record):
        return Debt(record.id, record.new, names)
    if record.kind is Kind.PLANNED:
        return Debt(record.id, record.old, names, record.rights)
    return None


def both(debt: Debt, before: Debt | None) -> Debt:
    """Where the same switch owes something to this cluster already."""
    if before is None or before.old != debt.old:
        return debt
    return replace(debt, topics=tuple(sorted({*debt.topics, *before.topics})), rights=debt.rights or before.rights)


def may_pay(
    debt: Debt, link: Link, moved: Collection[str], left: Collection[str], stands: Callable[[Collection[str]], bool]
) -> bool:
    """Whether this link's mirror may undo it now. `moved`: topics that are at home elsewhere than at the link's source;
    `left`: those that came to be at home there by a switch; `stands`: whether a guard of these twins stands on the
    target, asked there and then, since what the debt takes away may be all that keeps writers out."""
    if debt.old == link.source:
        return not set(debt.topics).intersection(moved)  # else the link back does, behind a guard
    twins = frozenset(left).intersection(debt.topics)
    return debt.old == link.target and (not twins or stands(twins))


def said(record: Record, topics: Collection[str]) -> str:
    """What the preview of a forced switch of these topics says."""
    debt = owed(record)
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
    runs = record.kept and not record.owed and record.deed is Deed.AFTER
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
