"""What only looks, asked as a program asks: values come back, in the forms that programs and people read."""

from __future__ import annotations

from testkit.errors import mentions, raises
from tests.replication.operations.asked import BACK, LINK, settings_of
from twinshore.config.errors import ConfigError
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.replication.core.model import Grow
from twinshore.replication.operations.run_plan import OffsetQuery, RunPlan, look_up_offsets, plan_run
from twinshore.replication.operations.twins import read_audit
from twinshore.replication.sync.core.decisions import Remark
from twinshore.state.core.values import AuditRow, TwinRow
from twinshore.state.log import AuditFilter
from twinshore.state.store import Store

SETTINGS = settings_of(f'[links."{LINK}"]\nmode = "mapped"\n[links."{BACK}"]\n')
SOUTH = '[clusters.south]\nbootstrap = ["127.0.0.1:3"]\n'
RING = settings_of(f'{SOUTH}[links."{LINK}"]\n[links."west->south"]\n[links."south->east"]\n')
NOTHING = (
    "nothing to do: the links' filters admit no topic that their sources show to the mirror's user;"
    " `twinshore link list` shows the filters, and a user sees the topics that it may Describe"
)


def test_an_offset_is_found_from_either_side(store: Store) -> None:
    offset_run = OffsetRun(SourceOffset(10), TargetOffset(70), 0, 0)
    store.offset_runs.adopt([(TwinRow(LINK, "bills", 0, "cc", "dd", 10, 0, 1), offset_run)])
    (run,) = look_up_offsets(OffsetQuery("bills"), SETTINGS, store)
    assert run.sentence() == "east->west: bills-0: nothing yet; continues with 10 of the source behind 70 of the target"
    (spot,) = look_up_offsets(OffsetQuery("bills", source_offset=12), SETTINGS, store)
    assert list(spot.as_values().items())[3:] == [("source", 12), ("target", 70), ("exact", False)]
    (spot,) = look_up_offsets(OffsetQuery("bills", target_offset=75), SETTINGS, store)
    assert list(spot.as_values().items())[3:] == [("target", 75), ("source", 10), ("exact", False)]
    assert mentions(spot.sentence(), "source 10 is target 75")
    with raises(ConfigError, "replication.no-offset-map", partition="orders-0"):
        look_up_offsets(OffsetQuery("orders"), SETTINGS, store)
    with raises(ConfigError, "replication.one-of-two"):
        look_up_offsets(OffsetQuery("bills", source_offset=1, target_offset=1), SETTINGS, store)


def test_changes_are_those_of_the_links_that_are_meant(store: Store) -> None:
    for at_ms, link in ((1, LINK), (2, BACK)):
        store.audit.add([AuditRow(at_ms, link, "acl", "a rule", "", "written", "done")])
    assert [row.link for row in read_audit(AuditFilter(), SETTINGS, store, last=9)] == [BACK, LINK]
    assert [row.link for row in read_audit(AuditFilter((LINK,)), SETTINGS, store, last=9)] == [LINK]


def test_a_plan_of_running_has_first_what_nobody_can_tell() -> None:
    grow, remark = Grow("orders", 3, "aa"), Remark("topic", "bills", "was deleted on the source")
    found = RunPlan(((LINK, grow),), ((LINK, remark),), ((BACK, "west does not answer"),))
    first, *others = found.sentences()
    assert mentions(first, BACK, "west does not answer")
    assert mentions(others[0], LINK, "orders", "3 partitions") and others[1:] == [f"{LINK}: {remark}"]
    kinds = [(one["link"], one["step"]) for one in found.as_values()]
    assert kinds == [(BACK, "unknown"), (LINK, "grow"), (LINK, "remark")]
    assert RunPlan((), (), ()).sentences() == [NOTHING]


def test_links_that_could_loop_have_no_plan(store: Store) -> None:
    with raises(ConfigError, "replication.links-loop"):
        plan_run((), RING, store)
