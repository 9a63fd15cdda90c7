"""Runs of closed units: what is known of them after each round, how they are handed out, and whose ids they have."""

from __future__ import annotations

from testkit.errors import mentions
from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.error_codes import Code
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import PartitionConfig
from twinshore.replication.task.core.partition import PartitionReplicator, Phase
from twinshore.replication.task.core.resync import (
    MarkerRunProgress,
    PendingMarkers,
    judge_refused_markers,
    markers_landed,
    next_marker_runs,
)
from twinshore.replication.task.lookups import transactional_id_prefix


def track(partition: int = 0) -> PartitionReplicator:
    order = PartitionConfig("orders", partition, "aa", "bb", twin="orders.twin")
    made = PartitionReplicator.of(order, (7, 0), 3, 1 << 20)
    made.begin(10, armed_until_ms=0, leader_epoch=0)
    made.zombies.until_s = 0.0
    return made


def run(gap: OffsetGap, done: int) -> MarkerRunProgress:
    return MarkerRunProgress(PendingMarkers(track(), gap), gap.base, gap.end - gap.base, done)


def test_a_run_is_over_with_its_last_marker_and_no_sooner() -> None:
    gap = OffsetGap(10, 13)
    assert run(gap, 1).judged(11) is None
    assert run(gap, 2).judged(12) is None
    over = run(gap, 3).judged(13)
    assert over == MarkerOutcome("orders.twin", 0, 0, 13)
    assert markers_landed(over, gap)


def test_a_log_end_that_is_not_expected_ends_the_run_unlanded() -> None:
    gap = OffsetGap(10, 13)
    for done, end in ((1, 10), (1, 12), (3, 12), (3, 14)):
        found = run(gap, done).judged(end)
        assert found is not None
        assert not markers_landed(found, gap)
    beyond = judge_refused_markers(run(gap, 3).judged(14), gap, 0)
    assert beyond
    assert beyond.kind == "position disagreement"
    assert judge_refused_markers(run(gap, 1).judged(12), gap, 0) is None, "a look tells"


def test_each_partition_gets_its_share_of_a_round() -> None:
    tracks = [track(number) for number in range(3)]
    for one in tracks:
        one.queue(OffsetGap(10, 100), None)
        one.enter(Phase.RUNNING)
    found = next_marker_runs(dict.fromkeys(tracks), 0.0, 7)
    assert [marks.gap for marks in found] == [OffsetGap(10, 17)] * 3
    assert all(one.waiting[0][0] == OffsetGap(17, 100) for one in tracks)
    assert not next_marker_runs(dict.fromkeys(tracks), 0.0, 7), "they wait for the answer"


def test_the_sentence_of_a_missing_right_names_it() -> None:
    gap = OffsetGap(10, 13)
    halt = judge_refused_markers(run(gap, 0).answer(Code.transactional_id_authorization_failed), gap, 0)
    assert halt
    assert halt.kind == "rights lost"
    assert mentions(halt.sentence, "Describe and Write", "transactional ids")
    halt = judge_refused_markers(run(gap, 0).answer(Code.cluster_authorization_failed), gap, 0)
    assert halt
    assert mentions(halt.sentence, "ClusterAction or Alter")
    assert "transactional" not in halt.sentence


def test_ids_are_the_links_own() -> None:
    assert transactional_id_prefix("a->b", 17) == "twinshore.a->b.17."
    assert not f"{transactional_id_prefix('a->b', 17)}0.0".startswith(transactional_id_prefix("a->b", 1))
    assert run(OffsetGap(1, 2), 0).named == TopicPartition("orders.twin", 0)
