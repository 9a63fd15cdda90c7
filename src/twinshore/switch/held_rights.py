"""Which rights a twin gets when its topic comes home to it: what was held back from it, by what the store remembers.
Pure: rows in, rules out.

While a topic is a twin, rules of its source cross only as far as they leave the twin as it is; the link remembers the
others as the source has them, and which rules it wrote. It works with the source dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from twinshore.kafka.rights import Acl, Operation, Pattern, Permission, Resource
from twinshore.mirror.follow.acls import HELD, SHUTS_OUT, TWIN_ALONE, WRITTEN, from_text
from twinshore.store.values import Remembered
from twinshore.switch.write_rules import BESIDE_WRITE

# All that the right to all of a topic is made of.
_EACH = (Operation.WRITE, *BESIDE_WRITE[Operation.ALL])


def given(rows: Iterable[Remembered], twins: Mapping[str, str], ours: Collection[Acl] = ()) -> frozenset[Acl]:
    """What the twins shall be given; `twins`: each topic's. Of the rules that were held back those that allow
    something, each for a twin by its name, but nothing that a denial which was held back would have forbidden. `ours`:
    denials of a switch that stand at the source: they say nothing of what its topics are to be.

    A denial for everybody is not given: at the new home it would shut us out. Rules for groups, transactional ids and
    the cluster are none of a topic's, and not here.
    """
    held = [(from_text(row.subject), row.value) for row in rows if row.kind == HELD]
    held = [(acl, why) for acl, why in held if acl.resource == Resource.TOPIC and acl not in ours]
    denials = [acl for acl, why in held if why == SHUTS_OUT]
    allowing = [acl for acl, why in held if why == TWIN_ALONE and acl.permission == Permission.ALLOW]
    found: set[Acl] = set()
    for acl in allowing:
        for topic, twin in twins.items():
            if acl.covers(topic):
                rule = replace(acl, name=twin, pattern=int(Pattern.LITERAL))
                found |= _allowed(rule, {one.operation for one in denials if one.covers(topic)})
    return frozenset(found)


def handed_over(rows: Iterable[Remembered], twins: Iterable[str]) -> tuple[Remembered, ...]:
    """Rules on these twins that the link wrote and shall forget before the twins are its own no longer: else it would
    take away, as left over, what lets people read at the new home."""
    names = frozenset(twins)
    return tuple(row for row in rows if row.kind == WRITTEN and _is_of(from_text(row.subject), names))


def _is_of(acl: Acl, names: frozenset[str]) -> bool:
    return acl.resource == Resource.TOPIC and acl.names_one() and acl.name in names


def _allowed(rule: Acl, denied: set[int]) -> set[Acl]:
    """The rule, or what is left of it. Whoever may do anything with a topic may describe it, too."""
    if not denied:
        return {rule}
    if denied & {Operation.ALL, Operation.DESCRIBE}:
        return set()
    if Operation.DESCRIBE_CONFIGS in denied:
        denied = denied | {int(Operation.ALTER_CONFIGS)}
    parts = _EACH if rule.operation == Operation.ALL else (rule.operation,)
    return {replace(rule, operation=int(one)) for one in parts if one not in denied}
