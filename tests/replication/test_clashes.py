"""Which filters hold where those of several links clash: the newest word does not count, but for its pauses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testkit.errors import mentions
from twinshore.config.model import Link, LinkControl
from twinshore.replication.core.filters import filters_json, find_conflicts, with_filters
from twinshore.replication.core.link_config import (
    FROM_SETTINGS,
    FROM_STORE,
    EffectiveLink,
    as_json,
    effective_link,
    resolve_filter_conflicts,
)
from twinshore.state.core.values import ControlRow

A = Link("a", "c", ("bills.*",))
B = Link("b", "c", ("orders.*",))
OTHER = Link("d", "e", (".*",))
LINKS = (A, B, OTHER)


def says(link: Link, at_ms: int = 1, **values: Any) -> EffectiveLink:
    rows = [ControlRow(link.name, name, as_json(value), at_ms, "me") for name, value in values.items()]
    return effective_link(link, rows)


def hold(*said: EffectiveLink) -> dict[str, EffectiveLink]:
    everything = {link.name: effective_link(link, ()) for link in LINKS} | {one.link.name: one for one in said}
    found = resolve_filter_conflicts(LINKS, everything)
    assert not find_conflicts([one.link for one in found.values()])
    return found


def test_what_does_not_clash_holds_as_it_was_said() -> None:
    said = says(A, topics=("lists",), paused=True)
    assert hold(said)["a->c"] == said
    assert hold()["a->c"].link == A


def test_a_pause_and_a_throttle_hold_whatever_becomes_of_the_filters() -> None:
    narrowed = says(A, topics=("orders.*",), paused=True, throttle_bytes_s=7)
    other = says(B, paused=True, priorities=(("orders", 40),))
    found = hold(narrowed, other)
    assert found["a->c"].link == replace(A, control=LinkControl(paused=True, throttle_bytes_s=7))
    assert found["b->c"] == other, "it said nothing of filters"
    origins = dict(found["a->c"].origins)
    assert (origins["topics"], origins["exclude"], origins["paused"]) == (FROM_SETTINGS, FROM_SETTINGS, FROM_STORE)
    (trouble,) = found["a->c"].troubles
    assert mentions(trouble, "a->c", "b->c", "settings")


@pytest.mark.parametrize(("a_ms", "b_ms"), [(1, 2), (2, 1)])
def test_of_two_words_that_clash_the_newest_does_not_count(a_ms: int, b_ms: int) -> None:
    found = hold(says(A, a_ms, topics=("x.*",)), says(B, b_ms, topics=("x-1",)))
    topics = found["a->c"].link.topics, found["b->c"].link.topics
    assert topics == ((("x.*",), B.topics) if a_ms < b_ms else (A.topics, ("x-1",)))
    assert found["d->e"].troubles == ()


def test_an_older_word_does_not_count_either_where_it_clashes_with_what_holds_then() -> None:
    found = hold(says(A, 1, topics=("orders-1", "x")), says(B, 2, topics=("x",)))
    assert (found["a->c"].link.topics, found["b->c"].link.topics) == (A.topics, B.topics)


@pytest.mark.parametrize("links", [(A, replace(A, source="b", topics=(".*",)))])
def test_settings_that_clash_among_themselves_are_another_rooms_to_refuse(links: tuple[Link, ...]) -> None:
    said = {link.name: effective_link(link, ()) for link in links}
    assert resolve_filter_conflicts(links, said) == said


def test_filters_survive_their_way_through_the_store() -> None:
    link = replace(A, topics=("x",), exclude=("x-1",))
    assert with_filters(A, filters_json(link)) == link
