"""What a row of the ledger does, and where, by its words: of versions that wrote nothing else. No statement, only SQL.

Such a version's mirror may go on writing while the store has the columns already: a mirror of a newer version that
stands by, or a look at how links stand, has brought the store up under it. So these words are read as long as rows are.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, case, or_

from twinshore.fleet.incidents import IncidentKind as Kind

# As those versions wrote them.
_STOPS = (
    "stop the partition, go on with its neighbours",
    "rest the partition, try again every few seconds, go on with its neighbours",
)
_TRIED_AGAIN = (Kind.OVERSIZE_BATCH, Kind.RIGHTS_LOST)
_PASS = (Kind.RETENTION_GAP, Kind.LOST_BY_TARGET, Kind.SOURCE_AWAY, Kind.TARGET_AWAY)
_ON_SOURCE = (
    *(Kind.RETENTION_GAP, Kind.TRUNCATION, Kind.DELETED_TOPIC, Kind.PARTITION_ADDED, Kind.SOURCE_AWAY),
    *(Kind.CORRUPT_BATCH, Kind.OLD_FORMAT, Kind.TOO_LARGE_UNPACKED, Kind.HANGING_TRANSACTION, Kind.DOUBTFUL_NOTE),
)
_ON_TARGET = (
    *(Kind.DELETION_HELD, Kind.FOREIGN_WRITE, Kind.OVERSIZE_BATCH, Kind.PARTITION_REMOVED, Kind.TARGET_AWAY),
    *(Kind.LOST_BY_TARGET, Kind.POSITION_DISAGREEMENT, Kind.DISK_NEAR_FULL, Kind.DELETIONS_OWED, Kind.LOST_BEGINNING),
)
_ON_BOTH = (Kind.CONTENT_DIFFERS, Kind.GROUP_REFUSED)
_AWAY = "the {} turns the mirror away%"

Text = ColumnElement[str]


def effect_by_words(kind: Text, policy: Text) -> Text:
    """What the row does."""
    of_twins = (
        *(policy == text for text in ("keep the twin", "archive the twin")),
        *(policy.like(f"{text} %") for text in ("delete the twin after", "begin again after", "try again every")),
    )
    return case(
        (policy.in_(_STOPS) & _of(kind, _TRIED_AGAIN), "retries"),
        (policy.in_(_STOPS), "stops"),
        (policy == "stop the topic", "topic"),
        (policy == "carry it all the same, try to cut its twin every 30 s", "uncut"),
        (policy == "carry it all the same, leave what never_delete keeps", "filler"),
        (_of(kind, _PASS), "passes"),
        (or_(*of_twins), "twin"),
        else_="tells",
    )


def side_by_words(kind: Text, sentence: Text) -> Text:
    """Where it happened. Of a right that is lost, of what is refused and of a topic that was made again only the
    sentence tells."""
    again = _of(kind, (Kind.RECREATED_TOPIC,))
    twin_again = or_(sentence.like("the twin %"), sentence.like("the mapped twin %"))
    return case(
        (_of(kind, _ON_SOURCE), "source"),
        (_of(kind, _ON_TARGET), "target"),
        (_of(kind, _ON_BOTH), "both"),
        (sentence.like(f"{_AWAY.format('source')}; and {_AWAY.format('target')}"), "both"),
        (sentence.like("the source %"), "source"),
        (sentence.like("the target %"), "target"),
        (sentence.like("the twin refuses %"), "target"),
        (sentence.like("the log of twin %"), "target"),
        (sentence.like("%of twin % hold records without a value%"), "target"),
        (again & twin_again, "target"),
        (again, "source"),
        else_="none",
    )


def _of(kind: Text, kinds: Sequence[Kind]) -> ColumnElement[bool]:
    return kind.in_([one.value for one in kinds])
