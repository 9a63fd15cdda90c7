"""What desk, pumps and rafts say to each other comes out of its lines of JSON as the value that went in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.config.incidents import Effect, IncidentKind, IncidentSide, Policy
from twinshore.config.model import Cluster, Extent, NamedPartition, SaslMechanism, Secret, Security
from twinshore.replication.task.core import messages
from twinshore.replication.task.core.config import Carried, Handover, Reach, Stand, Stoppage, TideOrder, TrackOrder
from twinshore.replication.task.core.connections import Beat, Done, Pace, Released, SayReady, Used
from twinshore.replication.task.core.messages import (
    Afloat,
    Assign,
    Bounds,
    Carry,
    Ended,
    Finish,
    Go,
    Granted,
    Leave,
    OfDesk,
    OfPump,
    OfRaft,
    RaftOrder,
    Release,
    Stop,
    Take,
    Turn,
    order_of,
)
from twinshore.replication.task.core.throttle import Learnt

NAMED = NamedPartition("orders", 3)
STANDS = (Handover("orders", 3, 70, 5, 9_000, next_sequence=4), Handover("others", 0, 0, -1, 0))
PACE = Pace("source", 1, 2, Learnt(100, 5.5, 0.5, 0.25, 12.0, [(3.5, 7)], 10, 0.5))
SIDE = Cluster("east", ("127.0.0.1:1",), Security(sasl=SaslMechanism.PLAIN, username="u", password=Secret(env="P")))
ORDER = TideOrder("east->west", 0, 7, SIDE, SIDE, 1, 0, 60_000, "127.0.0.1", 1, "token")


NUMBERS = st.integers(-1, 1 << 53)
MOMENTS_S = st.floats(-1e9, 1e9)
NAMES = st.text(min_size=1, max_size=5)
SPEEDS = st.dictionaries(NAMES, MOMENTS_S, max_size=3)
CARRIED = st.builds(
    Carried,
    *(NAMES, *[NUMBERS] * 10),
    producers=st.lists(st.tuples(*[NUMBERS] * 6), max_size=2).map(tuple),
    extents=st.lists(st.builds(Extent, *[NUMBERS] * 4), max_size=2).map(tuple),
    epoch=NUMBERS,
)
HANDOVERS = st.builds(Handover, NAMES, *[NUMBERS] * 4, st.booleans(), *[NUMBERS] * 4)
POLICIES = st.builds(Policy, st.text(max_size=9), st.sampled_from(Effect))
MET = st.builds(
    Stoppage,
    *(NAMES, NUMBERS, st.sampled_from(IncidentKind), NUMBERS, NUMBERS, st.text(max_size=9)),
    policy=st.none() | POLICIES,
    side=st.none() | st.sampled_from(IncidentSide),
)
MOVED = st.lists(st.tuples(MOMENTS_S, NUMBERS), max_size=3)
LEARNT = st.builds(Learnt, NUMBERS, *[MOMENTS_S] * 4, MOVED, NUMBERS, MOMENTS_S)
PACES = st.builds(Pace, st.sampled_from(["source", "target"]), NUMBERS, NUMBERS, LEARNT)
ACCOUNT = st.lists(CARRIED, max_size=2), st.lists(MET, max_size=2)
WORDS_OF_A_PUMP = st.one_of(
    st.just(SayReady()),
    st.builds(Beat, *ACCOUNT, SPEEDS, MOMENTS_S),
    st.builds(Used, st.dictionaries(NAMES, st.lists(MOMENTS_S, min_size=2, max_size=2), max_size=2)),
    st.builds(Released, st.builds(NamedPartition, NAMES, NUMBERS), st.none() | HANDOVERS, st.none() | CARRIED),
    st.builds(Done, *ACCOUNT, st.lists(HANDOVERS, max_size=2), SPEEDS, MOMENTS_S, st.lists(PACES, max_size=2)),
)


def travelled(message: messages.Message) -> Any:
    return json.loads(messages.line_of(message))


@pytest.mark.parametrize(
    "word",
    [
        Assign((TrackOrder("orders", 3, "aa", "bb", receipt_to=4, twin="copy"),)),
        Assign((TrackOrder("orders", 3, "aa", "bb", reached=Reach(70, 80, 5)),)),
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
    assert messages.heard_by_pump(travelled(messages.said(word))) == word


@given(word=WORDS_OF_A_PUMP)
def test_words_of_a_pump(word: OfPump) -> None:
    assert messages.heard_by_desk(travelled(messages.said(word))) == word


@pytest.mark.parametrize("word", [Carry(9, ORDER), Leave()])
def test_words_to_a_raft(word: Carry | Leave) -> None:
    assert messages.heard_by_raft(travelled(messages.said(word))) == word


@pytest.mark.parametrize("word", [Afloat(), Turn(4), Turn(0), Ended(3, "finished"), Ended(3, "it died", died=True)])
def test_words_of_a_raft(word: OfRaft) -> None:
    assert messages.heard_of_raft(travelled(messages.said(word))) == word


@pytest.mark.parametrize(
    "hear", [messages.heard_by_pump, messages.heard_by_desk, messages.heard_by_raft, messages.heard_of_raft]
)
def test_a_word_that_nobody_knows_ends_the_talk(hear: Any) -> None:
    with pytest.raises(ValueError, match="does not know the word 'sing'"):
        hear({"what": "sing"})


def test_a_task_tells_an_order_for_a_lane_from_one_for_a_raft() -> None:
    raft = RaftOrder(0, 3, "127.0.0.1", 1, "token")
    assert order_of(raft.to_json()) == raft
    assert order_of(ORDER.to_json()) == ORDER
    assert "token" not in repr(replace(raft, desk_host="elsewhere"))
