"""The companion of a link whose target was the home of topics: on a store of its own, while both clusters are away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.switch.test_acl_fence import US, rule
from tests.switch.test_guards import WIDE, Ruled, writers
from twinshore.fleet.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.service.companions import Beside
from twinshore.store import Flip, Store, open_store
from twinshore.switch.companion import OldHomeCompanion
from twinshore.switch.hands.guarding import Guarding

IDS = {"east": "ea" * 16, "west": "be" * 16, "north": "0a" * 16}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "twinshore.toml"
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["127.0.0.1:{free_port()}"]\n' for name in IDS)
    links = "".join(
        f'[links."{name}"]\ntopics = ["orders"]\n'
        for name in ("east->west", "west->east", "east->north", "north->east")
    )
    path.write_text(f'[store]\nurl = "sqlite:///{tmp_path / "store.db"}"\n{clusters}{links}')
    return load_settings(path, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.store.url) as opened:
        yield opened


@contextmanager
def companion(name: str, settings: Settings, store: Store) -> Iterator[OldHomeCompanion]:
    """It looks when the test wants it to, and not by itself."""
    link = next(one for one in settings.links if one.name == name)
    made = OldHomeCompanion(Beside(link, settings, store, lambda: True, lambda _: None))
    made.close()
    try:
        yield made
    finally:
        made._let_go()


def moved(store: Store, old: str, new: str, term: int) -> None:
    pair, ids = "<>".join(sorted((old, new))), (IDS[new], IDS[old])
    store.switching.flip([Flip(pair, "orders", new, term, f"{old}->{new}", f"{new}->{old}", *ids, (10,), term, "anna")])


def test_two_links_to_one_cluster_do_not_take_a_guard_from_each_other(settings: Settings, store: Store) -> None:
    """West to east was switched, the topic was left out there later, and east to north was switched: one guard."""
    moved(store, "west", "east", 2)
    moved(store, "east", "north", 2)
    before = frozenset({WIDE, rule("orders")})
    east, guards = Ruled(before), Guarding(store, "anna")
    with companion("north->east", settings, store) as north, companion("west->east", settings, store) as west:
        guards.add(east, US, north._left)
        assert writers(east.acls, "orders") == {US}
        assert (west._left(), west._guarded_at_home(), north._guarded_at_home()) == ((), (), ())
        guards.drop(east, west._guarded_at_home)
        assert (writers(east.acls, "orders"), guards.stands(east, US, ["orders"])) == ({US}, True)
        moved(store, "north", "east", 3)
        assert west._guarded_at_home() == north._guarded_at_home() == ("orders",)
        guards.drop(east, west._guarded_at_home)
        assert (east.acls, north._left()) == (before, ())
