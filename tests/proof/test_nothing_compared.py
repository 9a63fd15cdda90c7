"""What is said of partitions of which nothing could be compared, though somebody holds records."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.logs import batched
from tests.proof.small_broker import TOPIC, SmallBroker
from tests.proof.test_proving import COUNT, log, rig, spoilt
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.report import as_values, describe_report, exit_code
from twinshore.state.core.values import ProgressRecord, TwinRow

TOPIC_ID = uuid.UUID(int=7).hex


def offset_run(length: int) -> OffsetRun:
    """Where the records behind the first hundred lie."""
    return OffsetRun(SourceOffset(COUNT), TargetOffset(90), length, 0)


@pytest.mark.claim(
    "groups",
    "proof-of-nothing",
    "of a mapped partition to which nothing was carried yet a proof says so, and never that it is identical",
)
@pytest.mark.parametrize("again", [False, True])
def test_a_mapped_twin_to_which_nothing_was_carried_yet_is_not_said_to_be_identical(
    tmp_path: Path, again: bool
) -> None:
    with rig(tmp_path, log(), spoilt()[:90]) as two:
        twin = TwinRow("east->west", TOPIC, 0, TOPIC_ID, TOPIC_ID, COUNT, 0, 1)
        two.store.offset_runs.adopt([(twin, offset_run(0))])
        for _ in range(2):
            report = two.round(None, again=again)
            assert exit_code(report) == 2
            (verdict, line) = describe_report(report)
            assert verdict.startswith("cannot tell: 0 of 1 partitions identical, 1 cannot be told")
            assert (
                f"small-0: nothing was compared (offset-map): nothing is replicated yet, from offset {COUNT} on" in line
            )
            (told,) = as_values(report)["partitions"]
            assert told["nothing_compared"] and "empty" not in "".join(describe_report(report, everything=True))
        assert exit_code(two.round(CompareMode.CONTENT)) == 1, "it was never the same"
        more = log(COUNT + 5)
        two.source.log = SmallBroker("more", batched(random.Random(1), more, len(more), first=0)).log
        landed = [*spoilt()[:90], *(one._replace(offset=one.offset - 10) for one in more[COUNT:])]
        two.target.log = SmallBroker("more", batched(random.Random(1), landed, 95, first=0)).log
        given = ProgressRecord(
            link="east->west",
            topic=TOPIC,
            partition=0,
            from_offset=COUNT,
            to_offset=COUNT + 5,
            records=5,
            bytes=1,
            batches=1,
            source_end=COUNT + 5,
            first_ms=1,
            last_ms=1,
        )
        two.store.progress.record([replace(given, offset_runs=(offset_run(5),))])
        assert exit_code(two.round(None, again=again)) == 0
        two.target.start = 95
        (_, line) = describe_report(two.round(None, again=again), everything=True)
        assert f"below offset {COUNT + 5} " in line


def test_by_content_a_side_that_holds_records_alone_is_not_the_same_as_one_that_holds_none(tmp_path: Path) -> None:
    with rig(tmp_path, [], log()) as two:
        report = two.round(CompareMode.CONTENT)
        (_, line) = describe_report(report)
        assert exit_code(report) == 2 and "(content)" in line
