"""docs/incidents.md, drawn from the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator

from twinshore.mirror.incidents.kinds import BEGIN_AGAIN, KINDS, After, KindEntry
from twinshore.store import IncidentKind

HEAD = """\
# Incidents

Written from the table in `src/twinshore/mirror/incidents/kinds.py` by `make docs`.

Come here when `twinshore status` shows an incident. Find its name in [the table](#which-there-are); its section says
what it means, what happens to the partition, and what to do.

An **incident** is anything because of which a twin is not like its source. Each incident is a row of the ledger: the
link, topic and partition, the offsets, what was done about it, one sentence that explains it, when it opened and when
it closed. `twinshore status` shows the open rows, `twinshore incidents` all of them, and the metrics count them
by kind. Nothing is left out in silence.

A partition that stops never holds back its neighbours. It leaves its lane and rests, also after a restart. The column
*afterwards* says how it goes on:

- `goes on`: you need not do anything for the mirror to go on. The row says what happened. If the incident can end,
  the row closes by itself then.
- `rests, and is tried again every few seconds`: it goes on by itself once the cause is gone. Then its row closes.
- `rests until` it is resumed: you must decide. Mend the cause, then resume the partition as below.
- `the whole topic rests`: no partition of the topic is carried until source and target agree again, as its section
  says. If the topic was made again, `twinshore mirror begin-again` begins a new twin.

```sh
twinshore mirror resume orders --partition 3
```

Without `--partition` the command resumes every stopped partition of the topic. It refuses, with the reason, if it can
see that the cause still stands. A running mirror takes the partition up within 5 s; otherwise the mirror does so when
it starts.

An offset range is the first offset concerned and the one behind the last. Both are -1 if the incident is about no
offsets, for example when a cluster is away; such a row belongs to the whole link. A row of a whole topic has
partition -1. Do not use `twinshore mirror resume` for it: it goes on by itself, or with `twinshore mirror
begin-again`, as its section says. The row of a refused topic closes when the topic is carried, excluded, or deleted
on the source, also if an earlier process wrote the row.

## Begin a twin anew

Kafka cannot cut records from the end of a log. So if offsets of a twin are wrong, its whole topic has to begin again.
That deletes **all** partitions of the twin, and Kafka drops the places of consumer groups on it. The mirror sets
these places again, as far as the new twin reaches. So first stop consumers of the twin, and save the records that
only the twin holds.

**Do not do this with a mapped topic**, because its twin holds data of others. A mapped topic
[begins anew](from-mirrormaker.md#to-begin-a-mapped-topic-anew) behind what its twin has, and nothing is deleted.

For an exact twin of a link that keeps names, [`twinshore mirror rebuild`](switch.md#a-twin-that-is-spoilt) does all of
it: it saves what the twin alone holds, deletes the twin, and puts groups back. By hand, while the mirror runs:

1. Delete the twin on the target, by the name it has there (`east.orders` where the link has a prefix):
   `kafka-topics.sh --bootstrap-server WEST:9092 --delete --topic orders`
2. Wait until `twinshore status` shows the topic as *recreated topic* (`every_s` of the link's section `follow`, 5 s).
3. `twinshore mirror begin-again TOPIC` closes the rows of the topic, and a new twin begins within seconds.

Do not use `twinshore mirror resume` here: it is for a cause that went away by itself.

## Which there are

| incident | afterwards | what the ledger says was done |
| --- | --- | --- |
"""

# Kinds that stop partitions, and whole topics before anything is carried.
OF_TOPICS_TOO = (IncidentKind.FOREIGN_WRITE, IncidentKind.POSITION_DISAGREEMENT, IncidentKind.REFUSED)


def render_incidents_page() -> str:
    """The whole page as Markdown."""
    return HEAD + "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    for row in KINDS.values():
        yield f"| [{row.kind.value}](#{row.kind.value.replace(' ', '-')}) | {row.after.value} | {row.policy.words} |"
    for row in KINDS.values():
        yield ""
        yield from _section(row)


def _section(row: KindEntry) -> Iterator[str]:
    yield f"## {row.kind.value}"
    yield ""
    yield f"**What it means.** {row.means}"
    yield ""
    yield f"**What to do.** {row.do}"
    if row.after is After.RESUMED:
        yield ""
        other = "; not for rows of partition -1" if row.kind in OF_TOPICS_TOO else ""
        again = ", if the cause went away by itself" if BEGIN_AGAIN in row.do else ""
        yield f"**To go on.** `twinshore mirror resume` with the topic{again}{other}."
