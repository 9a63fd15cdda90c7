"""What a forced switch may tear of groups that read and write: told before, group by group. Pure.

A group's place, what it wrote and its state cross one by one. Where `outputs` name all that it writes, its place waited
for that: so what it reads again may be there twice, and so may be what it wrote of records that never crossed; nothing
is missing. Where they do not, either may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet.sentences import counted, listed
from twinshore.groups.outputs import Rules, outputs_of
from twinshore.wire.group_places import Where

NAMED_MAX = 5
# As Kafka Streams calls the topics of an application, whose id is its group's name.
STREAMS = ("-changelog", "-repartition")


@dataclass(frozen=True, slots=True)
class Writing:
    """A group that writes to topics of the switch. `named`: by `outputs`, which its place waits for; `unnamed`: by what
    its topics are called. `again`: so many offsets at most it reads again."""

    group: str
    named: frozenset[str]
    unnamed: frozenset[str]
    again: int

    def sentence(self) -> str:
        written = listed(sorted(self.named | self.unnamed), NAMED_MAX)
        if self.unnamed:
            why = f"no `outputs` name {listed(sorted(self.unnamed), NAMED_MAX)}, so its places did not wait for them"
            return f"group {self.group} may be torn: what it wrote to {written} may be missing or come twice: {why}"
        some = counted(self.again, "offset")
        again = f"it reads up to {some} again, and {written} may hold already what it wrote of these"
        return f"group {self.group} may be torn: {again}, and of records that never crossed"


def writing(
    group: str, rules: Rules, topics: Iterable[str], places: Mapping[Where, int], ends: Mapping[Where, int]
) -> Writing | None:
    """None where the group writes to none of these topics, as far as is known, or reads none of them."""
    some = frozenset(topics)
    named = outputs_of(rules, group, some)
    own = frozenset(one for one in some if one.startswith(f"{group}-") and one.endswith(STREAMS))
    read = {where: place for where, place in places.items() if where[0] in some}
    if not read or not named | own:
        return None
    again = sum(max(0, ends.get(where, place) - place) for where, place in read.items())
    return Writing(group, named, own - named, again)
