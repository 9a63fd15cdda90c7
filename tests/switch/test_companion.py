"""The companion of a link whose target was the home of topics: on a store of its own, while both clusters are away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.errors import mentions
from tests.switch.flips import flip_of
from tests.switch.test_guards import WIDE, Ruled, writers
from tests.switch.test_write_rules import US, rule
from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.settings import Settings, load_settings
from twinshore.lab.ports import free_port
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import Store, open_store
from twinshore.switch import old_home as companion_module
from twinshore.switch.old_home import OldHomeGuard
from twinshore.switch.write_access import WriteBlockKeeper

pytestmark = pytest.mark.usefixtures("short_patience")

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
def companion(name: str, settings: Settings, store: Store) -> Iterator[OldHomeGuard]:
    """It looks when the test wants it to, and not by itself."""
    link = next(one for one in settings.links if one.name == name)
    store.links.save_identity(LinkIdentity(name, 1, 0, f"id-of-{link.source}", f"id-of-{link.target}"))
    made = OldHomeGuard(LinkContext(link, settings, store, lambda: True, OutageLog()))
    made.close()
    try:
        yield made
    finally:
        made._let_go()


def moved(store: Store, old: str, new: str, term: int) -> None:
    store.topics_in_switch.change_homes([flip_of("orders", old, new, term, (10,), ids=IDS, since_ms=term)])


def test_two_links_to_one_cluster_do_not_take_a_guard_from_each_other(settings: Settings, store: Store) -> None:
    """West to east was switched, the topic was left out there later, and east to north was switched: one guard."""
    moved(store, "west", "east", 2)
    moved(store, "east", "north", 2)
    before = frozenset({WIDE, rule("orders")})
    east, guards = Ruled(before), WriteBlockKeeper(store, "anna")
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


def alarms(store: Store, link: str) -> list[str]:
    rows = [row.incident for row in store.incidents.rows(link, open_only=True)]
    return [one.sentence for one in rows if one.kind is IncidentKind.OLD_HOME_OPEN]


def test_an_old_home_that_was_shut_once_is_told_of_when_it_is_open_and_silent(settings: Settings, store: Store) -> None:
    """One process sees it all: away by a planned switch, home by another, and away by force while east is cut off."""
    east, guards = Ruled(frozenset({WIDE, rule("orders")})), WriteBlockKeeper(store, "anna")
    moved(store, "east", "west", 2)
    guards.add(east, US, lambda: ["orders"])
    with companion("west->east", settings, store) as west:
        west._look()
        assert alarms(store, "west->east") == [], "one that was shut and is silent stays shut"
        moved(store, "west", "east", 3)
        guards.drop(east, lambda: ["orders"])
        moved(store, "east", "west", 4)  # within one pause of the companion
        west._look()
        (said,) = alarms(store, "west->east")
        assert mentions(said, "orders", "west", "writers from east")


def test_a_guard_that_was_only_written_down_keeps_nobody_out(settings: Settings, store: Store) -> None:
    """A switch was killed behind what it wrote down, and before the first rule; then east was gone."""
    moved(store, "east", "west", 2)
    east = Ruled(frozenset({WIDE, rule("orders")}), killed_at=0)
    with pytest.raises(KeyboardInterrupt):
        WriteBlockKeeper(store, "anna").add(east, US, lambda: ["orders"])
    with companion("west->east", settings, store) as west:
        west._look()
        assert len(alarms(store, "west->east")) == 1


@pytest.mark.parametrize(("us", "why"), [("", "set `principal`"), (US, "")])
def test_an_old_home_that_rules_could_shut_and_do_not_is_told_of_while_it_answers(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, us: str, why: str
) -> None:
    """Nobody knows whom its authorizer takes us for, so no guard can be put up that would not shut us out."""
    moved(store, "east", "west", 2)
    east = Ruled(frozenset({WIDE, rule("orders")}))
    monkeypatch.setattr(companion_module, "ClusterAclAccess", lambda _: east)
    monkeypatch.setattr(companion_module, "target_principal", lambda *_: us)
    monkeypatch.setattr(companion_module, "pin_cluster_ids", lambda *_: True)
    with companion("west->east", settings, store) as west:
        monkeypatch.setattr(west, "_tell_home", lambda *_: None)
        for _ in range(2):
            west._look()
            assert [why in said for said in alarms(store, "west->east")] == ([True] if why else [])
        monkeypatch.setattr(companion_module, "pin_cluster_ids", gone)
        west._look()
        assert len(alarms(store, "west->east")) == (1 if why else 0), "one that was shut and is silent stays shut"


def gone(*_: object) -> bool:
    raise KafkaError("east does not answer", retriable=True)
