"""The table of incidents: what each kind means, what the mirror does, and what an operator can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from twinshore.config.incident_policy import (
    POLICY_DROP,
    POLICY_GAP,
    POLICY_HEAL,
    POLICY_KEEP_TWIN,
    POLICY_RESCUE,
    POLICY_RETRY,
    POLICY_STOP,
    POLICY_TOPIC,
    POLICY_WAIT,
    IncidentEffect,
    IncidentKind,
    IncidentPolicy,
)

PAGE_HEAD = """\
# Incidents

Written from the table in `src/twinshore/replication/core/incident_kinds.py` by `make docs`.

Come here when `twinshore status` shows an incident. Find its name in [the table](#which-there-are); its section says
what it means, what happens to the partition, and what to do.

An **incident** is anything because of which a twin is not like its source. Each incident is a row of the ledger: the
link, topic and partition, the offsets, what was done about it, one sentence that explains it, when it opened and when
it closed. `twinshore status` shows the open rows, `twinshore incidents` all of them, and the metrics count them
by kind. Nothing is left out in silence.

A partition that stops never holds back its neighbours. It leaves its task and rests, also after a restart. The column
*afterwards* says how it goes on:

- `goes on`: you need not do anything for the mirror to go on. The row says what happened. If the incident can end,
  the row closes by itself then.
- `rests, and is tried again every few seconds`: it goes on by itself once the cause is gone. Then its row closes.
- `rests until` it is resumed: you must decide. Mend the cause, then resume the partition as below.
- `the whole topic rests`: no partition of the topic is carried until source and target agree again, as its section
  says. If the topic was made again, `twinshore mirror recreate` begins a new twin.

```sh
twinshore mirror resume orders --partition 3
```

Without `--partition` the command resumes every stopped partition of the topic. It refuses, with the reason, if it can
see that the cause still stands. A running mirror takes the partition up within 5 s; otherwise the mirror does so when
it starts.

An offset range is the first offset concerned and the one behind the last. Both are -1 if the incident is about no
offsets, for example when a cluster is away; such a row belongs to the whole link. A row of a whole topic has
partition -1. Do not use `twinshore mirror resume` for it: it goes on by itself, or with `twinshore mirror
recreate`, as its section says. The row of a refused topic closes when the topic is carried, excluded, or deleted
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
3. `twinshore mirror recreate TOPIC` closes the rows of the topic, and a new twin begins within seconds.

Do not use `twinshore mirror resume` here: it is for a cause that went away by itself.

## Which there are

| incident | afterwards | what the ledger says was done |
| --- | --- | --- |
"""

# Kinds that stop partitions, and whole topics before anything is replicated.
TOPIC_LEVEL_KINDS = (IncidentKind.FOREIGN_WRITE, IncidentKind.POSITION_DISAGREEMENT, IncidentKind.REFUSED)


class IncidentOutcome(Enum):
    """What becomes of the partition or topic, or of all on a broker."""

    CONTINUES = "goes on"
    RETRIES = "rests, and is tried again every few seconds"
    NEEDS_RESUME = "rests until `twinshore mirror resume`"
    TOPIC = "the whole topic rests until both sides agree again"


@dataclass(frozen=True, slots=True)
class IncidentKindEntry:
    """`policy`: what was done, unless a row says something more specific."""

    kind: IncidentKind
    after: IncidentOutcome
    policy: IncidentPolicy
    means: str
    do: str


BEGIN_AGAIN_REFERENCE = "[Begin the twin anew](#begin-a-twin-anew)"


def _tells(words: str) -> IncidentPolicy:
    return IncidentPolicy(words, IncidentEffect.INFORMS)


_ROWS = (
    IncidentKindEntry(
        IncidentKind.RETENTION_GAP,
        IncidentOutcome.CONTINUES,
        POLICY_GAP,
        "The source deleted records before they crossed: retention was faster than the mirror, or the log was cut."
        " If a worker died before it could tell how far it came, and the source has deleted that since, the row"
        " names the offsets that hold no record on the twin. Some of them may be markers of transactions. A gap of more"
        " than `gap_offsets_max` offsets stops its partition.",
        "Nothing can bring these records back. Find out why the link lagged. Keep records on the source for longer "
        "than the link ever stands still. The row closes when the twin is behind the gap. If the partition stopped: "
        f"{BEGIN_AGAIN_REFERENCE}. Or raise `gap_offsets_max`, start the mirror again and type `twinshore mirror "
        "resume`.",
    ),
    IncidentKindEntry(
        IncidentKind.STALE_DROPPED,
        IncidentOutcome.CONTINUES,
        POLICY_DROP,
        "The link has a fresh queue: records that were older than `max_age_s`, or that waited beyond the high "
        "watermark, were not sent. A cluster or its line was away, or the target is slower than the source.",
        "This is what the link's section `queue` asks for. If it happens too often, give the target a faster line, or "
        'the queue a higher `high_kb`; with `policy = "keep"` nothing is dropped. The row closes when the twin is '
        "behind these offsets. In an overload that lasts, old rows of a partition are joined, a thousand to one: the "
        "sentence says of how many parts, and `twinshore incidents --json` says each, as `parts`.",
    ),
    IncidentKindEntry(
        IncidentKind.TRUNCATION,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "The source lost records that the twin has, for example by an unclean election or a wiped disk. From the first "
        "offset named on, source and twin have different records.",
        f"Save the records that only the twin holds, if anybody needs them. {BEGIN_AGAIN_REFERENCE}. Or keep the "
        "twin as it is: "
        "the partition rests, and its neighbours go on.",
    ),
    IncidentKindEntry(
        IncidentKind.RECREATED_TOPIC,
        IncidentOutcome.TOPIC,
        POLICY_TOPIC,
        "The topic was deleted and made again under the same name, on the source or on the target: its offsets begin "
        "anew.",
        "`twinshore mirror recreate TOPIC` deletes the old twin and begins a new one. With `recreated` in the "
        "link's section `follow` the mirror does so by itself, at the time that the sentence names; `twinshore mirror "
        "keep TOPIC` forbids it. If somebody else made a topic in the twin's place, the mirror never deletes it: "
        "delete it yourself first. The mirror never deletes a mapped twin either: stop the mirror, type "
        '`twinshore mirror forget TOPIC`, set `mapped_from = "start"` in the link\'s section, and start the mirror '
        "again.",
    ),
    IncidentKindEntry(
        IncidentKind.DELETED_TOPIC,
        IncidentOutcome.TOPIC,
        POLICY_KEEP_TWIN,
        "The topic was deleted on the source.",
        "**If the sentence names a time, the twin is deleted at that time. To prevent it, type `twinshore mirror keep "
        "TOPIC`**, or pause the link. Otherwise do nothing: the twin stays, and the row stays open to say so. "
        "`deleted` in the link's section `follow` chooses what happens to such twins. The row closes when the topic is "
        "there again, when the twin is archived, or when the twin is deleted.",
    ),
    IncidentKindEntry(
        IncidentKind.DELETION_HELD,
        IncidentOutcome.TOPIC,
        POLICY_KEEP_TWIN,
        "The settings say that the twin is to be deleted, but the mirror keeps it for one of these reasons: the twin "
        "holds records that the link did not carry, it lacks records that never crossed, too many twins would go at "
        "once, or the target refuses.",
        "**Do not delete the twin before you have looked: it may be the last copy.** Save what it holds, then decide. "
        "If too many would go at once, find out why so many topics are gone. Then type `twinshore mirror delete "
        "TOPIC`, or `recreate` for topics that were made again. If the twin holds records that the link did not "
        "carry, delete it yourself, or type `twinshore mirror recreate TOPIC --even-unreplicated` if the topic was "
        "made again. The row closes when the topic is seen again, when the twin is deleted, or with `twinshore mirror "
        "forget TOPIC`.",
    ),
    IncidentKindEntry(
        IncidentKind.FOREIGN_WRITE,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "Somebody else wrote to the twin, or the topic held data before the link was made, so offsets of the source "
        "are taken there. A running mirror notices it with the source's next record, or within some five seconds.",
        "After a forced switch, on the old home: `twinshore switch failback TOPIC --old CLUSTER --dry-run` says what "
        "of it never crossed; without `--dry-run` that is saved, and the old home is filled again. "
        "If the sentence says that the topic is the twin of another link: do not delete it. Give the two links filters "
        "that share no topic, and both mirrors the same settings; where the other link has no mirror any more, "
        "`twinshore mirror forget TOPIC --link LINK` frees the topic. "
        "If the topic held data before the link (partition -1): delete it on the target if its data are not needed, "
        'exclude it, or set `mode = "mapped"` and start the mirror again; it goes on by itself within seconds. If '
        "another client wrote to a running twin: find the writer by the producer id, and take the right to write away "
        f"from it. Its records cannot be cut off, so: {BEGIN_AGAIN_REFERENCE}.",
    ),
    IncidentKindEntry(
        IncidentKind.OVERSIZE_BATCH,
        IncidentOutcome.RETRIES,
        POLICY_RETRY,
        "The target does not take a batch of this size: max.message.bytes or segment.bytes of the twin is below it.",
        "Nothing if the mirror may change the twin's settings: it raises the limit to the source's. Otherwise raise "
        "max.message.bytes on the twin to the size named.",
    ),
    IncidentKindEntry(
        IncidentKind.PARTITION_ADDED,
        IncidentOutcome.CONTINUES,
        _tells("give the twin as many, and carry the new ones from their first offset"),
        "The source's topic has more partitions than before.",
        "Nothing.",
    ),
    IncidentKindEntry(
        IncidentKind.PARTITION_REMOVED,
        IncidentOutcome.TOPIC,
        POLICY_TOPIC,
        "The twin's topic has more partitions than the source's: somebody added some, or the source was made again.",
        f"{BEGIN_AGAIN_REFERENCE}; or exclude the topic. A topic that the link has never carried goes on by itself, "
        "within "
        "seconds of the twin's deletion.",
    ),
    IncidentKindEntry(
        IncidentKind.RIGHTS_LOST,
        IncidentOutcome.RETRIES,
        POLICY_RETRY,
        "The mirror's user lacks a right on a cluster that is otherwise well.",
        "Grant the right that the sentence names; the mirror goes on by itself within seconds. A row that says "
        "*carry it all the same* stops nothing. There the mirror may not cut the twin's log to its source's start, so "
        "records that the source has deleted stay ([deletes](deletes.md#without-the-right-to-delete)). Such a row "
        "closes within half a minute after you grant the right.",
    ),
    IncidentKindEntry(
        IncidentKind.SOURCE_AWAY,
        IncidentOutcome.CONTINUES,
        POLICY_WAIT,
        "The source, or the leader of some partitions there, has not answered for `away_after_s`. The row's times are "
        "those at which it fell silent and answered again. A row of one partition: for half a minute its leader "
        "answered fetches with an error (for example because its object store is away) or not at all, or the task "
        "cannot connect to it; the sentence says which. A row of a whole topic (partition -1): the link cannot begin "
        "with the topic now, for example because a partition has no leader; other topics go on.",
        "Bring the source back before its retention deletes records that have not crossed; the row names the lag when "
        "it closes. For one partition, look at three things: that broker's log, its object store if the topic is "
        "tiered, and whether the machines on which the tasks run reach the broker.",
    ),
    IncidentKindEntry(
        IncidentKind.TARGET_AWAY,
        IncidentOutcome.CONTINUES,
        POLICY_WAIT,
        "The target, or the leader of some twins there, has not answered for `away_after_s`. The row's times are those "
        "at which it fell silent and answered again. A row of one partition: "
        "for half a minute the task could not learn where the twin ends, the leader answered records or markers with "
        "an error or not at all, a quota of the cluster let nothing be sent, or the task could not connect to the "
        "leader; the sentence says which.",
        "Bring the target back before the source's retention deletes records that have not crossed. For one partition, "
        "look whether the machines on which the tasks run reach that broker, and whether somebody else keeps writing "
        "to the twin. If a quota throttles the mirror, give more to its user or to the client id `twinshore-pump`.",
    ),
    IncidentKindEntry(
        IncidentKind.LOST_BY_TARGET,
        IncidentOutcome.CONTINUES,
        POLICY_HEAL,
        "The target lost records that it had acknowledged, for example by an unclean election or a wiped disk.",
        "Nothing for the twin: the mirror carries the records again as far as the source still has them, and the row "
        "closes when they are there. Find out why the target lost them.",
    ),
    IncidentKindEntry(
        IncidentKind.CORRUPT_BATCH,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "A batch on the source is damaged: its bytes are not those its CRC was made from.",
        "Let another replica lead the partition, or mend the disk; then `twinshore mirror resume`.",
    ),
    IncidentKindEntry(
        IncidentKind.OLD_FORMAT,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "A batch on the source is in the message format v0 or v1 of clients before Kafka 0.11.",
        "Rewrite the topic with a current producer, or let retention delete the batch; then `twinshore mirror resume`.",
    ),
    IncidentKindEntry(
        IncidentKind.TOO_LARGE_UNPACKED,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "A compressed batch on the source must be written anew for the twin (its records take the time of their "
        "append, compaction took some, or a part crossed already), and unpacks to more than 64 MiB or 524,288 records, "
        "more than a task takes into its memory at a time. The mirror has not checked whether its records are whole.",
        "Find out who writes such batches. Rewrite the topic with a producer of smaller ones, or let retention delete "
        "the batch; then `twinshore mirror resume`. Most batches cross as they are, and have no such limit.",
    ),
    IncidentKindEntry(
        IncidentKind.HANGING_TRANSACTION,
        IncidentOutcome.CONTINUES,
        _tells("wait below it, as every consumer that reads committed data does"),
        "A transaction on the source has been open for long: nothing behind its first offset may cross.",
        "Abort it with `kafka-transactions.sh abort` on the source; the row names its producer and first offset.",
    ),
    IncidentKindEntry(
        IncidentKind.POSITION_DISAGREEMENT,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "The twin's end, its last batch and what the broker remembers of the link contradict each other.",
        "A row of one partition: find out who else writes as this link, for example a copy of its store that runs too. "
        f"{BEGIN_AGAIN_REFERENCE}. A row of a whole topic (partition -1): delete the target's topic, which begins at "
        "later "
        "offsets than the source's. If the topic is mapped, stop what else copies it, or set `mapped_from`. It then "
        "goes on by itself.",
    ),
    IncidentKindEntry(
        IncidentKind.DISK_NEAR_FULL,
        IncidentOutcome.CONTINUES,
        _tells("tell below `disk_warn_percent`; below `disk_pause_percent` write nothing to that broker's twins"),
        "A broker of the target has little room left on a disk.",
        "Make room, or move partitions to other brokers; the mirror goes on by itself when there is room again.",
    ),
    IncidentKindEntry(
        IncidentKind.REFUSED,
        IncidentOutcome.NEEDS_RESUME,
        POLICY_STOP,
        "A cluster refuses something for a reason that no other kind of incident names.",
        "Mend what the sentence names, then type `twinshore mirror resume`.",
    ),
    IncidentKindEntry(
        IncidentKind.CONTENT_DIFFERS,
        IncidentOutcome.CONTINUES,
        _tells("tell it, and change nothing"),
        "A proof found records that are not the same on both sides; the first offset named is where they part.",
        "Type `twinshore prove`: it shows both records and the kind of difference (docs/proof.md). Find out who wrote "
        "to the target, or which disk is failing. The row closes when a proof finds both sides the same there.",
    ),
    IncidentKindEntry(
        IncidentKind.DELETIONS_OWED,
        IncidentOutcome.CONTINUES,
        _tells("tell it, and change nothing"),
        "The twin of a compacted topic still has keys that were deleted on the source. The twin stood still, or was "
        "filled, for longer than the source's delete.retention.ms, and the tombstones were cleaned away before they "
        "crossed.",
        "Type `twinshore prove --again --topic TOPIC`: it lists the keys. If they must go, as personal data must: "
        f"{BEGIN_AGAIN_REFERENCE}. Raise delete.retention.ms on the source above the longest time that the mirror "
        "may stand. The "
        "row closes when a proof finds no such key any more, for example because the source has written it again.",
    ),
    IncidentKindEntry(
        IncidentKind.LOST_BEGINNING,
        IncidentOutcome.CONTINUES,
        _tells("go on at the end, and tell what is missing at the beginning"),
        "The twin begins later than its source: records were deleted on the target alone, by a retention that was set "
        "on the twin or by somebody's DeleteRecords. Kafka cannot write records in front of others.",
        "Find out who may change the twin, and remove retention.ms and retention.bytes from it. The row closes when "
        "the source's own retention has passed the offsets named. If you need the records earlier: "
        f"{BEGIN_AGAIN_REFERENCE}. "
        "A running mirror notices such a loss within some 10 s.",
    ),
    IncidentKindEntry(
        IncidentKind.DOUBTFUL_NOTE,
        IncidentOutcome.CONTINUES,
        _tells("do not believe it, and carry the topics as before"),
        "Lines of `twinshore.twins` on the source say that topics are twins, so that they would not be carried on. "
        "Nothing confirms these lines: no link says that it writes the topics, or this link has already carried them.",
        "Find out who may write to `twinshore.twins` on the source: only mirrors should. To take the claim back, write "
        "a line with the topic's name as its key and no value; the row closes within a minute or two. If another "
        "mirror does carry the topic there, give it the rights for its lines (docs/mirror.md).",
    ),
    IncidentKindEntry(
        IncidentKind.DOUBTFUL_HOME,
        IncidentOutcome.CONTINUES,
        _tells("do not believe it, and lead the topic as before"),
        "A line of `twinshore.homes` names a home in a term more than 1 000 above all that the clusters and the store "
        "know of the topic. No switch writes such a line.",
        "Find out who may write to `twinshore.homes` there: only mirrors and switches should. The mirror writes the "
        "line that stands once more, and the row closes then. Where the topic has no other line on that cluster, take "
        "the line away: write a line with its key and no value.",
    ),
    IncidentKindEntry(
        IncidentKind.GROUP_REFUSED,
        IncidentOutcome.CONTINUES,
        _tells("try again within `verify_s`, go on with all other groups and places"),
        "For half a minute a cluster has refused to take, or to tell, places of consumer groups that follow the link; "
        "or a topic that a group's `outputs` name has no twin. Such places stay where they were: after a failover the "
        "group would read records again.",
        "Mend what the sentence names: most often a right on the group, or the length of texts that the target allows. "
        "Or leave the group out (`exclude_groups`). The row closes when all its places are there.",
    ),
    IncidentKindEntry(
        IncidentKind.CLASHING_FILTERS,
        IncidentOutcome.CONTINUES,
        _tells(
            "go on with the filters that clash with none; pauses and throttles hold, and no twin of the link is deleted"
        ),
        "The link has filters that an operator set. With the other links as they are now, these filters could make "
        "records loop, or let two links write one twin, and they were set last. So the filters of the settings hold. "
        "A change that clashes is refused, so two were made at the same moment, or by processes with other settings.",
        "Give the links filters that have no topic in common, with `twinshore link filter` or in the settings. Or take "
        "the operator's filters back with `twinshore link reset LINK --name topics --name exclude`. The row closes "
        "within seconds.",
    ),
    IncidentKindEntry(
        IncidentKind.HOME_UNDECIDED,
        IncidentOutcome.TOPIC,
        POLICY_TOPIC,
        "Two links carry topics to each other's source under one name, and both clusters hold records of this topic, "
        "none of which came from the other: nobody can tell where it is written, so neither link carries it. "
        "Or it was deleted everywhere and made again on the other cluster, so its home, a row of the store, no longer "
        "has it.",
        "Find out who writes the topic on which cluster, and let only one side write it. If nobody needs what the "
        "other cluster holds, delete the topic there: then its home is clear. Otherwise name the home with `twinshore "
        "link home TOPIC CLUSTER`. The link from there carries the topic. What the other cluster holds then prevents "
        "the twin, as [foreign write](#foreign-write) says, unless the link carries it on behind with `mode = "
        '"mapped"`. The row closes within seconds.',
    ),
    IncidentKindEntry(
        IncidentKind.TAIL_RESCUED,
        IncidentOutcome.CONTINUES,
        POLICY_RESCUE,
        "An old home came back after a forced switch with records that had never crossed. `twinshore switch failback` "
        "saved them, and made the topic a twin again.",
        "`twinshore switch rescue show FILE` tells what the file holds, `twinshore switch rescue reinject FILE --to "
        "TOPIC` writes its records to a topic. `twinshore.rescued` on the new home keeps them; `rescue export` writes "
        "files again. The row is closed from the beginning.",
    ),
    IncidentKindEntry(
        IncidentKind.OLD_HOME_OPEN,
        IncidentOutcome.CONTINUES,
        _tells("try again every few seconds: say there where the topic is at home, and keep writers out by ACL"),
        "A switch has moved topics away from this cluster, and it has not heard that yet, as it does not answer or "
        "refuses. A client that still talks to it may write there. Such records never cross: the link back stops at "
        "them, as [foreign write](#foreign-write) says.",
        "Keep producers away from the old home. Mend what the sentence names: most often the cluster must come back, "
        "or the mirror's user lacks `Alter` on it. The row closes within seconds once it is told and guarded.",
    ),
    IncidentKindEntry(
        IncidentKind.OWN_TOPICS_OPEN,
        IncidentOutcome.CONTINUES,
        _tells("tell who else may write there, and change no rule"),
        "ACLs of a cluster let users other than Twinshore's change `twinshore.homes`, `twinshore.twins` or "
        "`twinshore.rescued`. Whoever writes lines there decides where topics are at home.",
        "Run the command in the sentence: it denies these users what they need not do, and leaves their other rights. "
        "No denial can be written against `User:*`, as it would shut Twinshore out: give applications rules of their "
        "own, and remove that rule. A user of Twinshore that other settings name is another's here: make it a super "
        "user. The row closes within seconds.",
    ),
    IncidentKindEntry(
        IncidentKind.WRITERS_HELD,
        IncidentOutcome.CONTINUES,
        _tells("turn the switch back once its process has given no sign of life for some seconds"),
        "A switch has held writers for more than three seconds. Who follows goes on by itself, 5 s after `--hold-s`.",
        "Where its process is gone the mirror ends it: see `twinshore switch status`. The row closes within seconds.",
    ),
    IncidentKindEntry(
        IncidentKind.NEWER_LINE,
        IncidentOutcome.TOPIC,
        POLICY_TOPIC,
        "A line of `twinshore.homes` or `twinshore.twins` that speaks of the topic was written by a newer version of "
        "Twinshore: its `v` is above 1. This mirror cannot read it. So it does not know where the topic is at home, or "
        "whether it is a twin, and carries it nowhere. Clients, proxies and switches of this version wait, too.",
        "Run the version that wrote the line. If no newer version has run here, find out who may write to the topic "
        "that the sentence names: only mirrors and switches should. Then take the line away: write a line with its key "
        "and no value. The row closes within seconds.",
    ),
)
INCIDENT_KINDS: Mapping[IncidentKind, IncidentKindEntry] = {row.kind: row for row in _ROWS}


# Incidents of a whole topic that are over once the topic is forgotten.
KNOWN_TOPIC_KINDS = (
    IncidentKind.DELETED_TOPIC,
    IncidentKind.DELETION_HELD,
    IncidentKind.RECREATED_TOPIC,
    IncidentKind.FOREIGN_WRITE,
)


# For one partition reported by a task; for a whole side by the watch.
_ALSO_PARTIAL = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)


def stop_policy(kind: IncidentKind, partition: int) -> IncidentPolicy:
    """Returns the policy for a partition stopped by a task, or a topic by the controller (`partition` -1)."""
    after = kind_entry(kind).after
    if partition < 0:
        return POLICY_TOPIC
    return POLICY_RETRY if after is IncidentOutcome.RETRIES else POLICY_STOP


def stops_replication(kind: IncidentKind, policy: IncidentPolicy) -> bool:
    """Whether a partition or topic is stopped unintentionally: a topic deleted on the source has nothing left to
    replicate.
    """
    return policy.stops or (policy.effect is IncidentEffect.TOPIC and kind is not IncidentKind.DELETED_TOPIC)


def is_transient(kind: IncidentKind, policy: IncidentPolicy | None) -> bool:
    """Whether the incident stops nothing and is over once the twin has reached its last offset."""
    kinds = (*_ALSO_PARTIAL, IncidentKind.LOST_BY_TARGET, IncidentKind.RETENTION_GAP, IncidentKind.STALE_DROPPED)
    return kind in kinds and not (policy and policy.stops)


def kind_entry(kind: IncidentKind) -> IncidentKindEntry:
    return INCIDENT_KINDS[kind]


def render_incidents_page() -> str:
    return PAGE_HEAD + "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    for row in INCIDENT_KINDS.values():
        yield f"| [{row.kind.value}](#{row.kind.value.replace(' ', '-')}) | {row.after.value} | {row.policy.words} |"
    for row in INCIDENT_KINDS.values():
        yield ""
        yield from _section(row)


def _section(row: IncidentKindEntry) -> Iterator[str]:
    yield f"## {row.kind.value}"
    yield ""
    yield f"**What it means.** {row.means}"
    yield ""
    yield f"**What to do.** {row.do}"
    if row.after is IncidentOutcome.NEEDS_RESUME:
        yield ""
        other = "; not for rows of partition -1" if row.kind in TOPIC_LEVEL_KINDS else ""
        again = ", if the cause went away by itself" if BEGIN_AGAIN_REFERENCE in row.do else ""
        yield f"**To go on.** `twinshore mirror resume` with the topic{again}{other}."
