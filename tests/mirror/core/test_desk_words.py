"""What desk, pumps and rafts say to each other comes out of its lines of JSON as the value that went in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from twinshore.fleet import Cluster, NamedPartition, SaslMechanism, Secret, Security, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.core import desk_words
from twinshore.mirror.core.commands import Beat, Done, Pace, Released, SayReady, Used
from twinshore.mirror.core.desk_words import Assign, Bounds, Finish, Go, Granted, OfDesk, OfPump, Release, Stop, Take
from twinshore.mirror.lane import raft_words
from twinshore.mirror.lane.history import Stand
from twinshore.mirror.lane.orders import Carried, Handover, Stoppage, TideOrder, TrackOrder
from twinshore.mirror.lane.quota import Learnt
from twinshore.mirror.lane.raft_words import Afloat, Carry, Ended, Leave, RaftOrder, order_of
from twinshore.mirror.lane.reach import Reach
from twinshore.mirror.pump.desk_line import fields_of

NAMED = NamedPartition("orders", 3)
STANDS = (Handover("orders", 3, 70, 5, 9_000, next_sequence=4), Handover("others", 0, 0, -1, 0))
EXTENT = Extent(SourceOffset(3), TargetOffset(10), 6, 4)
CARRIED = Carried("orders", 3, 3, 9, 6, 60, 2, 9, 0, 5, 6, ((1, 0, 4, 9, 3, 5),), (EXTENT,), 7)
MET = Stoppage("orders", 3, IncidentKind.FOREIGN_WRITE, 9, 9, "somebody else wrote")
PACE = Pace("source", 1, 2, Learnt(100, 5.5, 0.5, 0.25, 12.0, [(3.5, 7)], 10, 0.5))
SIDE = Cluster("east", ("127.0.0.1:1",), Security(sasl=SaslMechanism.PLAIN, username="u", password=Secret(env="P")))
ORDER = TideOrder("east->west", 0, 7, SIDE, SIDE, 1, 0, 60_000, "127.0.0.1", 1, "token")


def travelled(message: Any) -> Any:
    return json.loads(json.dumps(message, default=fields_of))


@pytest.mark.parametrize(
    "word",
    [
        Assign((TrackOrder("orders", 3, "aa", "bb", receipt_to=4, twin="copy"),)),
        Go(STANDS, {NAMED: Stand(4, 70)}, {NAMED: Reach(70, 80, 5, warm=True)}, (PACE,)),
        Granted(12.5, 4.0),
        Release(NAMED),
        Bounds(1000.0, {"orders": 10.0}, {"orders": 40}),
        Take(STANDS),
        Finish(),
        Stop(),
    ],
)
def test_words_of_the_desk(word: OfDesk) -> None:
    assert desk_words.heard_by_pump(travelled(desk_words.told(word))) == word


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"what": "ready"}, SayReady()),
        (
            {"what": "beat", "asked_s": 1.5, "carried": [CARRIED], "incidents": [MET], "speed": {"a": 1.0}},
            Beat([CARRIED], [MET], {"a": 1.0}),
        ),
        ({"what": "used", "used": {"": [1.0, 0.0]}}, Used({"": [1.0, 0.0]})),
        (
            {"what": "released", "topic": "orders", "partition": 3, "handovers": STANDS[:1], "carried": [CARRIED]},
            Released(NAMED, STANDS[0], CARRIED),
        ),
        (
            {"what": "released", "topic": "orders", "partition": 3, "handovers": [], "carried": []},
            Released(NAMED, None, None),
        ),
        (
            {"what": "done", "carried": [], "incidents": [], "handovers": STANDS, "unread_s": 2.0, "paces": [PACE]},
            Done([], [], list(STANDS), {}, 2.0, [PACE]),
        ),
    ],
)
def test_words_of_a_pump(message: Any, word: OfPump) -> None:
    assert desk_words.heard_by_desk(travelled(message)) == word


@pytest.mark.parametrize("word", [Carry(9, ORDER), Leave()])
def test_words_to_a_raft(word: Carry | Leave) -> None:
    assert raft_words.heard_by_raft(travelled(raft_words.told(word))) == word


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"what": "afloat"}, Afloat()),
        ({"what": "ended", "berth": 3, "sentence": "finished", "died": False}, Ended(3, "finished")),
    ],
)
def test_words_of_a_raft(message: Any, word: Afloat | Ended) -> None:
    assert raft_words.heard_of_raft(travelled(message)) == word


@pytest.mark.parametrize(
    "hear", [desk_words.heard_by_pump, desk_words.heard_by_desk, raft_words.heard_by_raft, raft_words.heard_of_raft]
)
def test_a_word_that_nobody_knows_ends_the_talk(hear: Any) -> None:
    with pytest.raises(ValueError, match="does not know the word 'sing'"):
        hear({"what": "sing"})


def test_a_task_tells_an_order_for_a_lane_from_one_for_a_raft() -> None:
    raft = RaftOrder(0, 3, "127.0.0.1", 1, "token")
    assert order_of(raft.to_json()) == raft
    assert order_of(ORDER.to_json()) == ORDER
    assert "token" not in repr(replace(raft, desk_host="elsewhere"))
