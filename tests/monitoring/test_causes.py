"""One cause, one alarm: what follows from it is listed in it, nothing is lost, and nothing clears while it holds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinshore.monitoring.core.alerts import (
    CONSEQUENCE_SETTLE_MS,
    STORE_ALARM_KEY,
    ActiveAlarm,
    AlarmEvent,
    AlarmKey,
    AlarmKind,
    AlarmTiming,
    AlarmTransition,
    AlertCondition,
    describe_event,
    find_consequences,
    find_root_cause,
    get_cluster_alarm_key,
    list_possible_causes,
    rank_alarm,
    update_alarms,
)

pytestmark = pytest.mark.claim(
    "groups",
    "delay-causes",
    "one cause, one alarm: whatever is wrong in whatever order, each alarm is told or listed in its "
    "cause, and none clears while it holds",
)

LINKS = ("east->west", "west->east")
WEST = get_cluster_alarm_key("west")
MIRROR, BLIND, BEATS = (AlarmKey(LINKS[0], kind) for kind in (AlarmKind.MIRROR, AlarmKind.BLIND, AlarmKind.HEARTBEAT))
LATE = [AlarmKey(LINKS[0], AlarmKind.RECOVERY_POINT, f"t{number}") for number in range(6)]
STOPPED = AlarmKey(LINKS[0], AlarmKind.STOPPED, "t0")
MANNERS = {kind: AlarmTiming(clear_s=2.0, repeat_s=600.0) for kind in AlarmKind}
MANNERS |= {kind: AlarmTiming(10.0, 2.0, 600.0) for kind in (AlarmKind.CLUSTER, AlarmKind.STORE, AlarmKind.STOPPED)}
MANNERS[AlarmKind.MIRROR] = AlarmTiming(7.0, 2.0, 600.0)


def keys() -> list[AlarmKey]:
    found = [STORE_ALARM_KEY, get_cluster_alarm_key("east"), WEST]
    for link in LINKS:
        found += [AlarmKey(link, kind) for kind in (AlarmKind.MIRROR, AlarmKind.BLIND, AlarmKind.HEARTBEAT)]
        found += [AlarmKey(link, AlarmKind.BLIND, group="windows")]
        for topic in ("t0", "t1"):
            late = (AlarmKind.RECOVERY_POINT, AlarmKind.END_OFFSET, AlarmKind.STOPPED, AlarmKind.BLIND)
            found += [AlarmKey(link, kind, topic) for kind in late]
            found.append(AlarmKey(link, AlarmKind.GROUP, topic, "billing"))
    return found


KEYS = keys()


class Play:
    """Turns a second apart."""

    def __init__(self, timings: dict[AlarmKind, AlarmTiming] = MANNERS) -> None:
        self.timings = timings
        self.book: dict[AlarmKey, ActiveAlarm] = {}
        self.events: list[AlarmEvent] = []
        self.now_ms = 0

    def turn(self, wrong: set[AlarmKey], right: set[AlarmKey] = frozenset(), seconds: int = 1) -> list[AlarmEvent]:  # type: ignore[assignment]
        """What is told meanwhile."""
        began = len(self.events)
        for _ in range(seconds):
            self.now_ms += 1_000
            conditions = [AlertCondition(key, True, f"{key.link} {key.kind} {key.topic}") for key in sorted(wrong)]
            conditions += [AlertCondition(key, False) for key in sorted(right)]
            self.book, events = update_alarms(self.book, conditions, self.now_ms, self.timings)
            self.events += events
        return [event for event in self.events[began:] if event.tell]


def test_a_dead_target_is_one_message_for_all_its_links_and_topics() -> None:
    play = Play()
    behind = {BLIND, BEATS, *LATE, *(AlarmKey(LINKS[1], kind) for kind in (AlarmKind.BLIND, AlarmKind.HEARTBEAT))}
    play.turn({WEST}, seconds=5)
    told = play.turn({WEST, *behind}, seconds=60)
    assert [(event.happening, event.key) for event in told] == [(AlarmTransition.RAISED, WEST)]
    assert len(told[0].parts) == len(behind)
    assert set(play.book) == {WEST, *behind}


def test_a_killed_driver_is_one_message_though_its_topics_were_late_before_it_was_missed() -> None:
    play = Play()
    assert play.turn({MIRROR}, seconds=2) == []
    told = play.turn({MIRROR, BEATS, *LATE}, seconds=30)
    assert [(event.happening, event.key) for event in told] == [(AlarmTransition.RAISED, MIRROR)]
    assert len(told[0].parts) == 1 + len(LATE)


def test_what_outlives_its_cause_is_told_by_itself_and_what_goes_with_it_is_not() -> None:
    play = Play()
    play.turn({MIRROR, *LATE}, seconds=20)
    told = play.turn({LATE[0]}, {MIRROR, *LATE[1:]}, seconds=CONSEQUENCE_SETTLE_MS // 1000 - 5)
    assert [(event.happening, event.key) for event in told] == [(AlarmTransition.CLEARED, MIRROR)]
    told = play.turn({LATE[0]}, seconds=20)
    assert [event.key for event in told] == [LATE[0]]
    (last,) = play.turn(set(), {LATE[0]}, seconds=5)
    assert (last.happening, last.key) == (AlarmTransition.CLEARED, LATE[0])


def test_a_suspicion_that_proves_wrong_holds_nothing_back_for_long() -> None:
    play = Play()
    assert play.turn({MIRROR, LATE[0]}, seconds=4) == []
    told = play.turn({LATE[0]}, {MIRROR}, seconds=2)
    assert [event.key for event in told] == [LATE[0]]


def test_a_part_that_was_told_before_its_cause_rose_is_not_repeated_while_it_stands() -> None:
    play = Play()
    assert [event.key for event in play.turn({LATE[0]})] == [LATE[0]]
    told = play.turn({LATE[0], MIRROR}, seconds=650)
    assert {event.key for event in told} == {MIRROR}
    (cleared,) = play.turn({MIRROR}, {LATE[0]}, seconds=5)
    assert cleared.key == LATE[0], "who was told that it is wrong is told that it is right"


def test_a_stopped_partition_explains_its_own_topic_alone() -> None:
    play = Play()
    told = play.turn({STOPPED, *LATE}, seconds=15)
    assert {event.key for event in told} == {STOPPED, *LATE[1:]}
    assert next(event.parts for event in told if event.key == STOPPED) == (f"{LINKS[0]} recovery point t0",)


def named(event: AlarmEvent) -> set[str]:
    """The first sentences of its parts, which are told in words."""
    return set(event.parts[: event.also])


@pytest.mark.parametrize("repeat_s", [0.0, 900.0])
def test_what_rises_long_after_its_cause_was_told_is_told_at_once_and_once(repeat_s: float) -> None:
    play = Play({kind: timing._replace(repeat_s=repeat_s) for kind, timing in MANNERS.items()})
    play.turn({MIRROR, *LATE[:2]}, seconds=300)
    assert [event.key for event in play.events if event.tell] == [MIRROR], "what comes with it is no news"
    (also,) = play.turn({MIRROR, *LATE[:3]}, seconds=2)
    assert (also.happening, also.key, also.also, len(also.parts)) == (AlarmTransition.REPEATED, MIRROR, 1, 3)
    assert f"Also (1): {LINKS[0]} recovery point t2 With it (2):" in describe_event(also)
    # More of them within a minute are one message.
    assert play.turn({MIRROR, *LATE[:4]}, seconds=20) == []
    (also,) = play.turn({MIRROR, *LATE}, seconds=300)
    assert named(also) == {f"{LINKS[0]} recovery point t{number}" for number in (3, 4, 5)}


def test_news_of_a_cause_waits_for_the_end_of_a_quiet_time() -> None:
    book, _ = update_alarms({}, [AlertCondition(MIRROR, True, "silent")], 0, {})
    conditions = [AlertCondition(MIRROR, True, "silent"), AlertCondition(LATE[0], True, "late")]
    for at_ms, quiet, told in ((200_000, True, 0), (300_000, False, 1), (400_000, False, 0)):
        book, events = update_alarms(
            book, conditions, at_ms, {kind: AlarmTiming(repeat_s=0) for kind in AlarmKind}, quiet=quiet
        )
        assert sum(event.tell for event in events) == told, at_ms


def test_partitions_that_are_not_stopped_are_told_though_others_of_their_topic_are() -> None:
    play = Play()
    play.turn({STOPPED, LATE[0]}, seconds=15)
    assert [event.key for event in play.events if event.tell] == [STOPPED]
    play.now_ms += 1_000
    conditions = [
        AlertCondition(STOPPED, True, "t0-1 is stopped"),
        AlertCondition(LATE[0], True, "t0-2 is late", beyond=True),
    ]
    play.book, events = update_alarms(play.book, conditions, play.now_ms, MANNERS)
    assert [(event.key, event.sentence, event.parts) for event in events] == [(LATE[0], "t0-2 is late", ())]
    play.book, events = update_alarms(
        play.book, [*conditions, AlertCondition(WEST, True, "away")], play.now_ms + 1_000, MANNERS
    )
    assert events == []
    assert find_root_cause(LATE[0], play.book, beyond=True) == WEST, "a cluster that is away explains all"


def test_causes_are_ordered_and_what_is_a_part_of_one_is_known_both_ways() -> None:
    for key in KEYS:
        assert find_root_cause(key, KEYS) in (STORE_ALARM_KEY, get_cluster_alarm_key("east"), WEST)
        for cause in list_possible_causes(key):
            assert rank_alarm(cause) < rank_alarm(key), (cause, key)
            assert key in find_consequences(cause, KEYS)
        assert find_root_cause(key, {key}) == key


STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from(KEYS), max_size=6), st.booleans(), st.sampled_from([1, 2, 5, 10, 20, 150])),
    max_size=8,
)


@given(STEPS)
def test_nothing_is_lost_and_nothing_clears_while_it_holds(steps: list[tuple[set[AlarmKey], bool, int]]) -> None:
    """Whatever is wrong, in any order; conditions of all else are right, or do not come at all."""
    play, wrong = Play({kind: timing._replace(repeat_s=0.0) for kind, timing in MANNERS.items()}), set[AlarmKey]()
    told: set[AlarmKey] = set()
    for wrong, all_heard, seconds in steps:
        right = set(KEYS) - wrong if all_heard else set()
        for _ in range(seconds):
            before = len(play.events)
            play.turn(wrong, right)
            for event in play.events[before:]:
                if event.happening is AlarmTransition.CLEARED:
                    assert event.key not in wrong
                    told.discard(event.key)
                elif event.tell:
                    told.add(event.key)
            raised = {key for key, one in play.book.items() if one.raised_ms is not None}
            assert told <= raised
            assert wrong <= play.book.keys()
    # In the end whatever stands was told, or is a part of what was told and lists it.
    play.turn(wrong, seconds=90)
    told |= {event.key for event in play.events if event.tell and event.key in play.book}
    for key, one in play.book.items():
        head = find_root_cause(key, play.book)
        assert one.raised_ms is not None or key not in wrong
        if key in wrong and head != key and one.told_ms is None and head in wrong:
            raised_ms, since_ms = one.raised_ms or 0, play.book[head].raised_ms or 0
            sentence = f"{key.link} {key.kind} {key.topic}"
            heard = [event for event in play.events if event.tell and event.key == head and event.at_ms >= since_ms]
            lists = [event for event in heard if sentence in event.parts and event.at_ms >= raised_ms]
            assert lists or raised_ms <= heard[0].at_ms + 120_000, (key, head)
            assert all(later.at_ms - event.at_ms >= 60_000 for event, later in pairwise(heard)), head
        if key in wrong:
            assert head in told or head not in wrong, (key, head)
            assert head == key or key in find_consequences(head, play.book)
