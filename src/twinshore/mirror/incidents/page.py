"""docs/incidents.md, drawn from the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator

from twinshore.mirror.incidents.kinds import BEGIN_AGAIN, KINDS, After, Known
from twinshore.store import IncidentKind

HEAD = """\
# Incidents

Written from the table in `src/twinshore/mirror/incidents/kinds.py` by `make docs`.

Whatever keeps a twin from being its source's like is a row in the ledger: which link, topic and partition, which
offsets, what was done about it, one sentence for people, when it opened and when it closed. `twinshore status` shows
the open ones, `twinshore status --json` their fields, and the metrics count them by kind. Nothing is left out in
silence.

A partition that stops never holds back its neighbours: it leaves its lane and rests, also across restarts.

- What `goes on` needs nobody: the row says what happened, and closes by itself where it can be over.
- What `rests, and is tried again every few seconds` goes on by itself once the cause is gone; then its row closes.
- What `rests until` it is resumed needs a decision: mend the cause, then resume it as below.
- Where `the whole topic rests`, both sides must agree again first; `twinshore mirror begin-again` lets a topic that was
  made again begin anew.

```sh
twinshore mirror resume orders --partition 3
```

Without `--partition` it is every stopped partition of the topic. It is refused, with the reason, while the cause still
stands and that can be looked at. A running mirror takes the partition up within 5 s; one that is not running, when it
starts.

An offset range is the first offset concerned and the one behind the last; -1 where none are, as for a cluster that is
away. Such rows belong to the whole link. Rows of a whole topic have partition -1, and `twinshore mirror resume` is not
for them: they go on by themselves, or with `twinshore mirror begin-again`, as each section says. The row of a refused
topic closes when the topic is carried, excluded, or deleted on the source, also where an earlier process wrote it.

## Begin a twin anew

A log's end cannot be cut, so where a twin's offsets are spoilt its topic has to begin again. That deletes **all** its
partitions, and Kafka drops the places of groups on it; the mirror sets them again as far as the new twin reaches. So
let consumers of the twin stop first, and save what the twin alone holds.

**Not for a mapped topic**: its twin holds data of others. Delete nothing there: a mapped topic
[begins anew](from-mirrormaker.md#to-begin-a-mapped-topic-anew) behind what its twin has.

For an exact twin, while the mirror runs:

1. Delete the twin on the target, by the name it has there (`east.orders` where the link has a prefix):
   `kafka-topics.sh --bootstrap-server WEST:9092 --delete --topic orders`
2. Wait until `twinshore status` shows the topic as *recreated topic* (`every_s` of the link's section `follow`, 5 s).
3. `twinshore mirror begin-again TOPIC` closes the rows of the topic, and a new twin begins within seconds.

`twinshore mirror resume` is not part of this: it is for a cause that went away by itself.

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


def _section(row: Known) -> Iterator[str]:
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
