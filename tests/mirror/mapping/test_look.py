"""When a look at a mapped twin must not go on, before anything is read."""

from __future__ import annotations

from twinshore.mirror.lane.observe import Go, Stop
from twinshore.mirror.lane.reach import Reach
from twinshore.mirror.mapping.look import _refusal, _within_source

REACH = Reach(70, 50, 9)


def test_a_twin_that_lost_what_it_had_acknowledged_stops() -> None:
    stop = _refusal(REACH, 0, 49, (8, 5))
    assert isinstance(stop, Stop)
    assert "the target lost them" in stop.sentence


def test_a_twin_cut_beyond_the_reach_stops_only_where_nobody_knows_better() -> None:
    assert _refusal(REACH, 50, 90, None) is None
    assert _refusal(REACH, 51, 90, (8, 5)) is None, "its leader remembers"
    assert _refusal(REACH._replace(warm=True), 51, 90, None) is None, "so does the pump"
    stop = _refusal(REACH, 51, 90, None)
    assert isinstance(stop, Stop)
    assert "cannot be known" in stop.sentence


def test_the_source_must_have_what_the_twin_has() -> None:
    stop = _within_source(Go(70, 1, 9), 0, 69)
    assert isinstance(stop, Stop)
    assert (stop.kind, stop.offset, stop.end) == ("truncation", 69, 70)
    assert _within_source(Go(70, 1, 9), 75, 90) == Go(70, 1, 9, gap_to=75)
    assert _within_source(Go(70, 1, 9), 70, 70) == Go(70, 1, 9)
