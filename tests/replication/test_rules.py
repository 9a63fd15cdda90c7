"""Which links may run together: rings, stars and chains, both ways at once, several sources into one target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.model import Link, TwinNaming
from twinshore.replication.core import filters
from twinshore.replication.core.filters import check_links, find_conflicts, find_cycles

SAME, PREFIX = TwinNaming.SAME, TwinNaming.PREFIX


def link(name: str, topics: str = ".*", exclude: str = "", naming: TwinNaming = SAME, *, chain: bool = False) -> Link:
    source, target = name.split(">")
    return Link(source, target, (topics,), (exclude,) if exclude else (), naming=naming, chain=chain)


FINE = {
    "one way": [link("a>b")],
    "both ways by prefix": [link("a>b", naming=PREFIX), link("b>a", naming=PREFIX)],
    "both ways, topics apart": [link("a>b", "orders.*"), link("b>a", "bills.*")],
    "both ways, apart by exclusion": [link("a>b", ".*", "x.*"), link("b>a", "x.+")],
    "both ways, each topic from its home": [link("a>b"), link("b>a")],
    "both ways, in part from their homes": [link("a>b", "x|y"), link("b>a", "y|z")],
    "both ways, and on from there": [link("a>b"), link("b>a"), link("b>c", chain=True)],
    "one way by prefix, back as it is": [link("a>b", naming=PREFIX), link("b>a")],
    "fan-in by prefix": [link("a>c", naming=PREFIX), link("b>c", naming=PREFIX)],
    "fan-in, topics apart": [link("a>c", "orders"), link("b>c", "bills")],
    "fan-out": [link("a>b"), link("a>c")],
    "chain": [link("a>b"), link("b>c", chain=True)],
    "ring by prefix": [link("a>b", naming=PREFIX), link("b>c", naming=PREFIX), link("c>a", naming=PREFIX)],
    "chained ring by prefix": [link(name, naming=PREFIX, chain=True) for name in ("a>b", "b>c", "c>a")],
    "mesh by prefix": [link(f"{s}>{t}", naming=PREFIX) for s in "abc" for t in "abc" if s != t],
}
LOOP, COLLIDE = "replication.links-loop", "replication.links-collide"
WRONG = {
    "both ways, and a third": (
        [link("a>b"), link("b>a"), link("c>a")],
        COLLIDE,
        ("b->a", "c->a"),
        "a",
    ),
    "ring in part": (
        [link("a>b", "x|y"), link("b>c", "y|z"), link("c>a", "y")],
        LOOP,
        ("a->b", "b->c", "c->a"),
        "y",
    ),
    "ring": (
        [link("a>b", "o.*"), link("b>c", ".*o"), link("c>a")],
        LOOP,
        ("a->b", "b->c", "c->a"),
        "o",
    ),
    "fan-in": ([link("a>c"), link("b>c", "orders")], COLLIDE, ("a->c", "b->c"), "orders"),
    "fan-in, chained": (
        [link("a>b"), link("a>c"), link("b>d", chain=True), link("c>d", chain=True)],
        COLLIDE,
        ("b->d", "c->d"),
        "a",
    ),
    "prefix meets a name": (
        [link("a>c", ".*"), link("b>c", "x", naming=PREFIX)],
        COLLIDE,
        ("a->c", "b->c"),
        "b.x",
    ),
    "prefix in a prefix": (
        [link("a>c", naming=PREFIX), link("a.b>c", "x", naming=PREFIX)],
        COLLIDE,
        ("a->c", "a.b->c"),
        "a.b.x",
    ),
}


@pytest.mark.parametrize("links", FINE.values(), ids=FINE)
def test_links_that_can_neither_loop_nor_collide_run(links: list[Link]) -> None:
    assert find_conflicts(links) == ()


@pytest.mark.parametrize(("links", "code", "names", "topic"), WRONG.values(), ids=WRONG)
def test_links_that_could_are_refused_with_their_names_and_a_topic(
    links: list[Link], code: str, names: tuple[str, ...], topic: str
) -> None:
    (found,) = find_conflicts(links)
    assert (found.links, found.topic) == (names, topic)
    with raises(ConfigError, code) as caught:
        check_links(links)
    assert all(name in caught.value.message for name in (*names, topic))
    assert "prefix" in caught.value.hint


def test_what_an_expression_says_is_not_guessed_at() -> None:
    strange = [link("a>b", r"(x)\1"), link("b>c", "bills"), link("c>a", "bills")]
    (found,) = find_conflicts(strange)
    assert (found.topic, found.error().values["links"]) == ("", "a->b, b->c and c->a")


def test_heartbeats_are_no_reason_to_refuse() -> None:
    inside = [link("a>b", r"twinshore\..*"), link("b>c"), link("c>a")]
    (found,) = find_conflicts(inside)
    assert found.topic not in {"twinshore.heartbeats", "twinshore.twins"}
    assert not find_conflicts([replace(inside[0], topics=(r"twinshore\.(heartbeats|twins)",)), *inside[1:]])


def test_each_ring_is_found_once() -> None:
    mesh = [link(f"{s}>{t}") for s in "abcd" for t in "abcd" if s != t]
    found = [tuple(one.name for one in ring) for ring in find_cycles(mesh)]
    assert len(found) == len(set(found)) == 6 + 8 + 6, "of two, of three, of four clusters"


def test_two_hundred_links_into_one_cluster_are_judged_with_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []
    monkeypatch.setattr(filters, "find_example", lambda term: searched.append(term))
    many = [link(f"c{number}>hub", f"t{number}-.*", "x.*", PREFIX if number % 2 else SAME) for number in range(200)]
    assert find_conflicts(many) == ()
    assert not searched, "only what begins alike has to be searched"
    assert find_conflicts(list(many)) == ()
