"""What a forced switch may tear: of transactions, and of groups that read and write, told before, group by group. Pure.

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
REPARTITION = "-repartition"
STREAMS = ("-changelog", REPARTITION)


@dataclass(frozen=True, slots=True)
class Writing:
    """A group that writes to topics of the switch. `named`: by `outputs`, which its place waits for; `unnamed`: by what
    its topics are called. `again`: so many offsets at most it reads again. `placeless`: partitions of what it reads
    where no place of its has crossed; they count whole."""

    group: str
    named: frozenset[str]
    unnamed: frozenset[str]
    again: int
    placeless: tuple[str, ...] = ()

    def sentence(self) -> str:
        written = listed(sorted(self.named | self.unnamed), NAMED_MAX)
        if self.unnamed:
            why = f"no `outputs` name {listed(sorted(self.unnamed), NAMED_MAX)}, so its places did not wait for them"
            told = f"group {self.group} may be torn: what it wrote to {written} may be missing or come twice: {why}"
        else:
            some = counted(self.again, "offset")
            again = f"it reads up to {some} again, and {written} may hold already what it wrote of these"
            told = f"group {self.group} may be torn: {again}, and of records that never crossed"
        if not self.placeless:
            return told
        where = listed(self.placeless, NAMED_MAX)
        return f"{told}; it has no place in {where}, and begins there where its `auto.offset.reset` says"


def of_transactions(new: str) -> str:
    """What becomes of transactions that had not crossed whole: records cross only below the last stable offset, those
    of each partition by themselves."""
    return (
        f"a transaction that was open has no record on {new}; one that was committed and had crossed in part is torn: "
        "its records that crossed stay"
    )


def reads_of(group: str, rules: Rules, topics: Iterable[str], places: Iterable[Where]) -> frozenset[str]:
    """The topics of these that the group reads, where it writes to some of them too, as far as is known; else none. It
    reads a topic where it has a place in it; an application of Kafka Streams reads its repartition topics as well."""
    some = frozenset(topics)
    own = _own(group, some)
    read = {topic for topic, _ in places if topic in some}
    if not read or not outputs_of(rules, group, some) | own:
        return frozenset()
    return frozenset(read | {topic for topic in own if topic.endswith(REPARTITION)})


def writing(
    group: str, rules: Rules, topics: Iterable[str], places: Mapping[Where, int], spans: Mapping[Where, tuple[int, int]]
) -> Writing | None:
    """None where the group writes to none of these topics, as far as is known, or reads none. `spans`: begin and end of
    each partition of what it reads."""
    some = frozenset(topics)
    reads = reads_of(group, rules, some, places)
    if not reads:
        return None
    named = outputs_of(rules, group, some)
    filled = {where: span for where, span in spans.items() if where[0] in reads and span[1] > span[0]}
    placeless = tuple(f"{topic}-{number}" for topic, number in sorted(filled.keys() - places.keys()))
    again = sum(max(0, end - places.get(where, begin)) for where, (begin, end) in filled.items())
    return Writing(group, named, _own(group, some) - named, again, placeless)


def _own(group: str, topics: frozenset[str]) -> frozenset[str]:
    return frozenset(one for one in topics if one.startswith(f"{group}-") and one.endswith(STREAMS))
