"""What the plan says a topic will take."""

from __future__ import annotations

from twinshore.replication.core.mapping import LogSample, PartitionWork, ReplicationRate, estimate_cost


def test_samples_stand_for_the_whole_topic() -> None:
    rate = ReplicationRate(1e6, measured=True)
    stretches = [PartitionWork(3_000, 1_000), PartitionWork(1_000, 0)]
    found = estimate_cost("orders", "exact", stretches, [LogSample(100, 90, 50_000), LogSample(100, 70, 30_000)], rate)
    assert (found.offsets, found.bytes, found.markers, found.filler) == (4_000, 1_600_000, 800, 1_000)
    assert str(found).startswith("cost of orders: exact: about 1.6 MB in 4000 offsets, 800 markers, 1000 offsets of f")
    assert str(found).endswith("7 s at 1.0 MB/s (measured)")


def test_a_mapped_topic_needs_neither_markers_nor_filler() -> None:
    place = "orders-0 goes on with 7"
    found = estimate_cost(
        "orders", "mapped", [PartitionWork(10, 5)], [LogSample(10, 5, 999)], ReplicationRate(5e7, measured=False), place
    )
    assert (found.markers, found.filler) == (0, 0)
    assert str(found) == (
        "cost of orders: mapped, orders-0 goes on with 7: about 999 bytes in 10 offsets, 5 s at 50.0 MB/s (assumed)"
    )


def test_nothing_to_carry_takes_the_start_alone() -> None:
    found = estimate_cost("orders", "exact", [PartitionWork(0, 0)], [], ReplicationRate(5e7, measured=False))
    assert (found.bytes, round(found.seconds)) == (0, 5)


def test_markers_by_closed_units_take_longer_and_are_named() -> None:
    asked = ("orders", "exact", [PartitionWork(90_000, 0)], [LogSample(10, 0, 10)])
    direct = estimate_cost(*asked, ReplicationRate(5e7, measured=False))
    units = estimate_cost(*asked, ReplicationRate(5e7, measured=False, closed_units=True))
    assert "90000 markers, " in str(direct)
    assert "90000 markers by closed units, " in str(units)
    assert units.closed_units
    assert units.seconds - direct.seconds > 20


def test_closed_units_are_slower_where_few_partitions_take_them() -> None:
    rate = ReplicationRate(5e7, measured=False, closed_units=True)
    one = estimate_cost("orders", "exact", [PartitionWork(90_000, 0)], [LogSample(10, 0, 10)], rate)
    many = estimate_cost("orders", "exact", [PartitionWork(900, 0)] * 100, [LogSample(10, 0, 10)], rate)
    assert one.seconds > 10 * many.seconds


def test_a_topic_that_is_carried_to_its_end_takes_no_time() -> None:
    rate = ReplicationRate(5e7, measured=False)
    assert "MB/s" not in estimate_cost("orders", "exact", [PartitionWork(0, 0)] * 4, [], rate).figures
    filled = estimate_cost("orders", "exact", [PartitionWork(0, 0), PartitionWork(0, 7)], [], rate).figures
    assert filled.endswith(", 7 offsets of filler, 5 s at 50.0 MB/s (assumed)")
