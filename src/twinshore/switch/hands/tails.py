"""Both homes hold the same records, proven up to the points: by the same round that `twinshore prove` makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twinshore.fleet import Link
from twinshore.fleet.sentences import counted, listed
from twinshore.fleet.settings import Settings
from twinshore.proof.continuous import wishes_of
from twinshore.proof.job import in_this_process
from twinshore.proof.proving import PartitionReport, Proving
from twinshore.store import Store
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.record import Record

NAMED_MAX = 5


def prove(
    link: Link, settings: Settings, store: Store, record: Record, *, log: Callable[[str], None], whole: bool
) -> Outcome:
    """Goes on from what was proven before, so that a tail takes little. `whole`: through the points; else as far as
    both sides are now."""
    tasks = settings.proof.tasks
    wishes = replace(wishes_of(settings.proof), digest=False).per_task(tasks)
    proving = Proving(
        settings, store, in_this_process, wishes=wishes, tasks=tasks, way=None, stopped=lambda: False, log=log
    )
    report = proving.round([link], list(record.names()), again=False)
    differing = [f"{one.row.topic}-{one.row.partition}" for one in report.partitions if one.differs]
    if differing:
        return Cannot(f"the twins are not the same: {listed(differing, NAMED_MAX)}; `twinshore prove` shows where")
    records = sum(one.compared for one in report.partitions)
    if not whole:
        return Done(record, f"proven but for the tails; {counted(records, 'record')} compared now")
    points = {(one.topic, number): point for one in record.topics for number, point in enumerate(one.points)}
    through = {(one.row.topic, one.row.partition): _through(one) for one in report.partitions}
    lacking = [f"{topic}-{number}" for (topic, number), at in points.items() if through.get((topic, number), 0) < at]
    if lacking:
        return Wait(f"not proven through its end yet: {listed(lacking, NAMED_MAX)}")
    return Done(record, f"the tails are proven; {counted(records, 'record')} compared")


def _through(one: PartitionReport) -> int:
    """Up to where nothing is left to compare: also where the rest of the source holds nothing that anybody sees."""
    return max(one.row.to_offset, one.row.source_end if not one.unknown else 0)
