"""Which filters hold where those of several links clash: step by step back, together, and nothing but the filters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from twinshore.fleet import Control, Link
from twinshore.links.clashes import BEFORE, Filters, filters_from_json, said_filters, settled
from twinshore.links.in_force import SETTINGS, STORE, InForce, as_json, in_force
from twinshore.links.rules import conflicts
from twinshore.store import ControlRow

A = Link("a", "c", ("bills.*",))
B = Link("b", "c", ("orders.*",))
OTHER = Link("d", "e", (".*",))
LINKS = (A, B, OTHER)


def says(link: Link, **values: Any) -> InForce:
    return in_force(link, [ControlRow(link.name, name, as_json(value), 1, "me") for name, value in values.items()])


def hold(*said: InForce, right: dict[str, Filters] | None = None) -> dict[str, InForce]:
    everything = {link.name: in_force(link, ()) for link in LINKS} | {one.link.name: one for one in said}
    found = settled(LINKS, everything, right or {})
    assert not conflicts([one.link for one in found.values()])
    return found


def before(*topics: str) -> Filters:
    return Filters(topics, (), BEFORE)


def test_what_does_not_clash_holds_as_it_was_said() -> None:
    said = says(A, topics=("lists",), paused=True)
    assert hold(said)["a->c"] == said
    assert hold()["a->c"].link == A


def test_a_pause_and_a_throttle_hold_whatever_becomes_of_the_filters() -> None:
    narrowed = says(A, topics=("orders.*",), paused=True, throttle_bytes_s=7)
    other = says(B, paused=True, priorities=(("orders", 40),))
    found = hold(narrowed, other)
    assert found["a->c"].link == replace(A, control=Control(paused=True, throttle_bytes_s=7))
    assert found["b->c"] == other, "it said nothing of filters"
    origins = dict(found["a->c"].origins)
    assert (origins["topics"], origins["exclude"], origins["paused"]) == (SETTINGS, SETTINGS, STORE)
    (trouble,) = found["a->c"].troubles
    assert trouble.startswith("what operators said of its filters does not count: links a->c and b->c would both write")
    assert trouble.endswith("instead hold those from the settings")


def test_the_last_filters_that_were_right_come_before_the_settings() -> None:
    found = hold(says(A, topics=("orders.*",)), right={"a->c": before("lists")})
    assert found["a->c"].link.topics == ("lists",)
    assert dict(found["a->c"].origins)["topics"] == BEFORE
    found = hold(says(A, topics=("orders.*",)), right={"a->c": before("orders-1")})
    assert found["a->c"].link.topics == A.topics, "they clash as well by now"


def test_of_two_that_clash_with_what_was_said_both_step_back_as_far_as_they_must() -> None:
    both = says(A, topics=("x.*",)), says(B, topics=("x-1",))
    found = hold(*both)
    assert (found["a->c"].link.topics, found["b->c"].link.topics) == (A.topics, B.topics)
    found = hold(*both, right={"a->c": before("y"), "b->c": before("x-1")})
    assert (found["a->c"].link.topics, found["b->c"].link.topics) == (("y",), B.topics)
    assert found["d->e"].troubles == ()


def test_what_nobody_said_counts_no_more_than_the_settings() -> None:
    assert hold(right={"a->c": before("orders.*")})["a->c"].link == A


@pytest.mark.parametrize("links", [(A, replace(A, source="b", topics=(".*",)))])
def test_settings_that_clash_among_themselves_are_another_rooms_to_refuse(links: tuple[Link, ...]) -> None:
    said = {link.name: in_force(link, ()) for link in links}
    assert settled(links, said, {}) == said


def test_filters_survive_their_way_through_the_store() -> None:
    found = said_filters(says(A, topics=("x",), exclude=("x-1",)))
    assert found is not None
    assert filters_from_json(found.to_json()) == Filters(("x",), ("x-1",), BEFORE)
    assert said_filters(says(A, paused=True)) is None
