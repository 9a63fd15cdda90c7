"""What is said of twins on their way to where their sources begin."""

from __future__ import annotations

from twinshore.config.model import TopicPartition
from twinshore.replication.core.lag import AlignmentProgress

ONE, OTHER = TopicPartition("orders", 1), TopicPartition("payments", 0)


def test_a_twin_is_told_of_until_it_is_there() -> None:
    aligning = AlignmentProgress()
    assert aligning.sentence() == ""
    aligning.note(ONE, 430, 1000)
    assert aligning.sentence() == "orders-1 is aligned, 430 of 1000 offsets (43 %)"
    aligning.note(ONE, 1000, 1000)
    assert aligning.sentence() == ""


def test_the_one_with_the_most_to_do_stands_for_all() -> None:
    aligning = AlignmentProgress()
    aligning.note(ONE, 430, 1000)
    aligning.note(OTHER, 0, 5000)
    assert aligning.sentence() == "payments-0 is aligned, 0 of 5000 offsets (0 %), 1 more too"
    aligning.forget("payments")
    assert aligning.sentence().startswith("orders-1 is aligned")
