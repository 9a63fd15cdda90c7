"""What a store that was away takes up of what the clusters say, and what it leaves to somebody who decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testkit.errors import mentions
from twinshore.config.model import Link
from twinshore.replication.core.ownership import (
    HomeContext,
    compare_home_records,
    derive_home_changes,
    first_home_record,
)
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.state.core.values import HomeChange, HomeRow

LINK, PAIR, IDS = Link("east", "west"), "east<>west", ("id-e", "id-w")
ON_EAST, ON_WEST, SWITCH = "e" * 32, "b" * 32, "5" * 32
ROW = HomeRow(PAIR, "orders", "east", 1, 1, "link east->west")
WEST = HomeRecord(
    topic="orders",
    home="their-west",
    cluster_id="id-w",
    term=2,
    switch=SWITCH,
    source="their-east",
    since_ms=100,
    set_by="ann",
    pair="their-east<>their-west",
    link="their-east->their-west",
    back="their-west->their-east",
    source_topic_id=ON_WEST,
    target_topic_id=ON_EAST,
    points=(5, 0),
)
FLIP = HomeChange(
    pair=PAIR,
    topic="orders",
    home="west",
    term=2,
    link="east->west",
    back="west->east",
    source_topic_id=ON_WEST,
    target_topic_id=ON_EAST,
    points=(5, 0),
    since_ms=100,
    set_by="ann",
)
THERE = HomeContext({("east", "orders"): ON_EAST, ("west", "orders"): ON_WEST}, {("east->west", "orders"): 1})


def taken(
    line: HomeRecord, row: HomeRow | None = ROW, there: HomeContext = THERE, link: Link = LINK
) -> tuple[tuple[HomeChange, ...], dict[str, str]]:
    rows = {"orders": row} if row else {}
    ids = IDS if link == LINK else IDS[::-1]
    found = compare_home_records(link, ids, [{"orders": line}], rows)
    made, unclear = derive_home_changes(link, ids, found.records, rows, there)
    return made, {**found.doubts, **unclear}


def test_a_home_in_a_higher_term_is_taken_up_whatever_clusters_are_called_elsewhere() -> None:
    assert taken(WEST) == taken(WEST, link=Link("west", "east")) == ((FLIP,), {})
    held = replace(WEST, step=3, state=HomeState.HELD)
    assert taken(held) == ((FLIP,), {}), "what a switch does with it by now changes nothing of that"
    assert taken(WEST, row=None) == ((FLIP,), {})
    assert taken(replace(WEST, back="")) == ((replace(FLIP, back="", points=()),), {})
    assert taken(replace(WEST, set_by="")) == ((replace(FLIP, set_by="switch 55555555"),), {})


def test_what_the_store_knows_is_not_taken_up_again() -> None:
    assert taken(WEST, replace(ROW, home="west", term=2)) == ((), {})
    assert taken(WEST, replace(ROW, home="east", term=3)) == ((), {}), "the store is ahead"
    first = HomeRecord(
        topic="orders", home="east", cluster_id="id-e", term=1, step=2, state=HomeState.HELD, switch=SWITCH
    )
    assert taken(first) == taken(first, row=None) == ((), {}), "that a topic is in a switch is no flip"


def test_two_switches_there_and_back_are_one_flip() -> None:
    back = replace(WEST, home="e", cluster_id="id-e", term=3, source_topic_id=ON_EAST, target_topic_id=ON_WEST)
    expected = HomeChange(
        pair=PAIR,
        topic="orders",
        home="east",
        term=3,
        link="west->east",
        back="east->west",
        source_topic_id=ON_EAST,
        target_topic_id=ON_WEST,
        points=(5, 0),
        since_ms=100,
        set_by="ann",
    )
    assert taken(back) == ((expected,), {})


def test_a_twin_that_was_made_since_the_switch_stays_and_the_term_alone_is_taken_up() -> None:
    recovered = HomeContext(THERE.topic_ids, {("west->east", "orders"): 101})
    assert taken(WEST, row=None, there=recovered) == ((replace(FLIP, back="", points=()),), {})


@pytest.mark.parametrize(
    ("line", "row", "there", "why"),
    [
        (
            WEST,
            replace(ROW, term=2),
            THERE,
            "and on east, as the store says, both in term 2",
        ),
        (
            replace(WEST, source_topic_id=""),
            ROW,
            THERE,
            "is at home on west in term 2, as the clusters say",
        ),
        (WEST, ROW, HomeContext({}, {}), "not by a switch between the topics that east and west have now"),
        (WEST, ROW, HomeContext({**THERE.topic_ids, ("east", "orders"): "f" * 32}, {}), "not by a switch"),
    ],
)
def test_what_cannot_be_told_is_carried_by_nobody(line: HomeRecord, row: HomeRow, there: HomeContext, why: str) -> None:
    made, doubts = taken(line, row, there)
    assert made == ()
    assert why in doubts["orders"]


def test_a_switch_of_other_clusters_is_none_of_this_pair() -> None:
    assert taken(replace(WEST, cluster_id="id-n")) == ((), {})
    came_home = replace(WEST, home="east", cluster_id="id-e", term=3, source_topic_id=ON_EAST, target_topic_id="f" * 32)
    assert taken(came_home) == ((), {}), "it is at home where this pair has it"


def test_two_clusters_that_say_different_things_in_one_word_are_a_doubt() -> None:
    rival = replace(WEST, home="their-east", cluster_id="id-e")
    found = compare_home_records(LINK, IDS, [{"orders": WEST}, {"orders": rival}], {"orders": ROW})
    assert found.records == {}
    assert mentions(found.doubts["orders"], "term 2", "their-west", "their-east")


lines = st.builds(
    replace,
    st.just(WEST),
    cluster_id=st.sampled_from(["id-e", "id-w", "id-n"]),
    term=st.integers(1, 4),
    step=st.integers(0, 1),
    source_topic_id=st.sampled_from([ON_EAST, ON_WEST, ""]),
    target_topic_id=st.sampled_from([ON_EAST, ON_WEST, ""]),
)
logs = st.dictionaries(st.just("orders"), lines)
some_rows = st.none() | st.builds(replace, st.just(ROW), home=st.sampled_from(["east", "west"]), term=st.integers(1, 4))


@given(logs, logs, some_rows)
def test_a_term_only_rises_and_whatever_is_not_taken_up_is_no_news_or_doubted(
    one: dict[str, HomeRecord], other: dict[str, HomeRecord], row: HomeRow | None
) -> None:
    rows = {"orders": row} if row else {}
    found = compare_home_records(LINK, IDS, [one, other], rows)
    made, unclear = derive_home_changes(LINK, IDS, found.records, rows, THERE)
    mixed = compare_home_records(LINK, IDS, [other, one], rows)
    assert (mixed.records.keys(), mixed.doubts.keys()) == (found.records.keys(), found.doubts.keys())
    assert not found.records.keys() & found.doubts.keys()
    for flip in made:
        assert flip.term > (row.term if row else 1)
        assert flip.topic not in unclear
        assert {flip.home, *flip.link.split("->")} == {"east", "west"}
        assert flip.link.endswith(f">{flip.home}")
    names = {"id-e": "east", "id-w": "west"}
    news = [line for line in found.records.values() if row is None or row.home != names[line.cluster_id]]
    assert len(news) <= len(made) + len(unclear)


FIRST = HomeRecord(topic="orders", home="east", cluster_id="id-e", term=1, since_ms=7, set_by="link east->west")
OTHERS = replace(FIRST, home="north", cluster_id="id-n")
STALE = replace(FIRST, home="west", cluster_id="id-w", step=2)


@pytest.mark.parametrize(
    ("source", "target", "is_twin", "said"),
    [
        (None, None, False, FIRST),
        (None, FIRST, False, None),
        (FIRST, None, False, None),
        (None, replace(FIRST, home="e", step=4), False, None),
        # A topic of a chain: nothing, or what its source has heard.
        (None, None, True, None),
        (OTHERS, None, True, OTHERS),
        (OTHERS, OTHERS, True, None),
        (replace(OTHERS, term=3), OTHERS, True, replace(OTHERS, term=3)),
        (OTHERS, replace(OTHERS, term=3), True, None),
        (replace(OTHERS, state=HomeState.HELD), None, True, None),
        (OTHERS, None, False, OTHERS),
        # Of an earlier topic of that name, which went the other way; or a stranger's.
        (STALE, None, False, replace(FIRST, step=3)),
        (FIRST, STALE, False, replace(FIRST, step=3)),
        (None, replace(STALE, state=HomeState.HELD, switch=SWITCH), False, None),
        # A switch has said it: the store yields, or nobody carries the topic.
        (None, WEST, False, None),
        (WEST, WEST, False, None),
        (replace(FIRST, step=2), STALE, False, replace(FIRST, step=3)),
        (replace(WEST, cluster_id="id-n"), WEST, False, None),
    ],
)
def test_the_target_hears_once_where_a_carried_topic_is_at_home(
    source: HomeRecord | None, target: HomeRecord | None, is_twin: bool, said: HomeRecord | None
) -> None:
    assert first_home_record(LINK, "orders", IDS, (source, target), is_twin=is_twin, now_ms=7) == said
    if said is not None and said != source:
        heard = first_home_record(LINK, "orders", IDS, (source, said), is_twin=is_twin, now_ms=8)
        assert heard is None


def test_a_first_word_stops_no_topic_whatever_it_says() -> None:
    assert taken(STALE) == taken(STALE, row=None) == ((), {})
    found = compare_home_records(LINK, IDS, [{"orders": replace(FIRST, step=2)}, {"orders": STALE}], {"orders": ROW})
    assert (found.records, found.doubts) == ({}, {})
