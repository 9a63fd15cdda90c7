"""Whole rounds through any history of both sides: commits, resets, deletions, readers there, processes that end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.groups.test_direction import PARTS, TWINS, Stage
from twinshore.kafka.protocol.offsets import CommittedOffset

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "read",
                "reset",
                "delete",
                "grow",
                "join",
                "leave",
                "consume",
                "assign",
                "forget",
                "restart",
                "turn",
                "turn",
            ]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 60),
    ),
    max_size=40,
)


def play(stage: Stage, what: str, group: str, number: int) -> None:
    twin = TWINS[PARTS[0]]
    if what == "read":
        now = stage.east.groups.get(group, {}).get(PARTS[0], CommittedOffset(0)).offset
        stage.commit(group, max(now, number))
    elif what == "reset":
        stage.commit(group, number)
    elif what == "delete":
        stage.east.groups.pop(group, None)
    elif what == "restart":
        stage.restart()
    elif what == "grow":
        stage.west.ends[twin] += number
    elif what == "join":
        stage.west.members.add(group)
        stage.west.groups.setdefault(group, {})
    elif what == "leave":
        stage.west.members.discard(group)
    elif what == "forget" and group not in stage.west.members:
        stage.west.forget(group)
    elif what == "assign" and group not in stage.west.members:
        stage.west.groups.setdefault(group, {})[twin] = CommittedOffset(min(number, stage.west.ends[twin]))
        stage.west.read_on.add(group)
    elif what == "consume" and group in stage.west.members:
        stage.west.consume(group, twin, number)
    elif what == "turn":
        stage.turn()


@given(STEPS)
def test_whatever_happens_nobody_who_read_on_is_moved_and_nobody_sent_beyond_the_end(
    steps: list[tuple[str, str, int]],
) -> None:
    stage = Stage(verify_s=3.0)
    stage.west.ends = dict.fromkeys(TWINS.values(), 0)
    for step in steps:
        play(stage, *step)
    stage.west.ends[TWINS[PARTS[0]]] += 60
    stage.west.members.clear()
    for _ in range(8):
        stage.turn()
    assert not any(one.beyond for one in stage.west.taken)
    moved = [one for one in stage.west.taken if one.read_on and one.after != one.before]
    assert moved == []
    for group, source in stage.east.groups.items():
        if group not in stage.west.read_on:
            assert stage.there(group) == source[PARTS[0]].offset
