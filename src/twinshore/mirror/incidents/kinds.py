"""The table of incidents: what each kind means, what the mirror does about it, and what an operator can do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from twinshore.fleet.incidents import (
    POLICY_GAP,
    POLICY_HEAL,
    POLICY_KEEP_TWIN,
    POLICY_RETRY,
    POLICY_STOP,
    POLICY_TOPIC,
    POLICY_WAIT,
    Effect,
    IncidentKind,
    Policy,
)


class After(Enum):
    """What becomes of what it concerns: a partition, a topic or, where brokers are concerned, all that is on them."""

    GOES_ON = "goes on"
    RETRIES = "rests, and is tried again every few seconds"
    RESUMED = "rests until `twinshore mirror resume`"
    TOPIC = "the whole topic rests until both sides agree again"


@dataclass(frozen=True, slots=True)
class Known:
    """`policy` is what the ledger says was done, unless the row says something more special."""

    kind: IncidentKind
    after: After
    policy: Policy
    means: str
    do: str


BEGIN_AGAIN = "[Begin the twin anew](#begin-a-twin-anew)"


def _tells(words: str) -> Policy:
    return Policy(words, Effect.TELLS)


_ROWS = (
    Known(
        IncidentKind.RETENTION_GAP,
        After.GOES_ON,
        POLICY_GAP,
        "The source deleted records before they crossed: retention was faster than the mirror, or the log was cut.",
        "Nothing can bring them back. Look why the link lagged; keep records on the source for longer than it ever "
        "stands still. The row closes when the twin is behind the gap.",
    ),
    Known(
        IncidentKind.TRUNCATION,
        After.RESUMED,
        POLICY_STOP,
        "The source lost records that the twin has, as after an unclean election or a wiped disk; from the first "
        "offset named on the two histories differ.",
        f"Save what the twin alone holds, if anybody needs it. {BEGIN_AGAIN}. Or stay with the twin, and leave the "
        "partition as it is: it rests, its neighbours go on.",
    ),
    Known(
        IncidentKind.RECREATED_TOPIC,
        After.TOPIC,
        POLICY_TOPIC,
        "A topic of the same name is another one now, on the source or on the target: its offsets begin anew.",
        "`twinshore mirror begin-again TOPIC` deletes the old twin and begins a new one; `recreated` in the link's "
        "section `follow` does so without being asked, at the time that the sentence names, unless `twinshore mirror "
        "keep TOPIC` forbids it. A topic that somebody else put in the twin's place is never "
        "deleted by the mirror: delete it yourself first. A mapped twin is never deleted either: stop the mirror, "
        '`twinshore mirror forget TOPIC`, `mapped_from = "start"` in the link\'s section, start it again.',
    ),
    Known(
        IncidentKind.DELETED_TOPIC,
        After.TOPIC,
        POLICY_KEEP_TWIN,
        "The topic was deleted on the source.",
        "Nothing where the twin stays: its row stays open to say so. `deleted` in the link's section `follow` chooses "
        "what becomes of such twins. Where the sentence names a time, a policy deletes the twin then: **if that must "
        "not be, `twinshore mirror keep TOPIC`**, or pause the link. The row closes when the topic is there again, "
        "when the twin is archived, or when the twin is deleted.",
    ),
    Known(
        IncidentKind.DELETION_HELD,
        After.TOPIC,
        POLICY_KEEP_TWIN,
        "A policy would delete a twin, and something speaks against it: it holds what the link did not carry, it lacks "
        "what never crossed, too many would go at once, or the target refuses to delete it.",
        "**Do not delete it before you have looked: it may be the last copy.** Save what it holds, then decide. Of too "
        "many at once: look why so many topics are gone, then `twinshore mirror delete TOPIC`, or `begin-again` where "
        "they were made again. A twin that holds what the link did not carry is never deleted by a policy: delete it "
        "yourself, or `twinshore mirror begin-again TOPIC --even-uncarried` where the topic was made again. The row "
        "closes when the topic is seen again, when the twin is deleted, or with `twinshore mirror forget TOPIC`.",
    ),
    Known(
        IncidentKind.FOREIGN_WRITE,
        After.RESUMED,
        POLICY_STOP,
        "Somebody else wrote to the twin, or the topic held data before the link was made: its offsets are taken. A "
        "running mirror tells it with the source's next record, and within some five seconds where none comes.",
        "If the topic held data before the link (partition -1): delete it on the target if nobody needs it, "
        'exclude it, or set `mode = "mapped"` and start the mirror again; it goes on by itself within seconds. If '
        "somebody wrote to a running twin: find the writer by the producer id and take the right to write from it; "
        f"what was written cannot be cut from a log's end. {BEGIN_AGAIN}.",
    ),
    Known(
        IncidentKind.OVERSIZE_BATCH,
        After.RETRIES,
        POLICY_RETRY,
        "The target does not take a batch of this size: max.message.bytes or segment.bytes of the twin is below it.",
        "Nothing where the mirror may change the twin's settings: it raises the limit to the source's. Else raise "
        "max.message.bytes on the twin to the size named.",
    ),
    Known(
        IncidentKind.PARTITION_ADDED,
        After.GOES_ON,
        _tells("give the twin as many, and carry the new ones from their first offset"),
        "The source's topic has more partitions than before.",
        "Nothing.",
    ),
    Known(
        IncidentKind.PARTITION_REMOVED,
        After.TOPIC,
        POLICY_TOPIC,
        "The twin's topic has more partitions than the source's: somebody added some, or the source was made again.",
        f"{BEGIN_AGAIN}; or exclude the topic. A topic that the link has never carried goes on by itself, within "
        "seconds of the twin's deletion.",
    ),
    Known(
        IncidentKind.RIGHTS_LOST,
        After.RETRIES,
        POLICY_RETRY,
        "A cluster that is well refuses the mirror's user something.",
        "Grant what the sentence names; it goes on by itself within seconds. A row that says "
        "*carry it all the same* stops nothing: a twin's log may not be cut to its source's start, so that records "
        "stay there which the source has deleted ([deletes](deletes.md#without-the-right-to-delete)); it closes within "
        "half a minute of the right.",
    ),
    Known(
        IncidentKind.SOURCE_AWAY,
        After.GOES_ON,
        POLICY_WAIT,
        "The source, or the leader of some partitions there, has not answered for `away_after_s`. Of one partition: "
        "its leader has answered fetches with an error for half a minute, as where its object store is away, or has "
        "answered none, or cannot be connected to from where the pump runs; the sentence says which. Of a whole topic "
        "(partition -1): the link cannot begin with it now, as where nobody leads a partition; the others are carried.",
        "Bring it back before its retention deletes what did not cross; the row names the lag when it closes. Of one "
        "partition: look into that broker's log, at its object store where the topic is tiered, and whether the "
        "machines that the pumps run on reach it.",
    ),
    Known(
        IncidentKind.TARGET_AWAY,
        After.GOES_ON,
        POLICY_WAIT,
        "The target, or the leader of some twins there, has not answered for `away_after_s`. Of one partition: its "
        "pump could not learn for half a minute where the twin ends, or its leader has for as long answered records or "
        "markers with an error, or not at all, or lets nothing be sent since a quota of its cluster throttles the "
        "mirror, or cannot be connected to from where the pump runs; the sentence says what stands in the way.",
        "Bring it back before the source's retention deletes what did not cross. Of one partition: look whether the "
        "machines that the pumps run on reach that broker, and whether somebody else writes to the twin all the time. "
        "Where a quota throttles the mirror, give its user or the client id `twinshore-pump` more.",
    ),
    Known(
        IncidentKind.LOST_BY_TARGET,
        After.GOES_ON,
        POLICY_HEAL,
        "The target lost records that it had acknowledged, as after an unclean election or a wiped disk.",
        "Nothing: they are carried again as far as the source still has them, and the row closes when they are there. "
        "Look why the target lost them.",
    ),
    Known(
        IncidentKind.CORRUPT_BATCH,
        After.RESUMED,
        POLICY_STOP,
        "A batch on the source is damaged: its bytes are not those its CRC was made from.",
        "Let another replica lead the partition, or mend the disk; then `twinshore mirror resume`.",
    ),
    Known(
        IncidentKind.OLD_FORMAT,
        After.RESUMED,
        POLICY_STOP,
        "A batch on the source is in the message format v0 or v1 of clients before Kafka 0.11.",
        "Rewrite the topic with a current producer, or let retention delete the batch; then `twinshore mirror resume`.",
    ),
    Known(
        IncidentKind.TOO_LARGE_UNPACKED,
        After.RESUMED,
        POLICY_STOP,
        "A compressed batch on the source must be written anew for the twin (its records take the time of their "
        "append, compaction took some, or a part crossed already), and unpacks to more than 64 MiB or 524,288 records: "
        "more than a pump takes into its memory at a time. Its bytes may be well; nobody has looked into them.",
        "Look who writes such batches. Rewrite the topic with a producer of smaller ones, or let retention delete the "
        "batch; then `twinshore mirror resume`. Most batches cross as they are, and have no such limit.",
    ),
    Known(
        IncidentKind.HANGING_TRANSACTION,
        After.GOES_ON,
        _tells("wait below it, as every consumer that reads committed data does"),
        "A transaction on the source has been open for long: nothing behind its first offset may cross.",
        "Abort it with `kafka-transactions.sh abort` on the source; the row names its producer and first offset.",
    ),
    Known(
        IncidentKind.POSITION_DISAGREEMENT,
        After.RESUMED,
        POLICY_STOP,
        "The twin's end, its last batch and the broker's memory of the link do not tell one story.",
        "Of one partition: look who else writes as this link: a copy of its store that runs too, perhaps. "
        f"{BEGIN_AGAIN}. Of a whole topic (partition -1): delete the target's topic, which begins at later offsets "
        "than the source's; or, of a mapped one, stop what else copies it, or set `mapped_from`. It goes on by itself.",
    ),
    Known(
        IncidentKind.DISK_NEAR_FULL,
        After.GOES_ON,
        _tells("tell below `disk_warn_percent`; below `disk_pause_percent` write nothing to that broker's twins"),
        "A broker of the target has little room left on a disk.",
        "Make room, or move partitions to other brokers; it goes on by itself when there is room again.",
    ),
    Known(
        IncidentKind.REFUSED,
        After.RESUMED,
        POLICY_STOP,
        "A cluster refuses something for a reason that is none of the others.",
        "Mend what the sentence names, then `twinshore mirror resume`. A row that says *leave what never_delete keeps* "
        "stops nothing: records without a value filled a gap, `never_delete` was set before they were cut off, and "
        "readers see them at the offsets named. The row closes when the twin's log begins behind them.",
    ),
    Known(
        IncidentKind.CONTENT_DIFFERS,
        After.GOES_ON,
        _tells("tell it, and change nothing"),
        "A proof found records that are not the same on both sides; the first offset named is where they part.",
        "`twinshore prove` shows both records and what kind of difference it is (docs/proof.md). Find out who wrote to "
        "the target, or which disk is failing; the row closes when a proof finds that place to be the same.",
    ),
    Known(
        IncidentKind.DELETIONS_OWED,
        After.GOES_ON,
        _tells("tell it, and change nothing"),
        "Keys that the source of a compacted topic has deleted live on in the twin: it stood still, or was filled, for "
        "longer than the source's delete.retention.ms, and their tombstones were cleaned away before they crossed.",
        "`twinshore mirror examine --topic TOPIC` lists the keys. If they must go, as personal data must: "
        f"{BEGIN_AGAIN}. Raise delete.retention.ms on the source above the longest time that the mirror may stand. The "
        "row closes when a proof finds that no key is owed any more, as when the source has written it again.",
    ),
    Known(
        IncidentKind.LOST_BEGINNING,
        After.GOES_ON,
        _tells("go on at the end, and tell what is missing at the beginning"),
        "The twin begins later than its source: records were deleted on the target alone, by a retention that was set "
        "on the twin or by somebody's DeleteRecords. They cannot be written in front of those that are there.",
        "Look who may change the twin, and take retention.ms and retention.bytes off it. The row closes when the "
        f"source's own retention has passed the offsets named. If they are needed on the target before: {BEGIN_AGAIN}. "
        "A running mirror tells it within some 10 s.",
    ),
    Known(
        IncidentKind.DOUBTFUL_NOTE,
        After.GOES_ON,
        _tells("do not believe it, and carry the topics as before"),
        "Lines of `twinshore.twins` on the source call topics twins, which would keep them from crossing, and nothing "
        "bears that out: no link says that it writes them, or this link has carried them as what they are.",
        "Look who may write to `twinshore.twins` on the source: mirrors alone should. A line with the topic's name as "
        "its key and no value takes the claim back; the row closes within a minute or two. Where another mirror does "
        "carry the topic there, give it the rights for its lines (docs/mirror.md).",
    ),
    Known(
        IncidentKind.GROUP_REFUSED,
        After.GOES_ON,
        _tells("try again within `verify_s`, go on with all other groups and places"),
        "For half a minute a cluster has refused to take, or to tell, places of consumer groups that follow the link; "
        "or a topic that a group's `outputs` name has no twin. Such places stay where they were: after a failover the "
        "group would read records again.",
        "Mend what the sentence names: most often a right on the group, or the length of texts that the target allows. "
        "Or leave the group out (`exclude_groups`). The row closes when all its places are there.",
    ),
    Known(
        IncidentKind.CLASHING_FILTERS,
        After.GOES_ON,
        _tells(
            "go on with the filters that clash with none; pauses and throttles hold, and no twin of the link is deleted"
        ),
        "What operators said of the link's filters could make records loop, or has two links write one twin, with the "
        "other links of the settings as they are now. The filters that were right last hold instead, or the settings'.",
        "Give the links filters that have no topic in common, with `twinshore link filter` or in the settings, or take "
        "back what was said with `twinshore link reset LINK --name topics --name exclude`. The row closes within "
        "seconds.",
    ),
    Known(
        IncidentKind.HOME_UNDECIDED,
        After.TOPIC,
        POLICY_TOPIC,
        "Two links carry topics to each other's source under one name, and both clusters hold records of this topic, "
        "none of which came from the other: nobody can tell where it is written, so neither link carries it. "
        "Or it was deleted everywhere and made again on the other cluster: its home, which is a row of the store, has "
        "it no more.",
        "Look who writes it where, and have one side alone write it. Where nobody needs what the other cluster holds, "
        "delete the topic there: then its home is plain. Else say which it is with `twinshore link home TOPIC "
        "CLUSTER`: the link from there carries it, and what the other cluster holds stands in the twin's way, as "
        '[foreign write](#foreign-write) says, unless the link carries it on behind with `mode = "mapped"`. The row '
        "closes within seconds.",
    ),
)
KINDS: Mapping[IncidentKind, Known] = {row.kind: row for row in _ROWS}


# What the ledger may say of a whole topic that is over once nobody knows the topic any more.
OF_KNOWN_TOPICS = (
    IncidentKind.DELETED_TOPIC,
    IncidentKind.DELETION_HELD,
    IncidentKind.RECREATED_TOPIC,
    IncidentKind.FOREIGN_WRITE,
)


# Of one partition they are told by its pump; of a whole side by the watch.
_ALSO_PARTIAL = (IncidentKind.SOURCE_AWAY, IncidentKind.TARGET_AWAY)


def halt_policy(kind: IncidentKind, partition: int) -> Policy:
    """What the ledger says was done where a pump stopped a partition, or the driver a topic (`partition` -1)."""
    after = known(kind).after
    if partition < 0:
        return POLICY_TOPIC
    return POLICY_RETRY if after is After.RETRIES else POLICY_STOP


def rests(kind: IncidentKind, policy: Policy) -> bool:
    """Whether a row that says this keeps its partition, or its whole topic, from being carried against anybody's will:
    what was deleted at the source is not there to be carried."""
    return policy.stops or (policy.effect is Effect.TOPIC and kind is not IncidentKind.DELETED_TOPIC)


def passing(kind: IncidentKind, policy: Policy | None) -> bool:
    """Whether the incident stopped nothing and is over once its twin has all up to where the row ends."""
    kinds = (*_ALSO_PARTIAL, IncidentKind.LOST_BY_TARGET, IncidentKind.RETENTION_GAP)
    return kind in kinds and not (policy and policy.stops)


def known(kind: IncidentKind) -> Known:
    """What the table says of a kind."""
    return KINDS[kind]
