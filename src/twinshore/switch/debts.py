"""What a switch that is no more owes to a home that did not answer. Pure.

What it changed there is a *debt*: kept in the store, and paid by the running mirror when that home is back. A forced
switch that takes over another remembers one, and so does a planned switch whose old home dies under it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace

from twinshore.fleet import Link, WireError
from twinshore.switch.deeds import HOLDS, MAKES_TWINS, MOVES_HOMES, Deed, is_past
from twinshore.switch.record import Record
from twinshore.switch.write_rules import RulesPlan

# As the store remembers it, of the pair of clusters; the switch is the subject.
DEBT = "switch debt"


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


def has_flipped(record: Record) -> bool:
    """Whether it has moved its topics to the new home already, and has only to end what it began on the old one."""
    flipped = record.kind in MOVES_HOMES and record.committed and is_past(record.kind, record.deed, Deed.FLIP)
    return flipped and not record.ended


def rights_of(rights: str, topics: Collection[str]) -> str:
    """Of what a planned switch denied on its old home, what it denied of these topics."""
    if not rights:
        return ""
    plan = RulesPlan.from_record(json.loads(rights))
    return json.dumps(
        replace(plan, deny=tuple(one for one in plan.deny if one.name in topics)).as_record(), sort_keys=True
    )


def debt_of(record: Record, topics: Collection[str] | None = None) -> Debt | None:
    """What of it, or of these topics of it, stands perhaps on the home that is gone: a forced switch never spoke to
    it."""
    names = tuple(one for one in record.names() if topics is None or one in topics)
    if record.kind in MAKES_TWINS or has_flipped(record):
        return Debt(record.id, record.new, names)
    if record.kind in HOLDS:
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
