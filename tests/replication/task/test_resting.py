"""Twins at rest are asked for their ends, and looked at where these are elsewhere."""

from __future__ import annotations

from tests.replication.task.parcels import a_batch
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.known_end import UNKNOWN_S
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import PartitionLeaders, PartitionReplicator, Phase
from twinshore.replication.task.core.resync import EndOffsetCheck, find_idle_twins, find_unsure_twins, recheck_log_ends


def track(partition: int, node: int = 1) -> PartitionReplicator:
    made = PartitionReplicator.of(PartitionConfig("t", partition, "aa", "bb", receipt_to=10), (7, 0), 3, 1 << 20)
    made.begin(10, armed_until_ms=0, leader_epoch=0)
    made.leaders = PartitionLeaders(1, 0, node, target_epoch=5)
    made.led = (node, 5)
    return made


def test_only_twins_to_which_nothing_goes_are_asked_for() -> None:
    idle, busy, read_ahead, behind, leaving, elsewhere, looking = (track(number) for number in range(7))
    busy.in_flight = 1
    read_ahead.fetched = 12
    behind.write_from = 12
    leaving.leaving = True
    elsewhere.leaders = PartitionLeaders(1, 0, 2, target_epoch=5)
    looking.settle(0.0)
    looking.looks(0.0)
    found = find_idle_twins([idle, busy, read_ahead, behind, leaving, elsewhere, looking], 1)
    assert found == [EndOffsetCheck(idle, 10)]
    assert (found[0].run.topic, found[0].run.partition, found[0].run.led) == ("t", 0, 5)


def test_an_end_elsewhere_asks_for_a_look_unless_the_twin_moved_on() -> None:
    same, foreign, lost, moved_on, writing = (track(number) for number in range(5))
    asked = find_idle_twins([same, foreign, lost, moved_on, writing], 1)
    moved_on.fetched = moved_on.sent = moved_on.acked = 11
    writing.in_flight = 1
    ends = [MarkerOutcome("t", number, 0, end) for number, end in enumerate((10, 12, 8, 11, 12))]
    assert not recheck_log_ends(asked, ends, 50.0)[0]
    assert [one.phase for one in (same, foreign, lost, moved_on, writing)] == [
        Phase.RUNNING,
        Phase.UNVERIFIED,
        Phase.UNVERIFIED,
        Phase.RUNNING,
        Phase.RUNNING,
    ]
    assert foreign.retry_at_s > 50.0


def test_a_leader_that_cannot_tell_has_the_leaders_looked_up() -> None:
    for answer in ([], [MarkerOutcome("t", 0, Code.fenced_leader_epoch, -1)]):
        one = track(0)
        assert recheck_log_ends(find_idle_twins([one], 1), answer, 50.0)[0]
        assert one.phase is Phase.RUNNING, "the next route decides"


def waiting(partition: int) -> PartitionReplicator:
    made = track(partition)
    made.zombies.left(made.leaders.source_epoch, UNKNOWN_S, calm=False)
    made.queue(a_batch(10, 12), None)
    return made


def test_where_something_waits_that_no_sequence_guards_the_end_is_asked_for_once_and_then_it_goes() -> None:
    bare, guarded, sending, marking, idle = (waiting(number) for number in range(5))
    guarded.known_end.bare, guarded.known_end.armed_until_ms = False, 10**12
    sending.in_flight = 1
    marking.waiting.appendleft((OffsetGap(8, 10), None))
    idle.waiting.drop()
    asked = find_unsure_twins([bare, guarded, sending, marking, idle], 50.0, 0)
    assert asked == [EndOffsetCheck(bare, 10)]
    assert not find_unsure_twins([bare], 50.1, 0), "one question at a time"
    assert not bare.may_send(a_batch(10, 12), 50.2, 0, 1000)
    assert not recheck_log_ends(asked, [MarkerOutcome("t", 0, 0, 10)], 50.2)[0]
    assert bare.may_send(a_batch(10, 12), 50.3, 0, 1000)


def test_of_a_batch_that_crossed_in_part_the_rest_is_asked_for() -> None:
    one = waiting(0)
    one.acked = one.sent = 6
    asked = find_unsure_twins([one], 50.0, 0)
    assert asked == [EndOffsetCheck(one, 10)]
    assert not recheck_log_ends(asked, [MarkerOutcome("t", 0, 0, 10)], 50.2)[0]
    assert one.phase is Phase.RUNNING, "else it would be looked at for ever"
    assert one.may_send(a_batch(10, 12), 50.3, 0, 1000)


def test_where_it_ends_elsewhere_or_nobody_can_tell_only_a_look_can() -> None:
    fenced = MarkerOutcome("t", 0, Code.fenced_leader_epoch, -1)
    for answers in ([MarkerOutcome("t", 0, 0, 9)], [MarkerOutcome("t", 0, 0, 11)], [fenced], []):
        one = waiting(0)
        recheck_log_ends(find_unsure_twins([one], 50.0, 0), answers, 50.2)
        assert one.phase is Phase.UNVERIFIED
        assert not one.waiting


def test_an_answer_that_took_long_counts_nevertheless() -> None:
    one = waiting(0)
    recheck_log_ends(find_unsure_twins([one], 50.0, 0), [MarkerOutcome("t", 0, 0, 10)], 59.0)
    assert one.may_send(a_batch(10, 12), 59.0, 0, 1000), "else nothing would go behind a long line"
